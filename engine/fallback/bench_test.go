package fallback_test

import (
	"testing"
	"time"

	"procaas/engine/fallback"
	"procaas/engine/model"
)

// A second of a thousand handlers, all of them called.
func BenchmarkDecide(b *testing.B) {
	watched := append(fan(50, 10, "push"), fan(50, 10, "mail")...)
	f := fallback.NewRules(watched)
	var s fallback.State
	counts := fallback.Counts{}
	now := time.Unix(1_800_000_000, 0)
	tallies := make([]model.Tally, len(watched))
	for b.Loop() {
		now = now.Add(time.Second)
		for i, w := range watched {
			tallies[i] = model.Tally{Path: w.Path, Second: now.Unix(), Good: 5, Bad: i % 2}
		}
		f.Decide(&s, counts, now, tallies)
	}
}

func BenchmarkAdmit(b *testing.B) {
	var s fallback.State
	now := time.Unix(1_800_000_000, 0)
	for b.Loop() {
		s.Admit("p/s/h", now, 0)
	}
}
