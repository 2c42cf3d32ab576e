// Package handoff moves partitions between workers, so that two workers never serve one partition
// at once, and none stays unserved.
//
// The stored assignment is the truth. The balancer's part brings the workers to it.
// [Settler.Prepare] lets workers load what they will gain. [Settler.Settle] takes partitions from
// workers that should not serve them, before it assigns them to their new owners. The workers' part
// is [Holder]. README.md describes the protocol.
package handoff

import (
	"fmt"
	"slices"
)

// These are the paths of a worker, below its URL.
const (
	Root        = "/handoff"
	PathPrepare = Root + "/prepare"
	PathWarm    = Root + "/warm"
	PathTake    = Root + "/take"
	PathRelease = Root + "/release"
)

// An Order tells a worker what to do with some partitions, according to an assignment. An order
// without partitions only tells the version.
type Order struct {
	Cluster    string `json:"cluster"`
	Version    int64  `json:"version"` // of the assignment
	Partitions []int  `json:"partitions"`
}

// A State is a worker's answer to each order, and to the question for its state.
type State struct {
	Cluster    string      `json:"cluster"`
	Version    int64       `json:"version"` // the newest that it knows; 0 for none
	Partitions []Partition `json:"partitions"`
}

// A Partition is a worker's state of one partition.
type Partition struct {
	Partition int   `json:"partition"`
	Phase     Phase `json:"phase"`
	Version   int64 `json:"version"` // of the order that brought it there
}

// A Phase says what a worker does with a partition.
type Phase string

// These are the phases, in order. Only a held partition is served.
const (
	Prepared  Phase = "prepared"  // it may come, and there is room for it
	Warming   Phase = "warming"   // it is being loaded
	Warm      Phase = "warm"      // it has been loaded, or cannot be
	Held      Phase = "held"      // its requests are served
	Releasing Phase = "releasing" // its last requests are in flight, new ones are refused
)

// find returns a partition of a state.
func (s *State) find(partition int) (Partition, bool) {
	i, ok := slices.BinarySearchFunc(s.Partitions, partition, func(p Partition, n int) int { return p.Partition - n })
	if !ok {
		return Partition{}, false
	}
	return s.Partitions[i], true
}

// An OutdatedError refuses an order of an older assignment than the worker knows. Its sender is no
// longer the balancer.
type OutdatedError struct {
	Order, Heard int64 // versions
}

// Error implements error.
func (e *OutdatedError) Error() string {
	return fmt.Sprintf("the order is by version %d of the assignment, and version %d has been heard of", e.Order, e.Heard)
}

// A MisdirectedError refuses an order for another worker, or an invalid one.
type MisdirectedError struct{ Reason string }

// Error implements error.
func (e *MisdirectedError) Error() string { return e.Reason }
