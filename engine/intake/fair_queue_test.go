package intake_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"procaas/dsl/tree"
	"procaas/engine/intake"
	"procaas/engine/model"
	"procaas/engine/store"
)

// A crowd is a queue of runs, and a node that begins one after the other.
type crowd struct {
	pipelines map[string]*tree.Pipeline
	turns     intake.Turns
	now       time.Time
	queue     []waiting // in its order
	begun     map[string]int
}

// A waiting run is ordered by a time.
type waiting struct {
	model.Intake
	at time.Time
}

func newCrowd() *crowd {
	return &crowd{pipelines: map[string]*tree.Pipeline{}, now: time.Unix(1_800_000_000, 0), begun: map[string]int{}}
}

// declare adds a pipeline.
func (c *crowd) declare(id, owner string, weight int) {
	c.pipelines[id] = &tree.Pipeline{ID: id, Owner: owner, Weight: weight}
}

// accept takes runs in.
func (c *crowd) accept(pipeline, source string, runs int) {
	in := slices.Repeat([]model.Intake{{Pipeline: pipeline, Event: model.Event{Source: source}}}, runs)
	c.turns.Queue(&tree.Bundle{Index: tree.Index{Pipelines: c.pipelines}}, in, c.now)
	for _, r := range in {
		c.queue = append(c.queue, waiting{r, c.now.Add(r.Turn)})
	}
	slices.SortStableFunc(c.queue, func(a, b waiting) int { return a.at.Compare(b.at) })
}

// begin takes the next run after some time.
func (c *crowd) begin(after time.Duration) string {
	c.now = c.now.Add(after)
	r := c.queue[0]
	c.queue = c.queue[1:]
	c.turns.Began(&store.Claimed{Turn: r.at}, c.now)
	c.begun[cmp.Or(r.Event.Source, r.Pipeline)]++
	return r.Pipeline
}

// While all have runs that wait, each pipeline begins as many as its weight allows, and one with
// few runs passes the others by. The speed of the node changes meanwhile, and nobody says how.
func TestPipelinesShareByWeight(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := newCrowd()
		c.declare("few", "", 1)
		weights, total := rapid.SliceOfN(rapid.IntRange(1, 5), 2, 4).Draw(t, "weights"), 0
		for i, w := range weights {
			total += w
			c.declare(fmt.Sprint("p", i), "", w)
		}
		const runs = 400
		c.accept("p0", "", rapid.IntRange(0, runs).Draw(t, "start"))
		paces := rapid.SliceOfN(rapid.IntRange(1, 50), 8, 8).Draw(t, "paces")
		for k := range weights {
			c.accept(fmt.Sprint("p", k), "", runs)
		}
		late := 0
		for i := range runs {
			if i%50 == 25 {
				c.accept("few", "", 1)
				late = i + len(weights) + 1
			}
			if c.begin(time.Duration(paces[i%8])*time.Millisecond) == "few" {
				late = 0
			}
			if late > 0 && i > late {
				t.Fatalf("the event of a pipeline with few waits behind %v", c.begun)
			}
		}
		for k, w := range weights {
			part, want := float64(c.begun[fmt.Sprint("p", k)])/runs, float64(w)/float64(total)
			if part < want-0.05 || part > want+0.05 {
				t.Fatalf("pipeline %d has begun %.2f of the runs, want %.2f: %v for %v", k, part, want, c.begun, weights)
			}
		}
	})
}

// Many pipelines of one owner have at most the part of the one of another, and many events of a source no
// more than few of others.
func TestOwnersAndSourcesShare(t *testing.T) {
	t.Parallel()
	c := newCrowd()
	for _, id := range []string{"a", "b", "c", "d"} {
		c.declare(id, "greedy", 1)
	}
	c.declare("one", "modest", 1)
	for range 100 { // all grow together
		for _, id := range []string{"a", "b", "c", "d", "one"} {
			c.accept(id, "", 10)
		}
	}
	for range 1000 {
		c.begin(time.Millisecond)
	}
	if n := c.begun["one"]; n < 400 || n > 600 {
		t.Errorf("want about 500 of 1000 runs for the owner of one pipeline, have %v", c.begun)
	}

	c = newCrowd()
	c.declare("p", "", 1)
	for i := range 100 {
		c.accept("p", "loud", 100)
		if i%2 == 0 {
			c.accept("p", "quiet", 1)
		}
		for range 4 {
			c.begin(time.Millisecond)
		}
	}
	if n := c.begun["quiet"]; n != 50 {
		t.Errorf("want that all 50 runs of the quiet source have begun, have %v", c.begun)
	}
}

// When nothing waits any more, what was is forgotten.
func TestNobodyPaysForAnEarlierFlood(t *testing.T) {
	t.Parallel()
	c := newCrowd()
	c.declare("p", "", 1)
	c.accept("p", "", 1000)
	c.begin(0)
	if last := c.queue[len(c.queue)-1]; last.Turn < time.Minute {
		t.Errorf("want that the last run of the flood stands far behind, have %s", last.Turn)
	}
	c.turns.Free()
	c.queue = nil
	c.accept("p", "", 1)
	if r := c.queue[0]; r.Turn != 0 {
		t.Errorf("want that the next run stands by its time, have %s later", r.Turn)
	}
}

// Runs that stay long need more room, so fewer of them begin: pipelines have equal parts of the time
// of the node.
func TestRunsCountByTheirTime(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := newCrowd()
		stay := map[string]time.Duration{
			"short": time.Duration(rapid.IntRange(10, 200).Draw(t, "short")) * time.Millisecond,
			"long":  time.Duration(rapid.IntRange(200, 2000).Draw(t, "long")) * time.Millisecond,
		}
		const runs = 300
		for id, d := range stay {
			c.declare(id, "", 1)
			for range 100 {
				c.turns.Ended(model.Lane{Pipeline: id}, d)
			}
		}
		c.accept("long", "", runs)
		c.accept("short", "", runs)
		spent := map[string]time.Duration{}
		for range runs {
			id := c.begin(time.Millisecond)
			spent[id] += stay[id]
		}
		if off := spent["short"] - spent["long"]; off.Abs() > 2*stay["long"] {
			t.Fatalf("want equal parts of the time, have %v for runs of %v", spent, stay)
		}
	})
}

// A run that continues has an old turn, which does not send those that come later behind the flood.
func TestARunThatContinuesKeepsTheOthersInTheirPlace(t *testing.T) {
	t.Parallel()
	c := newCrowd()
	c.declare("loud", "", 1)
	c.declare("rare", "", 1)
	c.accept("loud", "", 1000)
	c.turns.Began(&store.Claimed{Turn: c.now.Add(time.Hour), Checkpoint: []byte("{}")}, c.now)
	c.accept("rare", "", 1)
	c.begin(0)
	if c.begin(0); c.begun["rare"] != 1 {
		t.Errorf("want the rare run among the first two, have %v", c.begun)
	}
}
