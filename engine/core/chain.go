package core

import (
	"fmt"
	"time"

	"procaas/engine/model"
)

// This file bounds chains of events, each emitted by the run of the one before: they carry
// their length with them. Runs that start more than one run of their own pipeline multiply,
// which no chain sees: that has a budget, which the guard keeps.

const (
	// MaxHops is how long a chain of events may become.
	MaxHops = 1000

	// HopEvery is the time for each of which a chain may become one event longer than
	// MaxHops, so that one with pauses never ends by this.
	HopEvery = 100 * time.Millisecond
)

// hop makes an emitted event one longer than the chain that led to the run.
func (r *Run) hop(e *model.Event, now time.Time) error {
	from := r.start.Event
	e.Hops, e.ChainSince = from.Hops+1, from.ChainSince
	if from.Hops == 0 {
		e.ChainSince = r.Extent.root.began
	}
	if most := MaxHops + int(max(0, now.Sub(e.ChainSince))/HopEvery); e.Hops > most {
		return fmt.Errorf("event %s would be the %dth of a chain in which each was emitted by the run of the one before, within %s; "+
			"want at most %d, and one more for each %s that the chain lasts: "+
			"let a condition end the chain, such as enabled on this handler, or emit with a delay",
			e.Type, e.Hops, now.Sub(e.ChainSince).Round(time.Second), MaxHops, HopEvery)
	}
	return nil
}

// starts notes that a handler starts a run in the loop that its pipeline is part of.
func (r *Run) starts(u unit) {
	if u.Handler.LeadsBack() && u.rec.attempts == 1 {
		r.Extent.Looped++
	}
}
