package balancer

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// A shop is workers that drop in the middle of a step what comes faster than they serve, as
// real ones do: requests come by chance, and a worker makes up for a quarter of a second at
// most. Steps last two seconds.
type shop struct {
	workers, parts int
	capacity, rate float64               // requests a second, of each worker and of all
	swing          float64               // by which the rate goes up and down every three seconds, as a share
	busy           func(float64) float64 // what workers tell of the share of time that they were busy

	owner  []int
	up     []bool
	began  []float64
	cold   []float64 // when each partition came
	budget []float64
	random *rand.Rand
}

func newShop(rate float64, busy func(float64) float64) *shop {
	s := &shop{workers: 3, parts: 32, capacity: 200, rate: rate, busy: busy, random: rand.New(rand.NewPCG(7, 1))}
	s.up, s.began, s.budget = make([]bool, s.workers), make([]float64, s.workers), make([]float64, s.workers)
	for w := range s.up {
		s.up[w], s.began[w] = true, -500-10*float64(w)
	}
	for p := range s.parts {
		s.owner, s.cold = append(s.owner, p%s.workers), append(s.cold, -1000)
	}
	return s
}

// cluster is what policies know of it.
func (s *shop) cluster() Cluster {
	c := Cluster{Workers: s.workers, Partitions: s.parts, Assignment: append([]int{}, s.owner...), Step: 2}
	for range s.parts {
		c.Allowed = append(c.Allowed, []int{0, 1, 2})
	}
	return c
}

// step lets two seconds pass, and tells what was dropped by those that live.
func (s *shop) step(t float64) (r *Report, dropped, offered float64) {
	n := s.workers
	r = &Report{
		At: 1000 + t + 2, Up: append([]bool{}, s.up...), Draining: make([]bool, n), Requests: make([]float64, n), Drops: make([]float64, n),
		Busy: make([]float64, n), Age: make([]float64, n), Weights: make([]float64, s.parts), Assignment: append([]int{}, s.owner...),
	}
	const tick = 0.01
	for x := t; x < t+2; x += tick {
		for w := range s.budget {
			s.budget[w] = min(s.capacity/4, s.budget[w]+s.capacity*tick)
		}
		mean := s.rate * (1 + s.swing*math.Sin(2*math.Pi*x/3)) / float64(s.parts) * tick
		for p, w := range s.owner {
			for limit, q := math.Exp(-mean), s.random.Float64(); q > limit && s.up[w]; q *= s.random.Float64() {
				offered++
				r.Weights[p]++
				work := 1 + 2*math.Exp((s.cold[p]-x)/20)
				if s.budget[w] < work {
					r.Drops[w]++
					continue
				}
				s.budget[w] -= work
				r.Requests[w]++
				r.Busy[w] += work / s.capacity / 2
			}
		}
	}
	for w := range n {
		dropped += r.Drops[w]
		r.Age[w], r.Busy[w] = t+2-s.began[w], s.busy(min(1, r.Busy[w]))
	}
	for p, w := range s.owner {
		if !s.up[w] {
			r.Weights[p] = math.NaN()
		}
	}
	return r, dropped, offered
}

// turn ends worker 2 or starts it again.
func (s *shop) turn(up bool, t float64) {
	if s.up[2] = up; up {
		s.began[2] = t
	}
}

// A worker has come back empty, and the others drop: what they report counts, whatever follows
// from the busy time that they tell or do not tell.
func TestV5HeedsWhatWorkersDrop(t *testing.T) {
	t.Parallel()
	exact := func(x float64) float64 { return x }
	for name, s := range map[string]*shop{
		"busy is exact":        newShop(410, exact),
		"busy is not told":     newShop(410, func(float64) float64 { return math.NaN() }),
		"busy is always 0":     newShop(410, func(float64) float64 { return 0 }),
		"busy is told by half": newShop(410, func(x float64) float64 { return x / 2 }),
		"bursts in a step":     func() *shop { s := newShop(370, exact); s.swing = 0.5; return s }(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEconomist(s.cluster(), DefaultParams())
			before, after := 0.0, 0.0
			left, returns := map[string]float64{}, 0
			const end = 900
			for at := 0.0; at < end; at += 2 {
				s.turn(at < 60 || at >= 120, at)
				r, dropped, offered := s.step(at)
				switch {
				case at >= 80 && at < 120:
					before += dropped / offered / 20
				case at >= end-120:
					after += dropped / offered / 60
				}
				for _, m := range e.Decide(r) {
					if was, ok := left[fmt.Sprint(m.Partition, m.To)]; ok && at-was < 600 {
						returns++
					}
					left[fmt.Sprint(m.Partition, s.owner[m.Partition])] = at
					s.owner[m.Partition], s.cold[m.Partition] = m.To, at+2
				}
			}
			count := make([]int, s.workers)
			for _, w := range s.owner {
				count[w]++
			}
			if before < 0.02 || after > 0.002 || returns > 0 {
				t.Errorf("dropped %.2f %% while one was away and %.2f %% at the end; partitions %v, %d moves to and fro", 100*before, 100*after,
					count, returns)
			}
			t.Logf("dropped %.2f %% while one was away and %.2f %% at the end; partitions %v", 100*before, 100*after, count)
		})
	}
}
