package guard

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// manyWait returns a gate at which calls wait, and their spots. All places inside are taken.
func manyWait(calls int, repeats bool, terms Terms, now time.Time) (*gate, []spot) {
	g := &gate{name: "orders"}
	inside := make([]spot, terms.most)
	for i := range inside {
		g.enter(&inside[i], terms, nil, now)
	}
	waiting := make([]spot, calls)
	for i := range waiting {
		waiting[i].age, waiting[i].repeats = now.Add(time.Duration(i)), repeats
		g.enter(&waiting[i], terms, nil, now)
	}
	return g, waiting
}

// Thousands of calls may wait, and each looks every second.
func TestCallsThatWaitAllocateNothing(t *testing.T) { // not parallel: it counts allocations
	now := time.Now()
	g, waiting := manyWait(100, true, Terms{most: 50, adapts: true, nodes: 1}, now)
	if n := testing.AllocsPerRun(100, func() {
		if state, _, _, why := g.look(&waiting[0], now); state != spotInLine || why != g.whyTurn {
			t.Errorf("want a call that waits for its turn, have state %d and %q", state, why)
		}
	}); n != 0 {
		t.Errorf("want no allocations for a look, have %g", n)
	}
}

// The gate counts retries instead of looking for them, and picks the same call as a search.
func TestNextCallIsThatOfASearch(t *testing.T) {
	t.Parallel()
	search := func(g *gate, now time.Time) int {
		order := make([]int, len(g.line))
		for i := range order {
			order[i] = i
		}
		if g.turns%newShare == newShare-1 {
			slices.Reverse(order)
		}
		for _, i := range order {
			if !g.line[i].repeats || g.mayRepeat(now) {
				return i
			}
		}
		return -1
	}
	var waited, none int
	for seed := range uint64(20) {
		r, now := rand.New(rand.NewPCG(seed, 0)), time.Unix(1e9, 0)
		g, terms := &gate{name: "orders"}, Terms{most: 3, repeats: 0.1, nodes: 1000}
		var inside []*spot
		for range 300 {
			now = now.Add(time.Duration(r.IntN(int(100 * time.Millisecond))))
			if len(inside) == 0 || r.IntN(3) > 0 {
				s := &spot{age: now.Add(-time.Duration(r.IntN(int(time.Second)))), repeats: r.IntN(3) > 0}
				g.enter(s, terms, nil, now)
				inside = append(inside, s)
			} else {
				i := r.IntN(len(inside))
				inside[i].leave(CallEnd{Verdict: CallGood}, now)
				inside = slices.Delete(inside, i, i+1)
			}
			if len(g.line) == 0 {
				continue
			}
			waited++
			have, want := g.first(now), search(g, now)
			if have != want {
				t.Fatalf("seed %d: of %d calls, %d of them retries, want number %d to go first, have %d", seed, len(g.line), g.retries, want, have)
			}
			if want < 0 {
				none++
			}
		}
	}
	if waited < 1000 || none == 0 {
		t.Errorf("want calls that wait and retries that stand back, have %d and %d", waited, none)
	}
}

// BenchmarkLook is what a call that waits costs each time that it looks.
func BenchmarkLook(b *testing.B) {
	for _, c := range []struct {
		name    string
		repeats bool
		terms   Terms
	}{
		{"full", false, Terms{most: 2500}},
		{"retries", true, Terms{most: 2500, repeats: 0.0001, nodes: 1}},
	} {
		b.Run(c.name, func(b *testing.B) {
			now := time.Now()
			g, waiting := manyWait(5000, c.repeats, c.terms, now)
			if c.repeats {
				g.used = 0 // there are places, but the budget of retries is used up
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				g.look(&waiting[i%len(waiting)], now)
			}
		})
	}
}
