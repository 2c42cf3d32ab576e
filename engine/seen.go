package engine

import (
	"encoding/json"
	"slices"

	"procaas/dsl"
)

// This file keeps what conditions were about, for explanations. It belongs to the
// pure core, as run.go does.

// maxSeen bounds a value that is kept to explain a decision, in bytes.
const maxSeen = 1 << 10

// markFleeting finds what the conditions of a handler read of the shared state and
// handlers after them write. Such values are kept for explanations: the rest can be
// found in the checkpoint afterwards.
func (p *Plan) markFleeting() {
	for _, s := range p.order {
		stage := p.Stages[s.Stage]
		reads := slices.Concat(s.Handler.ConditionReads(), stage.of.ConditionReads())
		for _, n := range p.shared {
			path := dsl.Path{sharedRoot, n.name}
			read := slices.ContainsFunc(reads, func(r dsl.Read) bool { return r.Path.Overlaps(path) })
			written := slices.ContainsFunc(p.order[stage.Steps[0].position:], func(later *Step) bool {
				return slices.ContainsFunc(later.Writes, func(w Write) bool { return w.Path.Overlaps(path) })
			})
			if read && written {
				s.fleeting = append(s.fleeting, n.name)
			}
		}
	}
}

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
