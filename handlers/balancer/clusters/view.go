package clusters

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"procaas/engine/store"
	"procaas/handlers/balancer/language"
)

// A ClusterView is a cluster in the form for people.
type ClusterView struct {
	ID         string    `json:"id"`
	Owner      string    `json:"owner,omitempty"`
	Policy     string    `json:"policy"`
	Partitions int       `json:"partitions"`
	Version    int64     `json:"version" doc:"The version of the assignment; 0 before the first."`
	Epoch      int64     `json:"epoch" doc:"The node that made the assignment."`
	Unassigned int       `json:"unassigned" doc:"The number of partitions without a worker."`
	Gini       float64   `json:"gini" doc:"The Gini index of the weights of the workers: 0 is even, 1 is uneven."`
	Requests   float64   `json:"requests" doc:"Served requests per second."`
	Drops      float64   `json:"drops" doc:"Dropped requests per second."`
	Moves      int       `json:"moves" doc:"The number of moves since the cluster began."`
	BestLoad   float64   `json:"best_load" doc:"A lower bound of the highest load of a worker, relative to an even load. It is the best that the map and the live workers allow if all partitions have the same weight, computed by maximum flow."`
	Observed   time.Time `json:"observed,omitzero" doc:"The time of the last observation."`
	Alerts     []string  `json:"alerts" doc:"Problems that need a person."`

	// Failure is why the last tick failed. It is absent if the last one has succeeded.
	Failure *TickFailure `json:"failure,omitempty" doc:"Why the last run of the balancer's pipeline failed; absent if it has succeeded."`

	Workers []Seen    `json:"workers"`
	Levers  Levers    `json:"levers" doc:"The levers that people have set."`
	Would   []MoveLog `json:"would,omitempty" doc:"Moves that a dry run decided and did not make."`
}

// A PartitionView explains why a partition is where it is.
type PartitionView struct {
	Cluster   string    `json:"cluster"`
	Partition int       `json:"partition"`
	Worker    string    `json:"worker,omitempty" doc:"The worker that serves it; absent if none does."`
	Since     int64     `json:"since" doc:"The version of the assignment that moved it there."`
	Weight    float64   `json:"weight" doc:"Requests per second."`
	Share     float64   `json:"share" doc:"Its share of the weight of its worker."`
	Holders   []Holder  `json:"holders" doc:"The workers that the map allows."`
	Pin       *Lever    `json:"pin,omitempty"`
	Moves     []MoveLog `json:"moves" doc:"Its latest moves, newest last."`
	Notes     []string  `json:"notes" doc:"The facts that decide about it now."`
}

// A Holder is a worker that may hold a partition.
type Holder struct {
	Worker   string  `json:"worker"`
	Zone     string  `json:"zone,omitempty"`
	Up       bool    `json:"up"`
	Draining bool    `json:"draining,omitempty" doc:"true if the worker drains. It gets no partitions."`
	Banned   bool    `json:"banned,omitempty" doc:"true if the worker must serve nothing."`
	Weight   float64 `json:"weight" doc:"The weight of its partitions."`
	Holds    bool    `json:"holds"`
}

// View returns the view.
func (s *ClusterStatus) View() ClusterView {
	v := ClusterView{
		ID: s.Cluster.ID, Owner: s.Cluster.Owner, Policy: s.Cluster.Policy, Partitions: s.Cluster.Partitions,
		Version: s.Assignment.Version, Epoch: s.Assignment.Epoch, Unassigned: s.Cluster.Partitions - len(s.Assignment.Owners),
		Gini: s.State.Gini, Requests: s.State.Requests, Drops: s.State.Drops, Moves: s.State.Moves, Observed: s.State.Time,
		Alerts: append([]string{}, s.State.Alerts...), Workers: append([]Seen{}, s.State.Workers...), Levers: s.Levers, Would: s.State.Would,
	}
	for _, w := range s.Assignment.Owners {
		if w < 0 {
			v.Unassigned++
		}
	}
	v.BestLoad = s.bestLoad()
	v.Levers.Warnings = s.warnings(s.Levers)
	return v
}

// bestLoad is the bound by the map with the workers that are up, or with all of them before the
// first observation.
func (s *ClusterStatus) bestLoad() float64 {
	const few = 2000 // partitions up to which it is computed for each view
	members := s.Members()
	if len(members) == 0 || s.Cluster.Partitions > few {
		return 0
	}
	up := s.seen()
	return language.BestLoad(language.Holders(s.Cluster, members), language.Capacities(members), func(i int) bool {
		w, known := up[members[i].ID]
		return known && (!w.Up || w.Banned)
	})
}

func (s *ClusterStatus) seen() map[string]Seen {
	seen := map[string]Seen{}
	for _, w := range s.State.Workers {
		seen[w.ID] = w
	}
	return seen
}

// ExplainPartition explains why a partition is where it is. The error is [ErrNoCluster], or
// [store.ErrNotFound] if the cluster has no such partition.
func (a *Clusters) ExplainPartition(ctx context.Context, cluster string, partition int) (PartitionView, error) {
	s, err := a.ClusterStatus(ctx, cluster)
	if err != nil {
		return PartitionView{}, err
	}
	if partition < 0 || partition >= s.Cluster.Partitions {
		return PartitionView{}, store.ErrNotFound
	}
	moves, err := ReadMoves(ctx, a.store, cluster)
	if err != nil {
		return PartitionView{}, err
	}
	return s.explain(partition, moves), nil
}

func (s *ClusterStatus) explain(p int, moves []MoveLog) PartitionView {
	v := PartitionView{Cluster: s.Cluster.ID, Partition: p, Holders: []Holder{}, Moves: []MoveLog{}, Notes: []string{}}
	if w, ok := s.Assignment.Owner(p); ok {
		v.Worker, v.Since = w.ID, s.Assignment.Since[p]
	}
	if p < len(s.State.Weights) {
		v.Weight = s.State.Weights[p]
	}
	for _, m := range moves {
		if m.Partition == p {
			v.Moves = append(v.Moves, m)
		}
	}
	seen := s.seen()
	if w := seen[v.Worker]; w.Weight > 0 {
		v.Share = min(v.Weight/w.Weight, 1)
	}
	members := s.Members()
	up := 0
	for _, i := range language.Holders(s.Cluster, members)[p] {
		w := seen[members[i].ID]
		if w.Up && !w.Banned {
			up++
		}
		v.Holders = append(v.Holders, Holder{
			Worker: members[i].ID, Zone: members[i].Zone, Up: w.Up, Draining: w.Draining, Banned: w.Banned, Weight: w.Weight,
			Holds: members[i].ID == v.Worker,
		})
	}
	if pin, ok := s.Levers.Pins[p]; ok {
		v.Pin = &pin
	}
	v.Notes = s.notes(&v, up)
	return v
}

// notes lists what determines the place of a partition.
func (s *ClusterStatus) notes(v *PartitionView, up int) []string {
	notes := []string{}
	note := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	switch {
	case s.Assignment.Version == 0:
		note("nothing has been assigned yet")
	case v.Worker == "" && len(v.Holders) == 0:
		note("no worker may hold it")
	case v.Worker == "":
		note("no worker has it")
	case len(v.Moves) == 0:
		note("it is on %s since version %d", v.Worker, v.Since)
	default:
		last := v.Moves[len(v.Moves)-1]
		note("it came to %s by version %d at %s: %s", last.To, last.Version, last.At.Format(time.RFC3339), last.Reason)
	}
	switch own, known := s.seen()[v.Worker]; {
	case !known:
	case own.Banned:
		note("%s is banned, and is to serve nothing", own.ID)
	case !own.Up:
		note("%s does not answer: %s", own.ID, cmp.Or(own.Problem, "nobody knows why"))
	case own.Draining:
		note("%s is emptied, the heaviest partitions first", own.ID)
	}
	if v.Pin != nil {
		note("%s has pinned it to %s: %s", v.Pin.By, v.Pin.Worker, v.Pin.Reason)
	}
	if v.Pin != nil && s.pinWarning(v.Partition, s.Levers) != "" {
		note("%s", s.pinWarning(v.Partition, s.Levers))
	}
	if l := s.Levers.Frozen; l != nil {
		note("nothing moves: %s has frozen the cluster: %s", l.By, l.Reason)
	}
	if l := s.Levers.Evacuate; l != nil {
		note("silent workers are left as usual, even if half of the cluster is silent: %s: %s", l.By, l.Reason)
	}
	if l := s.Levers.DryRun; l != nil {
		note("moves are decided and not made: %s: %s", l.By, l.Reason)
	}
	if own := s.seen()[v.Worker]; up == 1 && own.Up && !own.Banned {
		note("it can go nowhere else: of the %d workers that may hold it, one is up", len(v.Holders))
	}
	if v.Share > 0.5 && len(s.State.Workers) > 1 {
		note("it is %.0f %% of what its worker has: its neighbours move rather than itself", 100*v.Share)
	}
	for _, w := range s.State.Would {
		if w.Partition == v.Partition {
			note("a dry run would move it to %s: %s", w.To, w.Reason)
		}
	}
	return notes
}
