package balancer

import (
	"errors"
	"fmt"
	"math"
)

// A Cluster is what policies know before the first report.
type Cluster struct {
	// Seed is the random seed of policies that choose partitions at random.
	Seed uint64

	Workers    int
	Partitions int

	// Capacity is how much work each worker can do, in any unit. 0 means unknown. It may be empty.
	Capacity []float64

	// Zone is the zone of each worker. It may be empty.
	Zone []int

	// Allowed lists for each partition the workers that may hold it.
	Allowed [][]int

	// Assignment is the worker of each partition.
	Assignment []int

	// Step is the time between two reports, in seconds.
	Step float64
}

// Check returns an error if the cluster is invalid.
func (c *Cluster) Check() error {
	switch {
	case c.Workers < 1 || c.Partitions < 1:
		return fmt.Errorf("want 1 worker and 1 partition or more, have %d and %d", c.Workers, c.Partitions)
	case !(c.Step > 0) || math.IsInf(c.Step, 0):
		return fmt.Errorf("step_s: want seconds above 0, have %v", c.Step)
	case len(c.Capacity) != 0 && len(c.Capacity) != c.Workers:
		return fmt.Errorf("capacity: want one for each of %d workers or none, have %d", c.Workers, len(c.Capacity))
	case len(c.Zone) != 0 && len(c.Zone) != c.Workers:
		return fmt.Errorf("zone: want one for each of %d workers or none, have %d", c.Workers, len(c.Zone))
	case len(c.Allowed) != c.Partitions:
		return fmt.Errorf("allowed: want a list for each of %d partitions, have %d", c.Partitions, len(c.Allowed))
	}
	for p, workers := range c.Allowed {
		seen := map[int]bool{}
		for _, w := range workers {
			if w < 0 || w >= c.Workers || seen[w] {
				return fmt.Errorf("allowed: partition %d: want different workers from 0 to %d, have %v", p, c.Workers-1, workers)
			}
			seen[w] = true
		}
	}
	return c.checkAssignment(c.Assignment)
}

func (c *Cluster) checkAssignment(assignment []int) error {
	if len(assignment) != c.Partitions {
		return fmt.Errorf("assignment: want a worker for each of %d partitions, have %d", c.Partitions, len(assignment))
	}
	for p, w := range assignment {
		if w < 0 || w >= c.Workers {
			return fmt.Errorf("assignment: partition %d: want a worker from 0 to %d, have %d", p, c.Workers-1, w)
		}
	}
	return nil
}

// A Report describes all workers at one moment. Counts are of the last step, or rates: policies
// only compare them with each other. Reports of workers that are not up are ignored.
type Report struct {
	At float64 // seconds, increasing

	Up       []bool // answered its healthcheck
	Draining []bool // is about to stop
	Gone     []bool // nothing listens at its address: it has ended. Empty if nobody checked
	Banned   []bool // people let it serve nothing, so it counts as not up. Empty for none
	Evacuate bool   // people know that silent workers have died, even if half of the cluster is silent
	Misses   []int  // unanswered healthchecks of this report, at least 1 if it is not up. Empty if nobody asked twice

	Requests []float64 // served
	Drops    []float64 // not served because of missing capacity
	Busy     []float64 // share of the time spent working, 0 to 1
	Age      []float64 // seconds since the start of the process

	Weights    []float64 // requests per partition; NaN if not reported
	Assignment []int     // current worker of each partition
}

// gone reports whether nothing listens at a worker's address.
func (r *Report) gone(w int) bool { return len(r.Gone) > 0 && r.Gone[w] && !r.Up[w] }

// banned reports whether a worker may serve nothing.
func (r *Report) banned(w int) bool { return len(r.Banned) > 0 && r.Banned[w] }

// misses returns how many healthchecks a silent worker has not answered.
func (r *Report) misses(w int) int {
	if len(r.Misses) == 0 {
		return 1
	}
	return max(1, r.Misses[w])
}

// errEmpty refuses a report without workers.
var errEmpty = errors.New("up: want the state of each worker, have none")

// check returns an error if a report is invalid. It accepts any numbers of workers, because workers
// may report nonsense.
func (r *Report) check(c *Cluster) error {
	if len(r.Up) == 0 {
		return errEmpty
	}
	if n := len(r.Gone); n != 0 && n != c.Workers {
		return fmt.Errorf("gone: want a value for each of %d workers or none, have %d", c.Workers, n)
	}
	for name, n := range map[string]int{
		"up": len(r.Up), "draining": len(r.Draining), "requests": len(r.Requests), "drops": len(r.Drops),
		"busy": len(r.Busy), "age_s": len(r.Age),
	} {
		if n != c.Workers {
			return fmt.Errorf("%s: want a value for each of %d workers, have %d", name, c.Workers, n)
		}
	}
	if len(r.Weights) != c.Partitions {
		return fmt.Errorf("weights: want a value or null for each of %d partitions, have %d", c.Partitions, len(r.Weights))
	}
	return c.checkAssignment(r.Assignment)
}

// most bounds what a worker may report. A larger number is nonsense, and sums with it would lose
// all others.
const most = 1e12

// clean returns a usable count. Nonsense becomes 0.
func clean(x float64) float64 {
	if !(x > 0) {
		return 0
	}
	return min(x, most)
}

// share makes a share usable.
func share(x float64) float64 { return min(clean(x), 1) }

// A Move moves a partition to another worker.
type Move struct {
	Partition int    `json:"partition"`
	To        int    `json:"to"`
	Reason    string `json:"reason"`
}
