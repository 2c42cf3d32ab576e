package clusters

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"procaas/engine/store"
)

// DocumentAssignment is the kind of the documents that hold assignments, by the ids of
// clusters.
const DocumentAssignment = "assignment"

// An Assignment says which worker of a cluster serves which partition.
type Assignment struct {
	Cluster string `json:"cluster"`

	// Version grows with each change; nobody ever goes back to an older one.
	Version int64 `json:"version"`

	// Epoch is the node that has made it: a node that was taken for dead has a
	// smaller one than whoever has taken over, and is refused.
	Epoch int64 `json:"epoch"`

	Changed time.Time `json:"changed"` // by the store's clock

	// Workers keep their places: new ones come at the end.
	Workers []AssignedWorker `json:"workers"`

	Owners []int   `json:"owners"` // for each partition, the place of its worker; -1 for nobody
	Since  []int64 `json:"since"`  // the version by which each partition came to its owner

	// Lately lists the moves of the last minutes, the oldest first, with their former
	// owners.
	Lately []Moved `json:"lately,omitempty"`
}

// A Moved is a partition that went from one worker to another; both are places in
// Workers, From is -1 for nobody.
type Moved struct {
	Partition int       `json:"partition"`
	From      int       `json:"from"`
	To        int       `json:"to"`
	At        time.Time `json:"at"`
}

// The bounds of what [Assignment].Lately holds: for as long as a hand-off may wait for a
// former owner that is silent.
const (
	lately     = 10 * time.Minute
	mostLately = 20_000
)

// Next returns the assignment that follows when partitions move, of the next version.
// The workers are the present ones, of which the first are those that were known
// before; From of the moves is not looked at.
func (a *Assignment) Next(workers []AssignedWorker, partitions int, moves []Moved, now time.Time) Assignment {
	next := Assignment{
		Cluster: a.Cluster, Version: a.Version + 1, Epoch: a.Epoch, Changed: now, Workers: workers,
		Owners: make([]int, partitions), Since: make([]int64, partitions),
	}
	for p := range partitions {
		if next.Owners[p] = -1; p < len(a.Owners) {
			next.Owners[p], next.Since[p] = a.Owners[p], a.Since[p]
		}
	}
	for _, m := range a.Lately {
		if now.Sub(m.At) < lately {
			next.Lately = append(next.Lately, m)
		}
	}
	for _, m := range moves {
		m.From, m.At = next.Owners[m.Partition], now
		next.Owners[m.Partition], next.Since[m.Partition] = m.To, next.Version
		next.Lately = append(next.Lately, m)
	}
	next.Lately = next.Lately[max(0, len(next.Lately)-mostLately):]
	return next
}

// An AssignedWorker is a worker as the assignment knows it.
type AssignedWorker struct {
	ID   string `json:"id"`
	URL  string `json:"url"`
	Zone string `json:"zone,omitempty"`

	// Capacity is how much it can do, as it is declared; 0 when it is not known.
	Capacity float64 `json:"capacity,omitempty"`
}

// Owner returns the worker of a partition; false when nobody has it.
func (a *Assignment) Owner(partition int) (AssignedWorker, bool) {
	if partition < 0 || partition >= len(a.Owners) || a.Owners[partition] < 0 {
		return AssignedWorker{}, false
	}
	return a.Workers[a.Owners[partition]], true
}

// DecodeAssignment reads the assignment in a document.
func DecodeAssignment(d store.Document) (Assignment, error) {
	var a Assignment
	if err := json.Unmarshal(d.Value, &a); err != nil {
		return a, fmt.Errorf("assignment of cluster %s: %w", d.Name, err)
	}
	a.Cluster, a.Version, a.Epoch, a.Changed = d.Name, d.Version, d.Node, d.Changed
	if len(a.Since) != len(a.Owners) {
		return a, fmt.Errorf("assignment of cluster %s: %d partitions have owners, %d have a version", d.Name, len(a.Owners), len(a.Since))
	}
	for p, w := range a.Owners {
		if w < -1 || w >= len(a.Workers) {
			return a, fmt.Errorf("assignment of cluster %s: partition %d is on worker %d of %d", d.Name, p, w, len(a.Workers))
		}
	}
	return a, nil
}

// Assignment reads the assignment of a cluster; [store.ErrNotFound] before there is one.
func (a *Clusters) Assignment(ctx context.Context, cluster string) (Assignment, error) {
	d, err := a.store.Document(ctx, DocumentAssignment, cluster)
	if err != nil {
		return Assignment{}, err
	}
	return DecodeAssignment(d)
}

// AwaitAssignment waits until a cluster has a later assignment than the given version,
// and reads it.
func (a *Clusters) AwaitAssignment(ctx context.Context, cluster string, after int64) (Assignment, error) {
	d, err := store.AwaitDocument(ctx, a.store, DocumentAssignment, cluster, after)
	if err != nil {
		return Assignment{}, err
	}
	return DecodeAssignment(d)
}
