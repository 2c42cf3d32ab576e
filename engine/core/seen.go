package core

import (
	"encoding/json"

	"procaas/engine/planner"
)

// This file keeps what conditions were about, for explanations.

// maxSeen bounds a value that is kept to explain a decision, in bytes.
const maxSeen = 1 << 10

// see keeps what the conditions of a handler are about to read and others may change
// later.
func (r *Run) see(s *planner.Step) {
	if len(s.Fleeting) == 0 {
		return
	}
	rec := &r.records[s.Position]
	rec.saw = make(map[string]json.RawMessage, len(s.Fleeting))
	for _, name := range s.Fleeting {
		if raw := r.raw[name]; len(raw) <= maxSeen {
			rec.saw[name] = raw
		}
	}
}
