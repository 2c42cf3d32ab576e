package engine_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"procaas/dsl"
	"procaas/engine"
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
	written.Span = dsl.Span{}
	if d := cmp.Diff(engine.DefaultRetry(), written, cmp.AllowUnexported(dsl.Retry{})); d != "" {
		t.Errorf("(- engine, + language):\n%s", d)
	}
}

// delays gives the first n delays of a policy with the same noise each time.
func delays(p dsl.Retry, n int, noise float64) []time.Duration {
	var out []time.Duration
	var prev time.Duration
	for range n {
		prev = engine.NextDelay(p, prev, noise)
		out = append(out, prev)
	}
	return out
}

func TestDelaysGrowByFactorUpToTheCap(t *testing.T) {
	t.Parallel()
	p := dsl.Retry{MinDelay: 100 * time.Millisecond, MaxDelay: time.Second, Factor: 2}
	have := delays(p, 6, 0)
	want := []time.Duration{1e8, 2e8, 4e8, 8e8, 1e9, 1e9}
	if !slices.Equal(have, want) {
		t.Errorf("have %v, want %v", have, want)
	}
}

func TestDeviationFeedsTheNextDelayAndIsNotCapped(t *testing.T) {
	t.Parallel()
	p := dsl.Retry{MinDelay: 100 * time.Millisecond, MaxDelay: 300 * time.Millisecond, Factor: 2, Jitter: 0.5}
	// 100; 100*2=200, +100=300; 300*2 capped to 300, +150=450; the same again.
	have := delays(p, 4, 1)
	want := []time.Duration{1e8, 3e8, 4.5e8, 4.5e8}
	if !slices.Equal(have, want) {
		t.Errorf("have %v, want %v", have, want)
	}
}

func TestDelayIsNeverNegativeAndGrowsAgain(t *testing.T) {
	t.Parallel()
	p := dsl.Retry{MinDelay: 100 * time.Millisecond, MaxDelay: time.Minute, Factor: 2, Jitter: 1}
	low := engine.NextDelay(p, p.MinDelay, -5)
	if low <= 0 || low > time.Millisecond {
		t.Errorf("have %v, want nearly nothing", low)
	}
	if next := engine.NextDelay(p, low, 0); next != 2*p.MinDelay {
		t.Errorf("after %v: have %v, want %v", low, next, 2*p.MinDelay)
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	var prev time.Duration
	for range 10_000 {
		if prev = engine.NextDelay(p, prev, rnd.NormFloat64()); prev <= 0 {
			t.Fatalf("have %v, want more than 0", prev)
		}
	}
}

func TestDelayBoundsThatFillAnInteger(t *testing.T) {
	t.Parallel()
	p := dsl.Retry{MinDelay: 1 << 62, MaxDelay: 1<<63 - 1, Factor: 100, Jitter: 1}
	for _, noise := range []float64{-9, 0, 9} {
		if d := engine.NextDelay(p, 1<<62, noise); d <= 0 {
			t.Errorf("noise %v: have %v, want more than 0", noise, d)
		}
	}
}
