// Package handoff lets partitions move from worker to worker, so that no two serve one
// partition at once and none is left without anybody.
//
// The assignment that is stored is the truth. The balancer's half of this package brings
// the workers to it: [Prepare] lets those load what they are about to gain, and [Settle]
// takes from each what is not its own any more before it gives it to the new owner. The
// workers' half is [Holder]. README.md tells the protocol.
package handoff

import (
	"fmt"
	"slices"
)

// The paths at which a worker takes part, below its URL.
const (
	Root        = "/handoff"
	PathPrepare = Root + "/prepare"
	PathWarm    = Root + "/warm"
	PathTake    = Root + "/take"
	PathRelease = Root + "/release"
)

// An Order is what a worker is told to do with some partitions, by an assignment. An order
// without partitions only tells the version.
type Order struct {
	Cluster    string `json:"cluster"`
	Version    int64  `json:"version"` // of the assignment
	Partitions []int  `json:"partitions"`
}

// A State is what a worker answers to each order, and to who asks what it holds.
type State struct {
	Cluster    string      `json:"cluster"`
	Version    int64       `json:"version"` // the newest that it has heard of; 0 for none
	Partitions []Partition `json:"partitions"`
}

// A Partition is where one partition stands with a worker that has to do with it.
type Partition struct {
	Partition int   `json:"partition"`
	Phase     Phase `json:"phase"`
	Version   int64 `json:"version"` // of the order that brought it there
}

// A Phase says what a worker does about a partition.
type Phase string

// The phases, in the order in which a partition goes through them. Only one that is held
// is served.
const (
	Prepared  Phase = "prepared"  // it may come, and there is room for it
	Warming   Phase = "warming"   // what it needs is being loaded
	Warm      Phase = "warm"      // that has been done, or cannot be
	Held      Phase = "held"      // its requests are served
	Releasing Phase = "releasing" // its last requests are under way, new ones are refused
)

// find returns what a state says of a partition.
func (s *State) find(partition int) (Partition, bool) {
	i, ok := slices.BinarySearchFunc(s.Partitions, partition, func(p Partition, n int) int { return p.Partition - n })
	if !ok {
		return Partition{}, false
	}
	return s.Partitions[i], true
}

// An OutdatedError refuses an order of an older assignment than the worker has heard of:
// whoever gave it is not the balancer any more.
type OutdatedError struct {
	Order, Heard int64 // versions
}

// Error implements error.
func (e *OutdatedError) Error() string {
	return fmt.Sprintf("the order is by version %d of the assignment, and version %d has been heard of", e.Order, e.Heard)
}

// A MisdirectedError refuses an order that is not for this worker, or makes no sense.
type MisdirectedError struct{ Reason string }

// Error implements error.
func (e *MisdirectedError) Error() string { return e.Reason }
