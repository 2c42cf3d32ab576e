package stats

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"procaas/engine/model"
)

// BenchmarkFlow counts what a flow of three calls leads to, as many goroutines do at once. Run it with -cpu 1,2,4: the time of a flow
// must fall with the processors, as goroutines would otherwise wait for each other.
func BenchmarkFlow(b *testing.B) {
	s := &Stats{Metrics: NewMetrics(prometheus.NewRegistry())}
	var paths, stages []string
	for i := range 3 {
		stages = append(stages, fmt.Sprint("stage-", i))
		paths = append(paths, fmt.Sprintf("work/stage-%d/call", i))
	}
	var serial atomic.Int64
	begun := time.Now()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			now := begun.Add(time.Duration(serial.Add(1)) * 200 * time.Microsecond)
			s.EventAccepted("work", now)
			for i, path := range paths {
				p := s.Path(path)
				p.Ended(nil, time.Millisecond, now, "")
				s.Called(path, time.Millisecond, 100, 100, now)
				s.Took(Took{Pipeline: "work", Stage: stages[i], Accepted: 2 * time.Millisecond, Begun: time.Millisecond}, now)
			}
			s.Took(Took{Pipeline: "work", Accepted: 3 * time.Millisecond, Begun: 3 * time.Millisecond}, now)
			s.Slow(SlowRun{Run: "run", Pipeline: "work", Ended: now, TookMS: 3}, now)
			s.RunEnded("work", model.Succeeded, false, 3*time.Millisecond, now)
			s.Left("work", 300, now)
		}
	})
}
