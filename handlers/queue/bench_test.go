package queue_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"procaas/engine/enginetest"
	"procaas/handlers/queue"
)

// What the parts of the queue cost by themselves: procaas-bench measures them together.

const batch = 500

func fill(b *testing.B, s *queue.Store, n int) {
	b.Helper()
	specs := make([]queue.Spec, batch)
	for i := range specs {
		specs[i] = queue.Spec{Type: "t", Payload: []byte("1")}
	}
	for ; n > 0; n -= batch {
		if _, err := s.Enqueue(b.Context(), nil, specs[:min(n, batch)]...); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPut(b *testing.B) {
	for _, n := range []int{1, batch} {
		b.Run(fmt.Sprint(n, "-at-once"), func(b *testing.B) {
			s := open(b, enginetest.Postgres(b))
			for b.Loop() {
				fill(b, s, n)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/task")
		})
	}
}

// BenchmarkExchange claims tasks, and completes those of the claim before.
func BenchmarkExchange(b *testing.B) {
	s := open(b, enginetest.Postgres(b))
	claim := queue.Claim{Worker: "w", Types: []queue.Want{{Type: "t", Limit: batch}}, Lease: time.Hour}
	report := queue.Report{Plain: true}
	for b.Loop() {
		b.StopTimer()
		fill(b, s, batch)
		b.StartTimer()
		tasks, lost, err := s.ExchangeTasks(b.Context(), report, claim)
		if err != nil || len(lost) > 0 || len(tasks) != batch {
			b.Fatalf("want %d tasks, have %d, lost %v: %v", batch, len(tasks), lost, err)
		}
		report.Completed = report.Completed[:0]
		for i := range tasks {
			report.Completed = append(report.Completed, tasks[i].Ref())
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*batch), "ns/task")
}

func BenchmarkStats(b *testing.B) {
	s := open(b, enginetest.Postgres(b))
	fill(b, s, 20*batch)
	for b.Loop() {
		if _, err := s.TaskStats(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkClaimManyTypes claims from thousands of types. None, few or all of them have ready tasks.
func BenchmarkClaimManyTypes(b *testing.B) {
	for _, types := range []int{100, 5000} {
		for _, busy := range []int{0, 50, types} {
			b.Run(fmt.Sprint(types, "-types-", busy, "-busy"), func(b *testing.B) {
				s := open(b, enginetest.Postgres(b))
				claim := queue.Claim{Worker: "w", Limit: 100, Lease: time.Hour}
				var specs []queue.Spec
				for i := range types {
					claim.Types = append(claim.Types, queue.Want{Type: fmt.Sprint("t", i), Limit: 10})
					for range 20 * min(1, max(0, busy-i)) {
						specs = append(specs, queue.Spec{Type: fmt.Sprint("t", i), Payload: []byte("1")})
					}
				}
				for some := range slices.Chunk(specs, batch) {
					if _, err := s.Enqueue(b.Context(), nil, some...); err != nil {
						b.Fatal(err)
					}
				}
				for b.Loop() {
					if _, err := s.ClaimTasks(b.Context(), claim); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
