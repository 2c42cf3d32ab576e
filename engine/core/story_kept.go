package core

import (
	"encoding/json"
	"slices"
	"time"

	"procaas/engine/checkpoint"
)

// This file keeps what the story of a run is told from: what handlers have replaced in
// the shared state, and when attempts were made. It belongs to the pure core, as run.go
// does, and the engine itself reads none of it.

// maxTriesKept is how many attempts of a handler are kept, the last ones: a checkpoint is
// written with each step, and a handler may be repeated for months.
const maxTriesKept = 10

// replaces keeps what a name was before the handler changed it.
func (r *record) replaces(name string, was json.RawMessage) {
	if _, known := r.was[name]; known || slices.Contains(r.wide, name) {
		return
	}
	if len(was) > maxSeen {
		r.wide = append(r.wide, name)
		slices.Sort(r.wide)
		return
	}
	if r.was == nil {
		r.was = map[string]json.RawMessage{}
	}
	r.was[name] = was
}

// tryBegins keeps that an attempt after the first one begins.
func (r *record) tryBegins(now time.Time) {
	// Cloned, here and below: a record that was saved before shares the list.
	tries := r.tries[max(0, len(r.tries)-maxTriesKept+1):]
	r.tries = append(slices.Clone(tries), checkpoint.Try{Began: now})
}

// tryFails keeps how an attempt ended. Of a handler with only one attempt, nothing is
// kept that its record does not say.
func (r *record) tryFails(now time.Time) {
	if len(r.tries) == 0 {
		r.tries = append(r.tries, checkpoint.Try{Began: r.started})
	}
	tries := slices.Clone(r.tries)
	last := &tries[len(tries)-1]
	last.Ended, last.Error = now, r.err
	r.tries = tries
}
