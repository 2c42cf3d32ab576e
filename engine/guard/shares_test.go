package guard

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"procaas/engine/model"
)

// less reports whether a lane has less than another among these calls. Only lanes of one owner compare
// what their pipelines have, and only those of one pipeline what their sources have.
func less(calls []*spot, a, b model.Lane) bool {
	for _, of := range []func(model.Lane) model.Lane{
		func(l model.Lane) model.Lane { return model.Lane{Owner: l.Owner} },
		func(l model.Lane) model.Lane { return model.Lane{Owner: l.Owner, Pipeline: l.Pipeline} },
		func(l model.Lane) model.Lane { return l },
	} {
		more := 0.0
		for _, s := range calls {
			if of(s.lane) == of(b) {
				more += s.cost
			}
			if of(s.lane) == of(a) {
				more -= s.cost
			}
		}
		if of(a) != of(b) {
			return more > 1e-9 // beyond rounding errors
		}
	}
	return false
}

// A gate assigns each turn to a lane with the fewest calls in flight, and sends a call away only from a
// lane with the most calls, while others come and go.
func TestLanesTakeTurnsAtAGate(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g, now := &gate{slots: rapid.SampledFrom([]int{0, 16, 256}).Draw(t, "slots")}, time.Unix(1_800_000_000, 0)
		terms := Terms{most: rapid.IntRange(1, 6).Draw(t, "most"), repeats: 1, nodes: 1}
		weights := map[string]int{"p": 1, "q": rapid.IntRange(1, 3).Draw(t, "weight")}
		var all []*spot
		state := func(of ...spotState) (some []*spot) {
			for _, s := range all {
				if s.gate != nil && slices.Contains(of, s.state) {
					some = append(some, s)
				}
			}
			return some
		}
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			now = now.Add(time.Millisecond)
			inside := state(spotInside)
			if len(inside) > 0 && rapid.IntRange(0, 3).Draw(t, "ends") == 0 {
				s := rapid.SampledFrom(inside).Draw(t, "which")
				all = slices.DeleteFunc(all, func(o *spot) bool { return o == s })
				before, left := state(spotInLine), state(spotInside)
				s.leave(CallEnd{Verdict: CallGood, Kind: "k", Took: time.Millisecond}, now)
				for _, next := range before {
					if next.state != spotInside {
						continue
					}
					for _, other := range before {
						if less(left, other.lane, next.lane) {
							t.Fatalf("%v got the turn before %v, which has fewer calls in flight", next.lane, other.lane)
						}
					}
				}
				continue
			}
			lane := model.Lane{
				Owner: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "owner"), Pipeline: rapid.SampledFrom([]string{"p", "q"}).Draw(t, "pipeline"),
				Source: rapid.SampledFrom([]string{"", "s"}).Draw(t, "source"),
			}
			s := &spot{age: now, lane: lane, cost: 1 / float64(weights[lane.Pipeline])}
			all = append(all, s)
			g.enter(s, terms, nil, now)
			for _, out := range state(spotOut) {
				all = slices.DeleteFunc(all, func(o *spot) bool { return o == out })
				before := append(state(spotInLine, spotInside), out)
				for _, other := range state(spotInLine) {
					if less(before, out.lane, other.lane) {
						t.Fatalf("%v had to leave before %v, which has more calls", out.lane, other.lane)
					}
				}
			}
			if len(g.line) > g.longest(now) {
				t.Fatalf("have %d calls in line, want at most %d", len(g.line), g.longest(now))
			}
		}
		for _, s := range all {
			s.leave(CallEnd{Verdict: CallMute}, now)
		}
		for l, sh := range g.lanes {
			if sh.spots != 0 || sh.all != 0 || sh.busy != 0 {
				t.Fatalf("%v has %+v left when all have gone", l, *sh)
			}
		}
	})
}

// A queue for one service leaves slots of the node to others, also while the limit of the service is
// high.
func TestALineLeavesSlotsToOthers(t *testing.T) {
	t.Parallel()
	for _, most := range []int{10, 40, 100, 180} {
		t.Run(fmt.Sprint(most), func(t *testing.T) {
			t.Parallel()
			g, now := &gate{slots: 256}, time.Unix(1_800_000_000, 0)
			for range 400 {
				g.enter(&spot{age: now, cost: 1}, Terms{most: most, repeats: 1, nodes: 1}, nil, now)
			}
			if have := g.used + len(g.line); have > 256-32 {
				t.Errorf("have %d of 256 slots for one service with %d calls in flight, want 32 or more for others", have, most)
			}
		})
	}
}
