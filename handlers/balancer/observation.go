package balancer

import (
	"fmt"
	"math"
	"slices"

	"procaas/handlers/balancer/clusters"
	"procaas/handlers/balancer/language"
)

// An Observation describes a cluster at one moment. It is the response of balancer.observe, and a
// line of a recording.
type Observation struct {
	Cluster string  `json:"cluster"`
	At      float64 `json:"t"`       // Unix seconds
	Version int64   `json:"version"` // of the current assignment; 0 for none

	// Workers has those of the assignment first, in its order, then new ones.
	Workers []Observed `json:"workers"`

	Owners  []int      `json:"owners"`  // as in the assignment
	Weights []*float64 `json:"weights"` // requests per second per partition; null if not reported

	// The levers at the time of the decision: workers that serve nothing, and workers that are
	// being emptied.
	Banned   []string `json:"banned,omitempty"`
	Draining []string `json:"draining,omitempty"`
}

// An Observed describes one worker. Counts are rates per second.
type Observed struct {
	clusters.AssignedWorker

	Listed   bool     `json:"listed"`           // it is currently a worker of the cluster
	Up       bool     `json:"up"`               // it answered
	Gone     bool     `json:"gone,omitempty"`   // it did not answer, because nothing listens at its address
	Misses   int      `json:"misses,omitempty"` // healthchecks that it did not answer, if there were more than one
	Draining bool     `json:"draining,omitempty"`
	Requests *float64 `json:"requests,omitempty"`
	Drops    *float64 `json:"drops,omitempty"`
	Busy     *float64 `json:"busy,omitempty"`
	Age      *float64 `json:"age_s,omitempty"`

	// Problem is why it is not up, or why its report was ignored.
	Problem string `json:"problem,omitempty"`
}

// check returns an error for an observation that no balancer could have made. Missing owners mean
// that no worker has the partitions, and missing weights that none were reported.
func (o *Observation) check(c *language.Cluster) error {
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

// members lists the workers in the form of the map, and their indexes in the observation.
func (o *Observation) members() (members []language.ClusterWorker, places []int) {
	for i, w := range o.Workers {
		if w.Listed {
			members = append(members, language.ClusterWorker{ID: w.ID, URL: w.URL, Zone: w.Zone, Capacity: w.Capacity})
			places = append(places, i)
		}
	}
	return members, places
}

// assigned lists the workers in the form of the assignment.
func (o *Observation) assigned() []clusters.AssignedWorker {
	out := make([]clusters.AssignedWorker, len(o.Workers))
	for i, w := range o.Workers {
		out[i] = w.AssignedWorker
	}
	return out
}

// number returns a value that may be missing.
func number(x *float64) float64 {
	if x == nil {
		return math.NaN()
	}
	return *x
}

// report converts the observation for policies. A partition without a worker is shown at an allowed
// one, because policies know no other state.
func (o *Observation) report(allowed [][]int) *Report {
	n := len(o.Workers)
	r := &Report{
		At: o.At, Up: make([]bool, n), Draining: make([]bool, n), Gone: make([]bool, n), Requests: make([]float64, n), Drops: make([]float64, n),
		Busy: make([]float64, n), Age: make([]float64, n), Weights: make([]float64, len(o.Weights)), Assignment: make([]int, len(o.Owners)),
		Banned: make([]bool, n), Misses: make([]int, n),
	}
	for i, w := range o.Workers {
		r.Up[i] = w.Up
		r.Gone[i] = w.Gone
		r.Draining[i] = w.Draining
		r.Misses[i] = w.Misses
		r.Requests[i] = number(w.Requests)
		r.Drops[i] = number(w.Drops)
		r.Busy[i] = number(w.Busy)
		r.Age[i] = number(w.Age)
		for _, id := range o.Banned {
			if w.ID == id {
				r.Up[i], r.Banned[i] = false, true
			}
		}
		for _, id := range o.Draining {
			r.Draining[i] = r.Draining[i] || w.ID == id
		}
	}
	for p, x := range o.Weights {
		r.Weights[p] = number(x)
	}
	for p, w := range o.Owners {
		r.Assignment[p] = w
		if w >= 0 {
			continue
		}
		r.Assignment[p] = 0
		if len(allowed[p]) > 0 {
			r.Assignment[p] = allowed[p][0]
		}
	}
	return r
}

// paramsOf returns the parameters of a cluster.
func paramsOf(c *language.Cluster) Params {
	p := c.Parameters
	return Params{
		Cycle: p.Cycle.Seconds(), Overload: p.Overload, GiniHigh: p.GiniHigh, GiniLow: p.GiniLow, Friction: p.Friction,
		FrictionTime: p.FrictionTime.Seconds(), Horizon: p.Horizon.Seconds(), Margin: p.Margin, FixedCost: p.FixedCost,
		Budget: p.Budget, NoReturn: p.NoReturn.Seconds(),
	}
}
