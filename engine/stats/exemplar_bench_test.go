package stats

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// BenchmarkEnded counts attempts of runs without and with a trace.
func BenchmarkEnded(b *testing.B) {
	for name, trace := range map[string]string{"plain": "", "traced": "4bf92f3577b34da6a3ce929d0e0e4736"} {
		b.Run(name, func(b *testing.B) {
			s := &Stats{Metrics: NewMetrics(prometheus.NewRegistry())}
			p, now := s.Path("work/tell/user"), time.Now()
			b.ReportAllocs()
			for b.Loop() {
				p.Ended(nil, time.Millisecond, now, trace)
			}
		})
	}
}
