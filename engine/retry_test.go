package engine_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/tree"
	"procaas/engine/core"
)

// A handler without a policy and one with an empty policy are repeated alike.
func TestDefaultRetryIsWhatTheLanguageSays(t *testing.T) {
	t.Parallel()
	p := plan(t, `
pipelines:
- id: p
  stages:
  - id: s
    handlers: [{id: a, request: {}, retry: {}}]
`)
	written := *p.Step("p/s/a").Handler.Retry
	if d := cmp.Diff(tree.DefaultRetry(), written, cmpopts.IgnoreUnexported(tree.Retry{}), cmpopts.IgnoreTypes(diag.Span{})); d != "" {
		t.Errorf("(- engine, + language):\n%s", d)
	}
}

// delays returns the first n delays of a policy with the same noise each time.
func delays(p tree.Retry, n int, noise float64) []time.Duration {
	var out []time.Duration
	var prev time.Duration
	for i := range n {
		prev = core.NextDelay(p, core.RetryInputs{Number: i + 1, Before: prev, Noise: noise})
		out = append(out, prev)
	}
	return out
}

func TestDelaysGrowByFactorUpToTheCap(t *testing.T) {
	t.Parallel()
	p := tree.Retry{MinDelay: 100 * time.Millisecond, MaxDelay: time.Second, Factor: 2}
	have := delays(p, 6, 0)
	want := []time.Duration{1e8, 2e8, 4e8, 8e8, 1e9, 1e9}
	if !slices.Equal(have, want) {
		t.Errorf("have %v, want %v", have, want)
	}
}

func TestDeviationFeedsTheNextDelayAndIsNotCapped(t *testing.T) {
	t.Parallel()
	p := tree.Retry{MinDelay: 100 * time.Millisecond, MaxDelay: 300 * time.Millisecond, Factor: 2, Jitter: datum.Jitter{Share: 0.5}}
	// 100; 100*2=200, +100=300; 300*2 capped to 300, +150=450; the same again.
	have := delays(p, 4, 1)
	want := []time.Duration{1e8, 3e8, 4.5e8, 4.5e8}
	if !slices.Equal(have, want) {
		t.Errorf("have %v, want %v", have, want)
	}
}

func TestDelayIsNeverNegativeAndGrowsAgain(t *testing.T) {
	t.Parallel()
	p := tree.Retry{MinDelay: 100 * time.Millisecond, MaxDelay: time.Minute, Factor: 2, Jitter: datum.Jitter{Share: 1}}
	low := core.NextDelay(p, core.RetryInputs{Number: 2, Before: p.MinDelay, Noise: -5})
	if low <= 0 || low > time.Millisecond {
		t.Errorf("have %v, want nearly nothing", low)
	}
	if next := core.NextDelay(p, core.RetryInputs{Number: 3, Before: low}); next != 2*p.MinDelay {
		t.Errorf("after %v: have %v, want %v", low, next, 2*p.MinDelay)
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	var prev time.Duration
	for i := range 10_000 {
		if prev = core.NextDelay(p, core.RetryInputs{Number: i + 1, Before: prev, Noise: rnd.NormFloat64()}); prev <= 0 {
			t.Fatalf("have %v, want more than 0", prev)
		}
	}
}

func TestDelayBoundsThatFillAnInteger(t *testing.T) {
	t.Parallel()
	p := tree.Retry{MinDelay: 1 << 62, MaxDelay: 1<<63 - 1, Factor: 100, Jitter: datum.Jitter{Share: 1}}
	for _, word := range []string{"", datum.FullJitter, datum.DecorrelatedJitter} {
		p.Jitter.Word = word
		for _, noise := range []float64{-9, 0, 9} {
			if d := core.NextDelay(p, core.RetryInputs{Number: 1_000_000, Before: 1 << 62, Noise: noise}); d <= 0 {
				t.Errorf("%q, noise %v: have %v, want more than 0", word, noise, d)
			}
		}
	}
}

// The range of each delay is reached, evenly, and never left.
func TestWordsTakeDelaysEvenlyFromARange(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for _, tc := range []struct {
		word      string
		number    int
		before    time.Duration
		low, high time.Duration
	}{
		{datum.FullJitter, 1, 0, 0, 100 * ms},
		{datum.FullJitter, 3, 5 * ms, 0, 400 * ms},
		{datum.FullJitter, 9, 0, 0, time.Second},
		{datum.DecorrelatedJitter, 1, 0, 100 * ms, 300 * ms},
		{datum.DecorrelatedJitter, 7, 200 * ms, 100 * ms, 600 * ms},
		{datum.DecorrelatedJitter, 7, 900 * ms, 100 * ms, time.Second},
	} {
		p := tree.Retry{MinDelay: 100 * ms, MaxDelay: time.Second, Factor: 2, Jitter: datum.Jitter{Word: tc.word}}
		rnd := rand.New(rand.NewPCG(1, 2))
		const n, parts = 20_000, 10
		var in [parts]int
		for range n {
			d := core.NextDelay(p, core.RetryInputs{Number: tc.number, Before: tc.before, Noise: rnd.NormFloat64()})
			if d < tc.low || d > tc.high {
				t.Fatalf("%+v: have %v", tc, d)
			}
			in[min(parts-1, parts*(d-tc.low)/(tc.high-tc.low))]++
		}
		for i, have := range in {
			if have < n/parts*9/10 || have > n/parts*11/10 {
				t.Errorf("%+v: have %d of %d in part %d of %d", tc, have, n, i, parts)
			}
		}
	}
}
