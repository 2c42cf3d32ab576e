package engine

import (
	"encoding/json"
)

// This file keeps what conditions were about, for explanations. It belongs to the
// pure core, as run.go does.

// maxSeen bounds a value that is kept to explain a decision, in bytes.
const maxSeen = 1 << 10

// see keeps what the conditions of a handler are about to read and others may change
// later.
func (r *Run) see(s *Step) {
	if len(s.fleeting) == 0 {
		return
	}
	rec := &r.records[s.position]
	rec.saw = make(map[string]json.RawMessage, len(s.fleeting))
	for _, name := range s.fleeting {
		if raw := r.raw[name]; len(raw) <= maxSeen {
			rec.saw[name] = raw
		}
	}
}
