package core

import (
	"encoding/json"
	"slices"
	"time"

	"procaas/engine/checkpoint"
)

// This file saves data for the story of a run: values that handlers have replaced in the shared
// state, and the times of attempts. The engine itself reads none of it. It is in this package
// because the core must stay pure.

// maxTriesKept is how many last attempts of a handler are kept. There is a bound because each step
// writes a checkpoint, and a handler may be retried for months.
const maxTriesKept = 10

// replaces saves the value of a name before the handler changed it.
func (r *record) replaces(name string, was json.RawMessage) {
	if _, known := r.was.Get(name); known || slices.Contains(r.wide, name) {
		return
	}
	if len(was) > maxSeen {
		r.wide = append(r.wide, name)
		slices.Sort(r.wide)
		return
	}
	r.was.Set(name, was)
}

// tryBegins saves the start of an attempt after the first one.
func (r *record) tryBegins(now time.Time) {
	// Cloned, here and below, because a record that was saved before shares the list.
	tries := r.tries[max(0, len(r.tries)-maxTriesKept+1):]
	r.tries = append(slices.Clone(tries), checkpoint.Try{Began: now})
}

// tryFails saves the end of an attempt. If a handler has one attempt only, its record already says
// it.
func (r *record) tryFails(now time.Time) {
	if len(r.tries) == 0 {
		r.tries = append(r.tries, checkpoint.Try{Began: r.started})
	}
	tries := slices.Clone(r.tries)
	last := &tries[len(tries)-1]
	last.Ended, last.Error = now, r.err
	r.tries = tries
}
