package intake

import (
	"maps"
	"slices"
	"sync"
	"time"

	"procaas/dsl/tree"
	"procaas/engine/model"
	"procaas/engine/stats"
	"procaas/engine/store"
)

// Turns share overloaded nodes between owners, pipelines and sources of events. A waiting run has
// the place in the queue that it would have if each of them had its share, instead of the order of
// arrival. So a rare event overtakes a flood of others.
//
// It is fair queueing by a virtual clock, which is the turn of the run that was last taken from the
// queue (Golestani, "A self-clocked fair queueing scheme for broadband applications", 1994). All
// nodes take from one queue, so their clocks agree. Turns run faster than time: runs without one,
// such as scheduled runs, do not wait behind a flood.
type Turns struct {
	mu     sync.Mutex         // guards the following
	busy   bool               // runs wait; otherwise the following is not used
	clock  time.Time          // the latest turn that was taken
	next   map[lane]time.Time // next turn of each lane with waiting runs
	bundle *tree.Bundle       // has the weights
}

// A lane is what has a share. A pipeline shares the part of its owner, and a source the part of its
// pipeline.
type lane struct{ owner, pipeline, source string }

const (
	turnLength = time.Second // distance between two runs of a lane that is alone and has the weight 1
	mostLanes  = 1000        // beyond this, the sources of a pipeline share one lane
)

// Free reports that the node has room and no run waits.
func (t *Turns) Free() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.busy = false
}

// Began reports runs that were taken from the queue.
func (t *Turns) Began(runs []*store.Claimed) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range runs {
		if t.busy && r.Turn.After(t.clock) {
			t.clock = r.Turn
		}
	}
}

// Queue gives turns to runs that will or may wait.
func (t *Turns) Queue(b *tree.Bundle, runs []model.Intake, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.busy {
		t.busy, t.clock, t.next = true, now, map[lane]time.Time{}
	}
	t.bundle = b
	for l, turn := range t.next {
		if !turn.After(t.clock) {
			delete(t.next, l)
		}
	}
	share := t.shares(runs)
	for i := range runs {
		if r := &runs[i]; !r.Own && !r.Event.At.After(now) {
			l := t.lane(r)
			turn := t.clock
			if next := t.next[l]; next.After(turn) {
				turn = next
			}
			t.next[l] = turn.Add(time.Duration(float64(turnLength) / share(l)))
			r.Turn = turn.Sub(now)
		}
	}
}

// lane returns the lane of a run.
func (t *Turns) lane(r *model.Intake) lane {
	l := lane{pipeline: r.Pipeline, source: r.Event.Source}
	if r.Event.Inner {
		l.source = "" // each emitting run is a source of its own
	}
	if p := t.bundle.Pipeline(r.Pipeline); p != nil {
		l.owner = p.Owner
	}
	if l.owner == "" {
		l.owner = "/" + l.pipeline // no owner has such a name
	}
	if _, known := t.next[l]; !known && len(t.next) >= mostLanes {
		l.source = ""
	}
	return l
}

// shares returns a function for the share of a lane, relative to 1. The share is the weight of the
// pipeline, divided by the number of the owner's pipelines that have waiting runs, and by the
// number of the pipeline's sources that have.
func (t *Turns) shares(runs []model.Intake) func(lane) float64 {
	seen := make(map[[2]lane]bool, len(t.next)+1)
	below := map[lane]float64{} // how many pipelines an owner has, and how many sources a pipeline has
	count := func(l lane) {
		owner, pipeline := lane{owner: l.owner}, lane{owner: l.owner, pipeline: l.pipeline}
		for _, part := range [][2]lane{{owner, pipeline}, {pipeline, l}} {
			if !seen[part] {
				seen[part] = true
				below[part[0]]++
			}
		}
	}
	for l := range t.next {
		count(l)
	}
	for i := range runs {
		count(t.lane(&runs[i]))
	}
	return func(l lane) float64 {
		return t.weight(l.pipeline) / max(1, below[lane{owner: l.owner}]) / max(1, below[lane{owner: l.owner, pipeline: l.pipeline}])
	}
}

// Behind lists the pipelines that have sent more than their share to this node, with the
// approximate number of runs that wait because of that.
func (t *Turns) Behind() []stats.BehindRuns {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.busy {
		return nil
	}
	runs := map[string]float64{}
	share := t.shares(nil)
	for l, turn := range t.next {
		runs[l.pipeline] += max(0, float64(turn.Sub(t.clock))/float64(turnLength)*share(l))
	}
	var out []stats.BehindRuns
	for _, pipeline := range slices.Sorted(maps.Keys(runs)) {
		if n := int(runs[pipeline]); n > 1 {
			out = append(out, stats.BehindRuns{Pipeline: pipeline, Runs: n})
		}
	}
	return out
}

// weight returns the weight of a pipeline.
func (t *Turns) weight(pipeline string) float64 {
	if p := t.bundle.Pipeline(pipeline); p != nil && p.Weight > 0 {
		return float64(p.Weight)
	}
	return 1
}
