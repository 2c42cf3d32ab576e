package simulate_test

import (
	"bytes"
	"testing"
	"time"

	"procaas/dsl/datum"
	"procaas/dsl/tree"
	"procaas/engine/simulate"
)

func plainFallback() *tree.Fallback {
	return &tree.Fallback{
		MinSuccessRatio: 0.5, Window: 30 * time.Second, MinCalls: 10,
		Duration: 10 * time.Second, MaxDuration: 5 * time.Minute,
	}
}

// courses lets the fallback go through one trouble with many seeds.
func courses(rate float64, trouble int) []simulate.Course {
	t := simulate.Troubles(rate)[trouble]
	var out []simulate.Course
	for seed := range uint64(20) {
		out = append(out, simulate.Degrade(t, plainFallback(), seed))
	}
	return out
}

func mean(courses []simulate.Course, of func(simulate.Course) float64) float64 {
	sum := 0.0
	for _, c := range courses {
		sum += of(c)
	}
	return sum / float64(len(courses))
}

// The troubles by their places in Troubles.
const (
	down = iota
	sixty
	thirty
	ten
	blip
	flap
)

func TestHandlerThatIsDownGoesOutWithinSeconds(t *testing.T) {
	t.Parallel()
	for _, rate := range []float64{5, 20, 100} {
		for seed, c := range courses(rate, down) {
			if c.OutAfter == nil || *c.OutAfter > 5 || c.BackAfter == nil || *c.BackAfter > 35 || c.Changes != 2 {
				t.Errorf("%v calls/s, seed %d: %+v", rate, seed, c)
			}
		}
	}
}

func TestHandlerThatIsDownGoesOutAtLowTraffic(t *testing.T) {
	t.Parallel()
	all := courses(0.2, down)
	for seed, c := range all {
		if c.OutAfter == nil {
			t.Errorf("seed %d: it stays", seed)
			return
		}
	}
	if s := mean(all, func(c simulate.Course) float64 { return *c.OutAfter }); s > 60 {
		t.Errorf("out after %v s, want a minute at most", s)
	}
}

func TestHandlerThatMostlyFailsGoesOutAndStaysOut(t *testing.T) {
	t.Parallel()
	all := courses(5, sixty)
	for seed, c := range all {
		if c.OutAfter == nil || *c.OutAfter > 90 || c.Changes > 6 {
			t.Errorf("seed %d: %+v", seed, c)
		}
	}
	if n := mean(all, func(c simulate.Course) float64 { return float64(c.Changes) }); n > 2.5 {
		t.Errorf("it changes %v times, want little more than 2", n)
	}
}

func TestHandlerThatMostlySucceedsStays(t *testing.T) {
	t.Parallel()
	for _, rate := range []float64{0.2, 5, 100} {
		for _, trouble := range []int{thirty, ten, blip} {
			for seed, c := range courses(rate, trouble) {
				if c.OutAfter != nil || c.Lost > 0 {
					t.Errorf("%v calls/s, seed %d: %+v", rate, seed, c)
				}
			}
		}
	}
}

func TestFlappingHandlerIsMostlyOut(t *testing.T) {
	t.Parallel()
	all := courses(5, flap)
	if n := mean(all, func(c simulate.Course) float64 { return float64(c.Changes) }); n > 6 {
		t.Errorf("it changes %v times", n)
	}
	if n := mean(all, func(c simulate.Course) float64 { return float64(c.Failures) }); n > 80 {
		t.Errorf("%v of 1500 failures were let through", n)
	}
}

func TestDegradationReports(t *testing.T) {
	t.Parallel()
	r := simulate.Degradation("of a test", plainFallback(), 5, 1, 1)
	var text, data bytes.Buffer
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	if err := datum.WriteJSON(&data, r); err != nil {
		t.Fatal(err)
	}
	golden(t, "degradation.txt", text.Bytes())
	golden(t, "degradation.json", data.Bytes())
}
