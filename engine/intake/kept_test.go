package intake_test

import (
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

// A place is a run that a node works on.
type place struct {
	pipeline, source string
	lane             model.Lane // from Began
}

// A house is a node with places.
type house struct {
	*rapid.T
	bundle *tree.Bundle
	turns  intake.Turns
	now    time.Time
	places []place
}

// left returns how many runs are missing until the owner, the pipeline or the source has its part of
// half of the places. It counts anew each time. others are runs that come.
func (h *house) left(pipeline, source string, others []model.Intake) (least float64) {
	type lane struct{ owner, pipeline, source string }
	runs := map[lane]int{}
	owner := func(pipeline string) string {
		if o := h.bundle.Pipeline(pipeline).Owner; o != "" {
			return o
		}
		return "only " + pipeline
	}
	add := func(p, s string, n int) { runs[lane{owner(p), p, s}] += n }
	for _, p := range h.places {
		add(p.pipeline, p.source, 1)
	}
	for _, r := range others {
		add(r.Pipeline, r.Event.Source, 0)
	}
	weight := func(l lane) float64 {
		pipelines, sources := map[string]bool{}, map[string]bool{}
		for other := range runs {
			if other.owner == l.owner {
				pipelines[other.pipeline] = true
			}
			if other.pipeline == l.pipeline {
				sources[other.source] = true
			}
		}
		return float64(h.bundle.Pipeline(l.pipeline).Weight) / float64(len(pipelines)) / float64(len(sources))
	}
	all, mine, have := 0.0, [3]float64{}, [3]int{}
	for l, n := range runs {
		w := weight(l)
		all += w
		for i, same := range []bool{l.owner == owner(pipeline), l.pipeline == pipeline, l.pipeline == pipeline && l.source == source} {
			if same {
				mine[i] += w
				have[i] += n
			}
		}
	}
	least = 1e9
	for i := range mine {
		least = min(least, mine[i]/all*float64(h.turns.Slots/2)-float64(have[i]))
	}
	return least
}

func (h *house) begin(r *model.Intake) {
	l := h.turns.Began(&store.Claimed{Pipeline: r.Pipeline, Event: r.Event}, h.now)
	h.places = append(h.places, place{r.Pipeline, r.Event.Source, l})
}

// Kept places are for those that have less than their part of half of the places, by a model that
// counts anew each time. So all that are below their parts together never have more than half.
func TestKeptPlacesAreForThoseBelowTheirPart(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h := &house{T: t, now: time.Unix(1_800_000_000, 0), bundle: &tree.Bundle{Index: tree.Index{Pipelines: map[string]*tree.Pipeline{}}}}
		h.turns.Slots = rapid.SampledFrom([]int{1, 7, 8, 16, 64}).Draw(t, "slots")
		for i, owner := range []string{"", "", "ann", "ann", "bob"} {
			id := fmt.Sprint("p", i)
			h.bundle.Index.Pipelines[id] = &tree.Pipeline{ID: id, Owner: owner, Weight: rapid.IntRange(1, 4).Draw(t, "weight")}
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			h.now = h.now.Add(time.Duration(rapid.IntRange(0, 1000).Draw(t, "pause")) * time.Millisecond)
			switch n := rapid.IntRange(0, len(h.places)).Draw(t, "ends"); {
			case n < len(h.places) && rapid.Bool().Draw(t, "end"):
				h.turns.Ended(h.places[n].lane, time.Second)
				h.places = slices.Delete(h.places, n, n+1)
			default:
				h.arrive()
			}
		}
	})
}

// arrive lets a batch of events come.
func (h *house) arrive() {
	batch := make([]model.Intake, rapid.IntRange(1, 6).Draw(h.T, "batch"))
	for i := range batch {
		batch[i].Pipeline = fmt.Sprint("p", rapid.IntRange(0, 4).Draw(h.T, "pipeline"))
		batch[i].Event = model.Event{Source: rapid.SampledFrom([]string{"", "x", "y"}).Draw(h.T, "source"), At: h.now}
	}
	kept := h.turns.Kept(h.now)
	if room := h.turns.Slots - len(h.places) - kept; room > 0 {
		for i := range batch[:min(room, len(batch))] {
			h.begin(&batch[i])
		}
		return
	}
	low := h.turns.Low(h.bundle, batch, h.turns.Slots, h.now)
	for i := range batch {
		const rounding = 1e-9
		left := h.left(batch[i].Pipeline, batch[i].Event.Source, batch)
		is := slices.Contains(low, i)
		if is && left < -rounding || !is && left > rounding {
			h.Fatalf("want that run %d of %v has a kept place if it is below its part, of which %f is left, have %v", i, batch, left, is)
		}
		if is {
			h.begin(&batch[i])
		}
	}
	for len(h.places) > h.turns.Slots { // those for which no place was free wait
		last := h.places[len(h.places)-1]
		h.turns.Ended(last.lane, 0)
		h.places = h.places[:len(h.places)-1]
	}
}
