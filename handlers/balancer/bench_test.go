package balancer

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// A crowd is a cluster whose loads vary, a tenth too much for some of its workers.
func crowd(workers, partitions, replicas int, seed uint64) (Cluster, func(at float64, assignment []int) *Report) {
	random := rand.New(rand.NewPCG(seed, 1))
	c := Cluster{Seed: seed, Workers: workers, Partitions: partitions, Step: 2}
	weights := make([]float64, partitions)
	total := 0.0
	for p := range partitions {
		c.Allowed = append(c.Allowed, random.Perm(workers)[:replicas])
		c.Assignment = append(c.Assignment, c.Allowed[p][0])
		weights[p] = math.Exp(random.NormFloat64())
		total += weights[p]
	}
	capacity := 1.3 * total / float64(workers)
	return c, func(at float64, assignment []int) *Report {
		r := &Report{
			At: at, Up: make([]bool, workers), Draining: make([]bool, workers), Requests: make([]float64, workers),
			Drops: make([]float64, workers), Busy: make([]float64, workers), Age: make([]float64, workers),
			Weights: make([]float64, partitions), Assignment: slices.Clone(assignment),
		}
		load := make([]float64, workers)
		for p, w := range assignment {
			r.Weights[p] = weights[p] * (0.8 + 0.4*random.Float64())
			load[w] += r.Weights[p]
		}
		for w := range workers {
			r.Up[w], r.Age[w] = true, 1e6+at
			r.Requests[w] = min(load[w], capacity)
			r.Drops[w] = load[w] - r.Requests[w]
			r.Busy[w] = min(1, load[w]/capacity)
		}
		return r
	}
}

// BenchmarkDecide is a decision of v5 in a cluster with much to do.
func BenchmarkDecide(b *testing.B) {
	for _, size := range []struct {
		name                          string
		workers, partitions, replicas int
	}{{"80x4000", 80, 4000, 6}, {"200x10000", 200, 10000, 6}, {"200x10000all", 200, 10000, 200}} {
		b.Run(size.name, func(b *testing.B) {
			c, report := crowd(size.workers, size.partitions, size.replicas, 1)
			p, err := New("v5", c, DefaultParams())
			if err != nil {
				b.Fatal(err)
			}
			where := slices.Clone(c.Assignment)
			at, longest := 0.0, time.Duration(0)
			for b.Loop() {
				b.StopTimer()
				at += 2
				r := report(at, where)
				b.StartTimer()
				began := time.Now()
				moves := p.Decide(r)
				longest = max(longest, time.Since(began))
				for _, m := range moves {
					where[m.Partition] = m.To
				}
			}
			b.ReportMetric(float64(longest.Microseconds()), "max-µs")
		})
	}
}
