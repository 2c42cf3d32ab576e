package core

import (
	"fmt"
	"time"

	"procaas/dsl/tree"
	"procaas/engine/model"
	"procaas/engine/planner"
)

// This file bounds what one run may become. The bounds of a list, of a call's depth and of
// a value are not enough: lists inside of lists multiply, and so does what each keeps. It also
// bounds chains of events, each emitted by the run of the one before: they carry their length with
// them. Runs that start more than one run of their own pipeline multiply, which no chain sees: that
// has a budget, which the guard keeps.

// An extent is how far a run has spread. The runs inside of its calls share it.
type extent struct {
	all    interface{ weight() int } // the run itself
	most   int                       // that it may keep, in bytes
	began  time.Time                 // the run itself
	parts  int                       // handlers so far, each counted anew for each element and each call
	flying int                       // tasks in flight
	grown  int                       // bytes that came since the run was weighed
	looped int                       // runs that it has started in the loop that its pipeline is part of
}

const (
	// MaxHops is how long a chain of events may become.
	MaxHops = 1000

	// HopEvery is the time for each of which a chain may become one event longer than
	// MaxHops, so that one with pauses never ends by this.
	HopEvery = 100 * time.Millisecond

	// maxFlying bounds the tasks of one run that are under way at once: the bounds of
	// several for-each inside of each other multiply.
	maxFlying = 1000

	// holdMost bounds what one run keeps in memory, besides four times the max-state of its
	// pipeline, in bytes.
	holdMost = 128 << 20

	// weighEvery is how much comes before the run is weighed again, in bytes.
	weighEvery = holdMost / 16

	recordWeight = 1 << 10 // of a handler or an element, in bytes of memory
	runWeight    = 2 << 10 // of a call
	dataWeight   = 3       // of each byte of JSON, which is there decoded, too
)

// spread counts the handlers of n elements or calls, before they are made. It refuses those
// that would be too many for one run.
func (x *extent) spread(n int, callee *planner.Plan) error {
	each := 1
	if callee != nil {
		each += len(callee.Steps)
	}
	if n > (tree.MaxRunParts-x.parts)/each {
		what := fmt.Sprintf("%d elements", n)
		if callee != nil {
			what = fmt.Sprintf("%d calls of %d handlers", n, each-1)
		}
		return fmt.Errorf("the run has had %d handlers, those of each element and each call counted, and %s more would make %d; "+
			"want at most %d in one run: split the work over several runs, with emit or queue.put for each part of it",
			x.parts, what, x.parts+n*each, tree.MaxRunParts)
	}
	x.parts += n * each
	return x.grow(n * (recordWeight + (each-1)*recordWeight))
}

// grow notes bytes that the run is about to keep, and refuses them when it keeps too much.
// It weighs the run now and then only: what has been dropped since is not counted that way.
func (x *extent) grow(bytes int) error {
	if x.grown += bytes; x.grown < weighEvery {
		return nil
	}
	if held := x.all.weight() + bytes; held > x.most {
		return fmt.Errorf("the run would keep %d bytes of state, lists, inputs, responses and records in memory, and may keep %d; "+
			"keep less: give services references in place of whole documents, lower max-parallel, "+
			"or split the work over several runs, with emit or queue.put for each part of it", held, x.most)
	}
	x.grown = 0
	return nil
}

// hop makes an event that a run emits one longer than the chain that led to the run.
func (x *extent) hop(e *model.Event, from model.Event, now time.Time) error {
	e.Hops, e.ChainSince = from.Hops+1, from.ChainSince
	if from.Hops == 0 {
		e.ChainSince = x.began
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
func (x *extent) starts(u unit) {
	if u.Handler.LeadsBack && u.rec.attempts == 1 {
		x.looped++
	}
}

// weight is about how much memory the run keeps.
func (r *progress) weight() int {
	n := runWeight + dataWeight*len(r.rawInputs)
	for _, raw := range r.scope.raw {
		n += dataWeight * len(raw)
	}
	for i := range r.records {
		n += r.records[i].weight()
	}
	return n
}

func (r *record) weight() int {
	n := recordWeight + dataWeight*len(r.raw) + len(r.err) + len(r.trail)*recordWeight
	for _, raw := range r.saw {
		n += dataWeight * len(raw)
	}
	for _, raw := range r.was {
		n += dataWeight * len(raw)
	}
	if r.sub != nil {
		n += r.sub.weight()
	}
	if r.each == nil {
		return n
	}
	n += dataWeight * len(r.each.raw)
	for i := range r.each.of {
		n += r.each.of[i].weight()
	}
	return n
}
