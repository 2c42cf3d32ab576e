package plant

import (
	"fmt"
	"math"
	"slices"

	"procaas/handlers/balancer"
)

// returnWithin is the time in seconds within which a partition that comes back to a worker counts
// as an oscillation.
const returnWithin = 600

// A Result has the results of one run of a scenario with a policy.
type Result struct {
	Policy string `json:"policy"`
	Seed   uint64 `json:"seed"`

	Offered      float64 `json:"offered"`                  // requests
	Drops        float64 `json:"drop_fraction"`            // share of requests that were not served
	Bound        float64 `json:"drop_fraction_bound"`      // share that no assignment could have served
	Dead         float64 `json:"drop_fraction_on_dead"`    // because the worker was down
	Handing      float64 `json:"drop_fraction_in_handoff"` // because the partition was moving
	Cold         float64 `json:"cold_request_fraction"`    // share of cache misses
	Moves        int     `json:"moves"`                    // of partitions
	Voluntary    int     `json:"voluntary_moves"`          // off workers that were up and staying
	Oscillations int     `json:"oscillations"`             // moves back to a worker within ten minutes
	// that the map forbids, or to a worker that has been down for long
	Invalid     int     `json:"invalid_moves"`
	Worst       float64 `json:"worst_utilisation"`         // of any worker at any time
	MeanHottest float64 `json:"mean_hottest_utilisation"`  // over time
	Suffering   float64 `json:"time_with_drops_over_1pct"` // share of the time
	// longest time from an event until drops stay below 1 % for half a minute
	Recovery float64 `json:"worst_recovery_s"`
	Samples  []Point `json:"samples,omitempty"` // one per half minute
}

// A Point is one moment of a run.
type Point struct {
	At      float64 `json:"t"`
	Drops   float64 `json:"drop_fraction"`
	Hottest float64 `json:"hottest_utilisation"`
	Gini    float64 `json:"gini"`
	Moves   int     `json:"moves"` // since the last point
}

// Run runs a cluster with a policy through a scenario. seed is added to that of the scenario.
func Run(s *Scenario, policy string, params balancer.Params, seed uint64) (Result, error) {
	seed += uint64(s.Seed)
	w := newWorld(s, seed)
	p, err := balancer.New(policy, w.describe(seed), params)
	if err != nil {
		return Result{}, err
	}
	m := newMeter(s, policy, seed)
	for at := 0.0; at < s.Duration; at += s.Step {
		w.live(at)
		t := w.serve(at)
		r := w.observe(at + s.Step)
		var moves []balancer.Move
		if !w.unbalanced(at) {
			moves = p.Decide(r)
		}
		bound := w.bound(at)
		for _, move := range moves {
			m.move(w, move, at+s.Step)
		}
		m.step(w, at, t, bound)
	}
	return m.result(), nil
}

// unbalanced reports whether the balancer is down.
func (w *world) unbalanced(at float64) bool {
	return slices.ContainsFunc(w.s.Events, func(e *Event) bool { return e.Kind == "balancer_down" && e.active(at) })
}

// A meter measures a run.
type meter struct {
	s   *Scenario
	out Result

	dropped, dead, handing, cold, lost float64
	steps, suffering                   int
	hottest                            float64

	point        Point
	pointOffered float64
	pointDropped float64
	shares       []float64 // shares of requests dropped in each step
}

func newMeter(s *Scenario, policy string, seed uint64) *meter {
	return &meter{s: s, out: Result{Policy: policy, Seed: seed}}
}

// move applies a move, unless it is invalid.
func (m *meter) move(w *world, move balancer.Move, at float64) {
	if move.Partition < 0 || move.Partition >= len(w.parts) || !slices.Contains(w.allowed[move.Partition], move.To) {
		m.out.Invalid++
		return
	}
	q := &w.parts[move.Partition]
	if q.worker == move.To {
		m.out.Invalid++
		return
	}
	q.homes = slices.DeleteFunc(q.homes, func(h home) bool { return h.left <= at-returnWithin })
	if counts := at >= m.s.Warmup; counts {
		m.out.Moves++
		m.point.Moves++
		if x := &w.workers[q.worker]; x.up && !x.draining {
			m.out.Voluntary++
		}
		if slices.ContainsFunc(q.homes, func(h home) bool { return h.worker == move.To }) {
			m.out.Oscillations++
		}
	}
	q.homes = append(q.homes, home{q.worker, at})
	q.worker, q.cold, q.handing = move.To, 1, true
}

// step records the results of a step.
func (m *meter) step(w *world, at float64, t tally, bound float64) {
	share := 0.0
	if t.offered > 0 {
		share = t.dropped / t.offered
	}
	m.shares = append(m.shares, share)
	m.pointOffered += t.offered
	m.pointDropped += t.dropped
	m.point.Hottest = max(m.point.Hottest, t.hottest)
	if math.Floor((at+m.s.Step)/30) > math.Floor(at/30) {
		m.sample(w, at+m.s.Step)
	}
	if at < m.s.Warmup {
		return
	}
	m.out.Offered += t.offered
	m.dropped += t.dropped
	m.dead += t.dead
	m.handing += t.handing
	m.cold += t.cold
	m.lost += bound
	m.hottest += t.hottest
	m.out.Worst = max(m.out.Worst, t.hottest)
	m.steps++
	if share > 0.01 {
		m.suffering++
	}
}

// sample completes a point of the chart.
func (m *meter) sample(w *world, at float64) {
	load := make([]float64, 0, len(w.workers))
	for i := range w.workers {
		if w.workers[i].up {
			load = append(load, w.workers[i].requests+w.workers[i].drops)
		}
	}
	m.point.At, m.point.Gini = at, balancer.Gini(load)
	if m.pointOffered > 0 {
		m.point.Drops = m.pointDropped / m.pointOffered
	}
	m.out.Samples = append(m.out.Samples, m.point)
	m.point, m.pointOffered, m.pointDropped = Point{}, 0, 0
}

func (m *meter) result() Result {
	o := &m.out
	if o.Offered > 0 {
		o.Drops, o.Dead, o.Handing = m.dropped/o.Offered, m.dead/o.Offered, m.handing/o.Offered
		o.Cold, o.Bound = m.cold/o.Offered, m.lost/o.Offered
	}
	if m.steps > 0 {
		o.MeanHottest = m.hottest / float64(m.steps)
		o.Suffering = float64(m.suffering) / float64(m.steps)
	}
	for _, e := range m.s.Events {
		o.Recovery = max(o.Recovery, m.recovery(e.At))
	}
	return m.out
}

// recovery returns how long after a time drops exceed 1 %, until they do not for half a minute.
func (m *meter) recovery(at float64) float64 {
	calm := max(1, int(30/m.s.Step))
	quiet, hurt := 0, false
	for i := int(at / m.s.Step); i < len(m.shares); i++ {
		if m.shares[i] <= 0.01 {
			quiet++
			if quiet == calm {
				if !hurt {
					return 0
				}
				return float64(i-calm+1)*m.s.Step - at
			}
			continue
		}
		quiet, hurt = 0, true
	}
	return m.s.Duration - at
}

// Excess returns the drops in addition to what no assignment could have served.
func (r Result) Excess() float64 { return max(0, r.Drops-r.Bound) }

// String tells the main figures, for logs.
func (r Result) String() string {
	return fmt.Sprintf("%s: %.3f %% dropped (bound %.3f %%), %d moves, %d back", r.Policy, 100*r.Drops, 100*r.Bound, r.Moves, r.Oscillations)
}
