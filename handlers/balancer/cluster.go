package balancer

import (
	"errors"
	"fmt"
	"math"
)

// A Cluster is what policies know before the first report.
type Cluster struct {
	// Seed is where the chance of policies that draw partitions begins.
	Seed uint64

	Workers    int
	Partitions int

	// Capacity is how much work each worker can do, in any unit; 0 means unknown. It
	// may be empty.
	Capacity []float64

	// Zone is where each worker stands. It may be empty.
	Zone []int

	// Allowed lists for each partition the workers that may hold it.
	Allowed [][]int

	// Assignment gives each partition its worker.
	Assignment []int

	// Step is the time between two reports, in seconds.
	Step float64
}

// Check says what makes no sense about the cluster.
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

// A Report is what is known of all workers at one moment. Counts are of the last
// step, or rates: policies compare them with each other only. What a worker that is
// not up reports is not looked at.
type Report struct {
	At float64 // seconds, growing

	Up       []bool // answered its healthcheck
	Draining []bool // is about to stop
	Gone     []bool // nothing listens where it was: it has ended. Empty where nobody looked

	Requests []float64 // served
	Drops    []float64 // not served for lack of capacity
	Busy     []float64 // share of the time spent working, 0 to 1
	Age      []float64 // seconds since the process started

	Weights    []float64 // requests for each partition; NaN when nobody told
	Assignment []int     // where each partition is now
}

// errEmpty refuses a report without workers.
var errEmpty = errors.New("up: want the state of each worker, have none")

// check says what makes no sense about a report, apart from the numbers of workers,
// which may be anything: workers lie.
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

// most bounds what a worker may claim; beyond it a number is a lie, and sums of
// such numbers would lose all others.
const most = 1e12

// clean makes a count usable; what cannot be one is 0.
func clean(x float64) float64 {
	if !(x > 0) {
		return 0
	}
	return min(x, most)
}

// share makes a share usable.
func share(x float64) float64 { return min(clean(x), 1) }

// A Move takes a partition to another worker.
type Move struct {
	Partition int    `json:"partition"`
	To        int    `json:"to"`
	Reason    string `json:"reason"`
}
