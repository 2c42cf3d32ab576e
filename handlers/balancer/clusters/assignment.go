package clusters

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"procaas/engine/store"
)

// DocumentAssignment is the kind of the documents with assignments. Their names are the ids of
// clusters.
const DocumentAssignment = "assignment"

// An Assignment says which worker of a cluster serves which partition.
type Assignment struct {
	Cluster string `json:"cluster"`

	// Version grows with each change. An older version never returns.
	Version int64 `json:"version" doc:"Grows with each change."`

	// Epoch is the number of the node that wrote it. A node that was considered dead has a lower
	// number than its successor, and is refused.
	Epoch int64 `json:"epoch" doc:"The node that made the assignment."`

	Changed time.Time `json:"changed" doc:"When it was made."` // by the store's clock

	// Workers keep their indexes: new ones are appended.
	Workers []AssignedWorker `json:"workers" doc:"All workers that ever held a partition. Their order never changes, and new workers are at the end."`

	Owners []int   `json:"owners" doc:"For each partition, the index of its worker in workers, or -1 for none."`
	Since  []int64 `json:"since" doc:"For each partition, the version that gave it to its worker: the fencing token of the worker."`

	// Lately lists the moves of the last minutes, oldest first, with their former owners.
	Lately []Moved `json:"lately,omitempty"`
}

// A Moved is a partition that moved between workers. Both are indexes into Workers, and From is -1
// for none.
type Moved struct {
	Partition int       `json:"partition"`
	From      int       `json:"from"`
	To        int       `json:"to"`
	At        time.Time `json:"at"`
}

// These bound [Assignment].Lately, which covers the time that a hand-off may wait for a silent
// former owner.
const (
	lately     = 10 * time.Minute
	mostLately = 20_000
)

// Next returns the next version of the assignment after moves. workers has the current workers, the
// known ones first. It ignores From of the moves.
func (a *Assignment) Next(workers []AssignedWorker, partitions int, moves []Moved, now time.Time) Assignment {
	next := Assignment{
		Cluster: a.Cluster, Version: a.Version + 1, Epoch: a.Epoch, Changed: now, Workers: workers,
		Owners: make([]int, partitions), Since: make([]int64, partitions),
	}
	for p := range partitions {
		next.Owners[p] = -1
		if p < len(a.Owners) {
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

// An AssignedWorker is a worker in an assignment.
type AssignedWorker struct {
	ID   string `json:"id"`
	URL  string `json:"url"`
	Zone string `json:"zone,omitempty"`

	// Capacity is the declared capacity. 0 means unknown.
	Capacity float64 `json:"capacity,omitempty"`
}

// Owner returns the worker of a partition. ok is false if there is none.
func (a *Assignment) Owner(partition int) (AssignedWorker, bool) {
	if partition < 0 || partition >= len(a.Owners) || a.Owners[partition] < 0 {
		return AssignedWorker{}, false
	}
	return a.Workers[a.Owners[partition]], true
}

// decodeAssignment decodes the assignment in a document.
func decodeAssignment(d store.Document) (Assignment, error) {
	var a Assignment
	if err := json.Unmarshal(d.Value, &a); err != nil {
		return a, fmt.Errorf("assignment of cluster %s: %w", d.Name, err)
	}
	a.Cluster = d.Name
	a.Version = d.Version
	a.Epoch = d.Node
	a.Changed = d.Changed
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

// Assignment reads the assignment of a cluster. The error is [store.ErrNotFound] before there is
// one.
func (a *Clusters) Assignment(ctx context.Context, cluster string) (Assignment, error) {
	d, err := a.store.Document(ctx, DocumentAssignment, cluster)
	if err != nil {
		return Assignment{}, err
	}
	return decodeAssignment(d)
}

// AwaitAssignment waits for an assignment of a cluster later than the given version, and reads it.
func (a *Clusters) AwaitAssignment(ctx context.Context, cluster string, after int64) (Assignment, error) {
	d, err := store.AwaitDocument(ctx, a.store, DocumentAssignment, cluster, after)
	if err != nil {
		return Assignment{}, err
	}
	return decodeAssignment(d)
}
