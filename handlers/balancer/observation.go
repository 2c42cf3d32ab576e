package balancer

import (
	"fmt"
	"math"
	"slices"

	"procaas/dsl/tree"
	"procaas/engine/clusters"
)

// An Observation is what was seen of a cluster at one moment: the response of
// balancer.observe, and a line of a recording.
type Observation struct {
	Cluster string  `json:"cluster"`
	At      float64 `json:"t"`       // Unix seconds
	Version int64   `json:"version"` // of the assignment that held; 0 for none

	// Workers begin with those of the assignment, in its order; new ones follow.
	Workers []Observed `json:"workers"`

	Owners  []int      `json:"owners"`  // as in the assignment
	Weights []*float64 `json:"weights"` // requests a second by partition; null when nobody told

	// What levers said when it was decided about: workers that serve nothing, and
	// workers that are emptied.
	Banned   []string `json:"banned,omitempty"`
	Draining []string `json:"draining,omitempty"`
}

// An Observed is what was seen of one worker. Counts are rates: a second.
type Observed struct {
	clusters.AssignedWorker

	Listed   bool     `json:"listed"`         // as a worker of the cluster now
	Up       bool     `json:"up"`             // answered
	Gone     bool     `json:"gone,omitempty"` // did not, as nothing listens at its address
	Draining bool     `json:"draining,omitempty"`
	Requests *float64 `json:"requests,omitempty"`
	Drops    *float64 `json:"drops,omitempty"`
	Busy     *float64 `json:"busy,omitempty"`
	Age      *float64 `json:"age_s,omitempty"`

	// Problem is why it is not up, or why its report was not believed.
	Problem string `json:"problem,omitempty"`
}

// check says what makes an observation one that no balancer could have made. What is
// left out is that nobody has the partitions, and that nobody told their weights.
func (o *Observation) check(c *tree.Cluster) error {
	if o.Owners == nil {
		o.Owners = slices.Repeat([]int{-1}, c.Partitions)
	}
	if o.Weights == nil {
		o.Weights = make([]*float64, c.Partitions)
	}
	switch {
	case o.Cluster != c.ID:
		return fmt.Errorf("observation is of cluster %q, want %q", o.Cluster, c.ID)
	case !(o.At > 0) || math.IsInf(o.At, 0):
		return fmt.Errorf("observation: t: want Unix seconds, have %v", o.At)
	case len(o.Owners) != c.Partitions || len(o.Weights) != c.Partitions:
		return fmt.Errorf("observation: want owners and weights of %d partitions, have %d and %d", c.Partitions, len(o.Owners), len(o.Weights))
	}
	for p, w := range o.Owners {
		if w < -1 || w >= len(o.Workers) {
			return fmt.Errorf("observation: partition %d is on worker %d of %d", p, w, len(o.Workers))
		}
	}
	return nil
}

// members lists the workers as the map knows them, and the place in the observation of
// each.
func (o *Observation) members() (members []tree.ClusterWorker, places []int) {
	for i, w := range o.Workers {
		if w.Listed {
			members = append(members, tree.ClusterWorker{ID: w.ID, URL: w.URL, Zone: w.Zone, Capacity: w.Capacity})
			places = append(places, i)
		}
	}
	return members, places
}

// assigned lists the workers as the assignment keeps them.
func (o *Observation) assigned() []clusters.AssignedWorker {
	out := make([]clusters.AssignedWorker, len(o.Workers))
	for i, w := range o.Workers {
		out[i] = w.AssignedWorker
	}
	return out
}

// number reads a value that may be missing.
func number(x *float64) float64 {
	if x == nil {
		return math.NaN()
	}
	return *x
}

// report makes what policies look at. A partition that nobody has is shown where it
// might be: policies know no other state.
func (o *Observation) report(allowed [][]int) *Report {
	n := len(o.Workers)
	r := &Report{
		At: o.At, Up: make([]bool, n), Draining: make([]bool, n), Gone: make([]bool, n), Requests: make([]float64, n), Drops: make([]float64, n),
		Busy: make([]float64, n), Age: make([]float64, n), Weights: make([]float64, len(o.Weights)), Assignment: make([]int, len(o.Owners)),
	}
	for i, w := range o.Workers {
		r.Up[i], r.Gone[i], r.Draining[i] = w.Up, w.Gone, w.Draining
		r.Requests[i], r.Drops[i], r.Busy[i], r.Age[i] = number(w.Requests), number(w.Drops), number(w.Busy), number(w.Age)
		for _, id := range o.Banned {
			r.Up[i] = r.Up[i] && w.ID != id
		}
		for _, id := range o.Draining {
			r.Draining[i] = r.Draining[i] || w.ID == id
		}
	}
	for p, x := range o.Weights {
		r.Weights[p] = number(x)
	}
	for p, w := range o.Owners {
		if r.Assignment[p] = w; w >= 0 {
			continue
		}
		r.Assignment[p] = 0
		if len(allowed[p]) > 0 {
			r.Assignment[p] = allowed[p][0]
		}
	}
	return r
}

// ParamsOf reads the parameters of a cluster.
func ParamsOf(c *tree.Cluster) Params {
	p := c.Parameters
	return Params{
		Cycle: p.Cycle.Seconds(), Overload: p.Overload, GiniHigh: p.GiniHigh, GiniLow: p.GiniLow, Friction: p.Friction,
		FrictionTime: p.FrictionTime.Seconds(), Horizon: p.Horizon.Seconds(), Margin: p.Margin, FixedCost: p.FixedCost,
		Budget: p.Budget, NoReturn: p.NoReturn.Seconds(),
	}
}
