package plant

import (
	"slices"
	"sort"

	"procaas/handlers/balancer/clusters"
	"procaas/handlers/balancer/language"
)

const (
	// seconds before and after a moment whose reports show what a worker can do then
	around = 60

	// leastBusy is the share of busy time below which a report shows nothing about capacity.
	leastBusy = 0.1
)

// capacities are what workers can do at each observation, in requests per second; 0 if unknown.
type capacities struct {
	of     [][]float64
	known  bool
	source string // where they are known from, for people
}

// capacities estimates the capacities. It uses the median of what a worker served per busy second
// around the moment, or over the whole recording. A worker without data gets that of others with
// its declared capacity.
func (r *Recording) capacities() *capacities {
	c := &capacities{of: make([][]float64, len(r.seen)), source: "the workers showed that they can do"}
	for i := range c.of {
		c.of[i] = make([]float64, len(r.workers))
	}
	members := make([]language.ClusterWorker, len(r.workers))
	for w, x := range r.workers {
		members[w].Capacity = x.Capacity
	}
	declared := language.Capacities(members)
	var ratios []float64
	unseen := []int{}
	for w := range r.workers {
		at, can := r.shown(w)
		if len(can) == 0 {
			unseen = append(unseen, w)
			continue
		}
		overall := median(can)
		ratios = append(ratios, overall/declared[w])
		for i := range r.seen {
			from := sort.SearchFloat64s(at, r.seen[i].At-around)
			to := sort.SearchFloat64s(at, r.seen[i].At+around)
			c.of[i][w] = overall
			if to > from {
				c.of[i][w] = median(can[from:to])
			}
		}
	}
	unit := 1.0
	switch {
	case len(ratios) > 0:
		unit = median(ratios)
	case slices.ContainsFunc(r.about.Workers, func(w clusters.AssignedWorker) bool { return !(w.Capacity > 0) }):
		c.source = "is known of the workers' capacities, which is nothing: no worker told busy, and not all have a declared capacity"
		return c
	default:
		c.source = "is declared of the workers, in requests a second: none told how busy it was"
	}
	c.known = true
	for _, w := range unseen {
		for i := range c.of {
			c.of[i][w] = unit * declared[w]
		}
	}
	return c
}

// shown lists when a worker showed its capacity, and the capacity.
func (r *Recording) shown(w int) (at, can []float64) {
	for i := range r.seen {
		x := &r.seen[i].Workers[w]
		if busy := min(told(x.Busy), 1); x.Up && busy >= leastBusy && told(x.Requests) > 0 {
			at, can = append(at, r.seen[i].At), append(can, told(x.Requests)/busy)
		}
	}
	return at, can
}

func median(list []float64) float64 {
	sorted := slices.Sorted(slices.Values(list))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
