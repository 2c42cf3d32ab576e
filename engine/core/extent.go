package core

import (
	"fmt"
	"time"

	"procaas/dsl/datum"
	"procaas/dsl/tree"
	"procaas/engine/model"
	"procaas/engine/planner"
)

// This file bounds the size of one run. The bounds on lists, call depth and values are not enough,
// because lists inside lists multiply. It also bounds chains of events, in which each event is
// emitted by the run of the one before. Each event carries the length of its chain. Runs that start
// several runs of their own pipeline multiply, which the length of a chain does not show. The guard
// keeps a budget for those.

// An extent is how large a run has become. The run and the runs inside its calls share it.
type extent struct {
	run    *Run      // the outermost one
	event  int       // bytes that the event of the run takes
	most   int       // the most that it may keep, in bytes
	began  time.Time // when it began
	parts  int       // handlers so far, counted again for each element and each call
	flying int       // tasks in flight

	weighed int // bytes that the run kept when it was last weighed
	grown   int // bytes added since

	looped int // runs that it has started in its pipeline's loop
}

const (
	// MaxHops is the longest chain of events.
	MaxHops = 1000

	// HopEvery is the time in which a chain may grow by one event beyond MaxHops. So a chain with
	// pauses never reaches the bound.
	HopEvery = 100 * time.Millisecond

	// maxFlying bounds the tasks of one run in flight, because the bounds of nested for-each
	// multiply.
	maxFlying = 1000

	// holdMost bounds the memory of one run in bytes, in addition to four times the max-state of
	// its pipeline.
	holdMost = 128 << 20

	// weighLeast is how many bytes are added at least before the run is weighed again.
	weighLeast = 256 << 10

	recordWeight = 1 << 10 // of a handler or an element, in bytes
	runWeight    = 2 << 10 // of a call
	copiesOfData = 3       // JSON is kept as it is, in the last checkpoint, and while that is written
)

// CauseMemory is the cause of a run that waits for memory of its node.
const CauseMemory = "memory"

// dataWeight returns what a value takes that is kept as JSON and decoded.
func dataWeight(raw []byte) int { return datum.DecodedSize(raw) + copiesOfData*len(raw) }

// weightOf returns what a response takes. raw is nil if the run does not keep it as JSON.
func weightOf(response any, raw []byte) int {
	if raw == nil {
		return datum.Size(response)
	}
	return dataWeight(raw)
}

// spread counts the handlers of n elements or calls before they are made. It returns an error if
// they are too many for one run.
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

// held returns about how many bytes the run keeps. It weighs the run only now and then, so that freed
// bytes are not counted.
func (x *extent) held() int {
	if x.grown >= max(weighLeast, x.weighed/4) {
		x.weighed, x.grown = x.event+x.run.weight(), 0
	}
	return x.weighed + x.grown
}

// Held returns about how many bytes of memory the run takes.
func (r *Run) Held() int { return r.whole.extent.held() }

// grow counts bytes that the run is about to keep, and returns an error if it keeps too much.
func (x *extent) grow(bytes int) error {
	x.grown += bytes
	if x.weighed+x.grown <= x.most {
		return nil
	}
	x.weighed, x.grown = x.event+x.run.weight(), bytes
	if held := x.weighed + bytes; held > x.most {
		return fmt.Errorf("the run would keep %d bytes of state, lists, inputs, responses and records in memory, and may keep %d; "+
			"keep less: give services references in place of whole documents, lower max-parallel, "+
			"or split the work over several runs, with emit or queue.put for each part of it", held, x.most)
	}
	return nil
}

// hop sets the position of an emitted event in its chain, one more than that of the run's own
// event.
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

// starts counts a run that a handler starts in its pipeline's loop.
func (x *extent) starts(u unit) {
	if u.Handler.LeadsBack && u.rec.attempts == 1 {
		x.looped++
	}
}

// weight estimates the memory of the run in bytes.
func (r *Run) weight() int {
	n := runWeight + dataWeight(r.rawInputs)
	for _, v := range r.scope.raw {
		n += dataWeight(v.Raw)
	}
	for i := range r.records {
		n += r.records[i].weight()
	}
	return n
}

func (r *record) weight() int {
	n := recordWeight + r.bodySize + dataWeight(r.raw) + len(r.err) + len(r.trail)*recordWeight
	for _, v := range r.saw {
		n += copiesOfData * len(v.Raw)
	}
	for _, v := range r.was {
		n += copiesOfData * len(v.Raw)
	}
	if r.sub != nil {
		n += r.sub.weight()
	}
	if r.each == nil {
		return n
	}
	n += dataWeight(r.each.raw)
	for i := range r.each.of {
		n += r.each.of[i].weight()
	}
	return n
}
