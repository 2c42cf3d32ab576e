package node

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"procaas/dsl/datum"
	"procaas/dsl/tree"
	"procaas/engine/core"
	"procaas/engine/fallback"
	"procaas/engine/guard"
	"procaas/engine/planner"
	"procaas/engine/stats"
	"procaas/engine/steering"
	"procaas/engine/store"
)

// BenchmarkGuard is what each call costs beside the call itself: the switch, the
// share, the outages, the limits, the bound of calls at once, the metrics, and what
// decides about fallbacks.
func BenchmarkGuard(b *testing.B) {
	step := func(path string, h *tree.Handler) *planner.Step {
		s := &planner.Step{Path: path, StagePath: "work/a", Handler: h}
		s.Type.Name = "call"
		return s
	}
	bounded := &tree.Handler{RateLimit: &tree.RateLimit{Rate: datum.Rate{Count: 1e9, Per: time.Second}}, MaxInFlight: 10}
	bounded.Critical = new(bool)
	bounded.Fallback = &tree.Fallback{}
	free, limited, ramping, protected := step("work/a/one", &tree.Handler{}), step("work/a/one", bounded), step("work/a/two", bounded),
		step("work/a/one", bounded)
	protected.Service = &tree.Service{ID: "orders", Timeout: time.Second, Concurrency: "adaptive", RetryBudget: 0.2}
	none, err := guard.NewControls(nil)
	if err != nil {
		b.Fatal(err)
	}
	three, err := guard.NewControls(map[string]store.Setting{
		"work":       {Value: []byte(`{"enabled": true, "rate_limit": "1000000/s"}`)},
		"work/a":     {Value: []byte(`{"enabled": true, "rate_limit": "1000000/s"}`)},
		"work/a/one": {Value: []byte(`{"enabled": true, "rollout_percent": 100}`)},
	})
	if err != nil {
		b.Fatal(err)
	}
	ramp, err := fallback.NewOutages([]byte(`{"outages": [{"name": "work/a/two", "members": ["work/a/two"], "phase": "ramping",
		"turned": "2000-01-01T00:00:00Z", "until": "9999-01-01T00:00:00Z"}]}`), 1)
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name     string
		step     *planner.Step
		controls *guard.Controls
	}{
		{"free", free, none},
		{"limited", limited, none},
		{"protected", protected, none},
		{"controlled", limited, three},
		{"ramping", ramping, three},
	} {
		b.Run(c.name, func(b *testing.B) {
			d := NewDriver(Parts{Steering: &steering.Steering{
				Stats: &stats.Stats{Metrics: stats.NewMetrics(prometheus.NewRegistry())}, Degrader: fallback.New(nil), Guard: &guard.Guard{},
			}})
			d.Degrader.Known.Store(ramp)
			j := &job{n: &node{d: d}, claimed: &store.Claimed{ID: "00dc6ad2-7034-7041-aa34-29279e39ef14"}, pass: guard.Pass{Wake: func() {}}}
			now := time.Now()
			b.ReportAllocs()
			for b.Loop() {
				now = now.Add(time.Millisecond)
				if _, off := j.off(c.step, c.controls, now); off {
					b.Fatal("off")
				}
				c.controls.Share(c.step)
				if v := j.verdict(core.Ask{Step: c.step, Ref: c.step.Path}, c.controls, now); v != (core.Verdict{}) {
					b.Fatal(v)
				}
				j.pass.End(c.step.Path, guard.CallEnd{Verdict: guard.CallGood, Kind: c.step.Path, Took: time.Millisecond}, now)
				d.Stats.Path(c.step.Path).Ended(nil, time.Millisecond, now, "")
				d.Degrader.Count(c.step, nil, time.Millisecond, now)
			}
		})
	}
}
