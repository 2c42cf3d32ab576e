package intake

import (
	"iter"
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
// arrival. So a rare event overtakes a flood of others. What they share is room for runs, so a run
// counts by the time for which runs of its pipeline have needed it.
//
// It is fair queueing by a virtual clock. That is the turn of the run that was last taken from the
// queue (Golestani, "A self-clocked fair queueing scheme for broadband applications", 1994). All
// nodes take from one queue, so their clocks agree. Turns run faster than time: runs without one,
// such as scheduled runs, do not wait behind a flood.
type Turns struct {
	Slots int // runs that the node works on at once. Set it before use

	mu     sync.Mutex            // guards the following
	busy   bool                  // runs wait; otherwise the following is not used
	clock  time.Time             // the latest turn that was taken
	next   map[model.Lane]queued // of each lane with waiting runs
	bundle *tree.Bundle          // has the weights

	held map[string]time.Duration // how long a run of a pipeline stays on this node, on average
	kept kept
}

// queued is what has come from a lane lately.
type queued struct {
	turn time.Time // of its next run
	runs int       // those that may still wait
}

const (
	turnLength = time.Second // distance between two runs of a lane of which none has ended
	leastTurn  = time.Millisecond
	heldCount  = 16   // runs over which the average is taken
	mostHeld   = 5000 // pipelines with an average, old ones included
	mostLanes  = 1000 // beyond this, the sources of a pipeline share one lane
)

// Free reports that the node has room and no run waits.
func (t *Turns) Free() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.busy = false
}

// Began reports a run that the node works on from now. A run that continues has a turn from when it
// first waited, perhaps far ahead of all that wait now. It returns the lane of the run, for Ended.
func (t *Turns) Began(r *store.Claimed, now time.Time) model.Lane {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.busy && len(r.Checkpoint) == 0 && r.Turn.After(t.clock) {
		t.clock = r.Turn
	}
	l := model.LaneOf("", r.Pipeline, &r.Event)
	l.Owner = "" // the definition may change until the run ends
	t.kept.began(l, now)
	return l
}

// Ended reports a run that has left the node after some time.
func (t *Turns) Ended(l model.Lane, after time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept.ended(l)
	switch held, known := t.held[l.Pipeline]; {
	case known:
		after = held + (after-held)/heldCount
	case t.held == nil || len(t.held) >= mostHeld:
		t.held = map[string]time.Duration{}
	}
	t.held[l.Pipeline] = after
}

// length returns the distance between two runs of a pipeline that is alone and has the weight 1.
func (t *Turns) length(pipeline string) time.Duration {
	if held, known := t.held[pipeline]; known {
		return max(held, leastTurn)
	}
	return turnLength
}

// Queue assigns turns to runs that will or may wait.
func (t *Turns) Queue(b *tree.Bundle, runs []model.Intake, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.busy {
		t.busy, t.clock, t.next = true, now, map[model.Lane]queued{}
	}
	t.bundle = b
	for l, q := range t.next {
		if !q.turn.After(t.clock) {
			delete(t.next, l)
		}
	}
	share := t.shares(t.wanting(runs))
	for i := range runs {
		if r := &runs[i]; !r.Own && !r.Event.At.After(now) {
			l := t.lane(r)
			turn, before := t.clock, t.next[l]
			if before.turn.After(turn) {
				turn = before.turn
			}
			t.next[l] = queued{turn.Add(time.Duration(float64(t.length(l.Pipeline)) / share(l))), before.runs + 1}
			r.Turn = turn.Sub(now)
		}
	}
}

// lane returns the lane of a run.
func (t *Turns) lane(r *model.Intake) model.Lane {
	l := model.LaneOf(t.owner(r.Pipeline), r.Pipeline, &r.Event)
	if _, known := t.next[l]; !known && len(t.next) >= mostLanes {
		l.Source = ""
	}
	return l
}

// wanting returns the lanes that have waiting runs, and those of some runs. Runs whose end is known want no room.
func (t *Turns) wanting(runs []model.Intake) iter.Seq[model.Lane] {
	return func(yield func(model.Lane) bool) {
		for l := range t.next {
			if !yield(l) {
				return
			}
		}
		for i := range runs {
			if runs[i].End == nil && !yield(t.lane(&runs[i])) {
				return
			}
		}
	}
}

// owner returns the owner of a pipeline, or "".
func (t *Turns) owner(pipeline string) string {
	if p := t.bundle.Pipeline(pipeline); p != nil {
		return p.Owner
	}
	return ""
}

// shares returns a function for the share of a lane, relative to 1. The share is the weight of the
// pipeline, divided by the number of the owner's pipelines among the lanes, and by the number of
// the pipeline's sources.
func (t *Turns) shares(lanes iter.Seq[model.Lane]) func(model.Lane) float64 {
	seen := make(map[[2]model.Lane]bool, len(t.next)+1)
	below := map[model.Lane]float64{} // how many pipelines an owner has, and how many sources a pipeline has
	for l := range lanes {
		owner, pipeline := model.Lane{Owner: l.Owner}, model.Lane{Owner: l.Owner, Pipeline: l.Pipeline}
		for _, part := range [][2]model.Lane{{owner, pipeline}, {pipeline, l}} {
			if !seen[part] {
				seen[part] = true
				below[part[0]]++
			}
		}
	}
	return func(l model.Lane) float64 {
		return t.weight(l.Pipeline) / max(1, below[model.Lane{Owner: l.Owner}]) / max(1, below[model.Lane{Owner: l.Owner, Pipeline: l.Pipeline}])
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
	share := t.shares(maps.Keys(t.next))
	for l, q := range t.next {
		runs[l.Pipeline] += min(float64(q.runs), max(0, float64(q.turn.Sub(t.clock))/float64(t.length(l.Pipeline))*share(l)))
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
