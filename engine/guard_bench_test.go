package engine

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"procaas/dsl"
)

// BenchmarkGuard is what each call costs beside the call itself: the switch, the
// share, the limits, the bound of calls at once and the metrics.
func BenchmarkGuard(b *testing.B) {
	free := &Step{Path: "work/a/one", stage: "work/a", Handler: &dsl.Handler{}}
	free.Type.New = func() Handler { return nil }
	limited := *free
	limited.Handler = &dsl.Handler{RateLimit: &dsl.RateLimit{Rate: dsl.Rate{Count: 1e9, Per: time.Second}}, MaxInFlight: 10}
	none, err := newControls(nil)
	if err != nil {
		b.Fatal(err)
	}
	three, err := newControls(map[string]Setting{
		"work":       {Value: []byte(`{"enabled": true, "rate_limit": "1000000/s"}`)},
		"work/a":     {Value: []byte(`{"enabled": true, "rate_limit": "1000000/s"}`)},
		"work/a/one": {Value: []byte(`{"enabled": true, "rollout_percent": 100}`)},
	})
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name     string
		step     *Step
		controls *controls
	}{{"free", free, none}, {"limited", &limited, none}, {"controlled", &limited, three}} {
		b.Run(c.name, func(b *testing.B) {
			g, s := &guard{}, &stats{metrics: NewMetrics(prometheus.NewRegistry())}
			p := pass{wake: func() {}}
			now := time.Now()
			b.ReportAllocs()
			for b.Loop() {
				now = now.Add(time.Millisecond)
				if _, off := c.controls.off(c.step, now); off {
					b.Fatal("off")
				}
				c.controls.share(c.step)
				if v := g.verdict(c.step, &p, c.controls, now); v != (Verdict{}) {
					b.Fatal(v)
				}
				p.leave(c.step.Path)
				s.path(c.step.Path).ended(nil, time.Millisecond, now)
			}
		})
	}
}
