package engine_test

import (
	"testing"
	"time"

	"procaas/engine"
	"procaas/engine/store"
)

// A second of a thousand handlers, all of them called.
func BenchmarkDecide(b *testing.B) {
	watched := append(fan(50, 10, "push"), fan(50, 10, "mail")...)
	f := engine.NewFallbacks(watched)
	var s engine.FallbackState
	counts := engine.FallbackCounts{}
	now := time.Unix(1_800_000_000, 0)
	tallies := make([]store.Tally, len(watched))
	for b.Loop() {
		now = now.Add(time.Second)
		for i, w := range watched {
			tallies[i] = store.Tally{Path: w.Path, Second: now.Unix(), Good: 5, Bad: i % 2}
		}
		f.Decide(&s, counts, now, tallies)
	}
}

func BenchmarkAdmit(b *testing.B) {
	var s engine.FallbackState
	now := time.Unix(1_800_000_000, 0)
	for b.Loop() {
		s.Admit("p/s/h", now, 0)
	}
}
