package intake

import (
	"maps"
	"time"

	"procaas/dsl/tree"
	"procaas/engine/model"
)

// A node keeps some of its places free. So an event finds one at once although a flood of others
// takes all that become free. Kept places are for events of which the owner, the pipeline and the
// source have less than their parts of half of the node's share, which is all places of a single
// node. The rest is always for runs from the queue.
type kept struct {
	runs   map[model.Lane]int // that the node works on; their lanes have no owner
	last   model.Lane         // of the run that began last
	shared time.Time          // when a run last began after one of another lane
}

const (
	keptPart  = 8  // one of so many places is kept free while several lanes share the node
	keptAlone = 32 // the same while one lane has the node alone
	sharedFor = time.Minute
)

// began counts a run.
func (k *kept) began(l model.Lane, now time.Time) {
	if k.runs == nil {
		k.runs, k.last = map[model.Lane]int{}, l
	}
	k.runs[l]++
	if l != k.last {
		k.last, k.shared = l, now
	}
}

// ended counts the end of a run.
func (k *kept) ended(l model.Lane) {
	if n := k.runs[l]; n > 1 {
		k.runs[l] = n - 1
	} else {
		delete(k.runs, l)
	}
}

// Kept returns how many places the node keeps free.
func (t *Turns) Kept(now time.Time) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.Sub(t.kept.shared) < sharedFor {
		return t.Slots / keptPart
	}
	return t.Slots / keptAlone
}

// Low returns the indexes of the runs that may have a kept place on a node with a share of the runs.
// An event with a low priority, a tolerance or a later time may wait, and a run whose end is known needs none.
func (t *Turns) Low(b *tree.Bundle, runs []model.Intake, share int, now time.Time) (low []int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.bundle = b
	half := share / 2
	var parts parts
	for i := range runs {
		ev, l := &runs[i].Event, t.lane(&runs[i])
		mayWait := runs[i].End != nil || ev.Priority < 0 || ev.DelayTolerance > 0 || ev.At.After(now)
		if mayWait || t.kept.runs[model.Lane{Pipeline: l.Pipeline, Source: l.Source}] >= half {
			continue
		}
		if parts == nil {
			parts = t.parts(runs)
		}
		if parts.below(l, half) {
			parts.add(l, 0, 1)
			low = append(low, i)
		}
	}
	return low
}

// parts are what owners, pipelines and sources have of a node, by their depth in a lane. Depth 0 is
// the node.
type parts map[partKey]part

type partKey struct {
	depth int
	lane  model.Lane
}

type part struct {
	share float64
	runs  int
}

// parts returns the parts of all that have runs here, and of those that bring some.
func (t *Turns) parts(runs []model.Intake) parts {
	lanes := map[model.Lane]int{}
	for l, n := range t.kept.runs {
		lanes[model.LaneOf(t.owner(l.Pipeline), l.Pipeline, &model.Event{Source: l.Source})] = n
	}
	for l := range t.wanting(runs) {
		lanes[l] += 0
	}
	share, p := t.shares(maps.Keys(lanes)), parts{}
	for l, n := range lanes {
		p.add(l, share(l), n)
	}
	return p
}

// levels returns the parts that a lane belongs to.
func levels(l model.Lane) [4]partKey {
	return [...]partKey{
		{}, {1, model.Lane{Owner: l.Owner}}, {2, model.Lane{Owner: l.Owner, Pipeline: l.Pipeline}}, {3, l},
	}
}

func (p parts) add(l model.Lane, share float64, runs int) {
	for _, k := range levels(l) {
		p[k] = part{p[k].share + share, p[k].runs + runs}
	}
}

// below reports whether all that a lane belongs to have fewer runs than their parts of some places.
func (p parts) below(l model.Lane, places int) bool {
	for _, k := range levels(l) {
		if k.depth > 0 && float64(p[k].runs) >= p[k].share/p[partKey{}].share*float64(places) {
			return false
		}
	}
	return true
}
