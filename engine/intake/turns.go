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

// Turns let owners, pipelines and sources of events share nodes that have more to do than they can: runs that wait stand in
// the queue where they would if each had its share, and not in the order in which they came. What comes seldom passes by a
// flood of others.
//
// It is fair queueing by a virtual clock, the turn of what was taken from the queue last (Golestani, "A self-clocked fair
// queueing scheme for broadband applications", 1994). All nodes take from one queue, so that their clocks agree. Turns go
// faster than the time: runs without one, such as those that had a time to begin, do not wait behind a flood.
type Turns struct {
	mu     sync.Mutex         // guards the following
	busy   bool               // runs wait; otherwise the following is of no use
	clock  time.Time          // the latest turn that has come
	next   map[lane]time.Time // of those with runs that wait
	bundle *tree.Bundle       // that has their weights
}

// A lane is what has a share: of the owner's that of the pipeline, and of that the one of the source.
type lane struct{ owner, pipeline, source string }

const (
	turnLength = time.Second // from a run to the next of a lane that is alone and has the weight 1
	mostLanes  = 1000        // beyond them, sources of a pipeline share one
)

// Free says that the node has room, and that no run waits.
func (t *Turns) Free() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.busy = false
}

// Began says that runs have begun that were taken from the queue.
func (t *Turns) Began(runs []*store.Claimed) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range runs {
		if t.busy && r.Turn.After(t.clock) {
			t.clock = r.Turn
		}
	}
}

// Queue gives turns to runs that will wait, or may have to.
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

// lane finds that of a run.
func (t *Turns) lane(r *model.Intake) lane {
	l := lane{pipeline: r.Pipeline, source: r.Event.Source}
	if r.Event.Inner {
		l.source = "" // each run that emits is one
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

// shares returns the part of a lane against 1 of others: the weight of its pipeline, divided by the pipelines of the owner
// that have runs waiting, or are about to, and by the sources of the pipeline that do.
func (t *Turns) shares(runs []model.Intake) func(lane) float64 {
	seen := make(map[[2]lane]bool, len(t.next)+1)
	below := map[lane]float64{} // how many pipelines an owner has, and how many sources a pipeline
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

// Behind lists the pipelines of which more came to this node than their part, with about how many runs wait for that.
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

// weight is that of a pipeline.
func (t *Turns) weight(pipeline string) float64 {
	if p := t.bundle.Pipeline(pipeline); p != nil && p.Weight > 0 {
		return float64(p.Weight)
	}
	return 1
}
