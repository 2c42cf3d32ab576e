package clusters

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"procaas/dsl/cluster"
	"procaas/dsl/diag"
	"procaas/dsl/tree"
	"procaas/engine/model"
	"procaas/engine/store"
)

// The kinds of the documents that the balancer keeps of clusters, by their ids, besides
// [DocumentAssignment].
const (
	DocumentLevers       = "levers"
	DocumentClusterState = "cluster-state"
	DocumentMoves        = "moves"
	DocumentObservation  = "observation" // CLUSTER/PLACE, a ring of the last ones
)

// Levers are what people tell the balancer of a cluster.
type Levers struct {
	Banned   map[string]Lever `json:"banned,omitempty"`   // workers that serve nothing
	Draining map[string]Lever `json:"draining,omitempty"` // workers that are emptied, in good order
	Zones    map[string]Lever `json:"zones,omitempty"`    // zones that are
	Pins     map[int]Lever    `json:"pins,omitempty"`     // partitions that stay on a worker
	Frozen   *Lever           `json:"frozen,omitempty"`   // nothing moves at all
	DryRun   *Lever           `json:"dry_run,omitempty"`  // moves are decided, and not made

	// Warnings are made for those who look, from all the levers together: none is kept.
	Warnings []string `json:"warnings,omitempty" doc:"Pins that contradict a ban or drain of their worker, and which of the two applies."`
}

// A Lever is one of them, with who has pulled it.
type Lever struct {
	Worker string    `json:"worker,omitempty"` // of a pin
	By     string    `json:"by"`
	Reason string    `json:"reason"`
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until,omitzero"` // when it ends by itself; zero for never
}

// over reports whether a lever has ended.
func (l Lever) over(now time.Time) bool { return !l.Until.IsZero() && !now.Before(l.Until) }

// At returns the levers that hold at a time.
func (l Levers) At(now time.Time) Levers {
	live := func(m map[string]Lever) map[string]Lever {
		out := maps.Clone(m)
		maps.DeleteFunc(out, func(_ string, l Lever) bool { return l.over(now) })
		return out
	}
	one := func(l *Lever) *Lever {
		if l == nil || l.over(now) {
			return nil
		}
		return l
	}
	pins := maps.Clone(l.Pins)
	maps.DeleteFunc(pins, func(_ int, l Lever) bool { return l.over(now) })
	return Levers{
		Banned: live(l.Banned), Draining: live(l.Draining), Zones: live(l.Zones), Pins: pins, Frozen: one(l.Frozen), DryRun: one(l.DryRun),
	}
}

// The names of levers.
const (
	LeverBan    = "ban"
	LeverDrain  = "drain"
	LeverPin    = "pin"
	LeverFreeze = "freeze"
	LeverDryRun = "dry-run"
)

// LeverNames lists them.
func LeverNames() []string { return []string{LeverBan, LeverDrain, LeverPin, LeverFreeze, LeverDryRun} }

// A LeverPull is a wish to pull a lever, or to let it go.
type LeverPull struct {
	Lever     string
	Worker    string
	Zone      string
	Partition int // of a pin; -1 for none
	Until     time.Time
	Release   bool
}

// A ClusterState is what the balancer made of its last observation.
type ClusterState struct {
	At       float64   `json:"t"` // of the observation; Unix seconds
	Time     time.Time `json:"time"`
	Policy   string    `json:"policy"`
	Gini     float64   `json:"gini"`
	Requests float64   `json:"requests"` // a second, over the cluster
	Drops    float64   `json:"drops"`
	Decided  int       `json:"decided"`           // observations that were decided about
	Moves    int       `json:"moves"`             // made since the cluster began
	Dropped  float64   `json:"dropped"`           // requests, since then
	Would    []MoveLog `json:"would,omitempty"`   // what a dry run would have moved last
	Alerts   []string  `json:"alerts,omitempty"`  // what a person should look at
	Workers  []Seen    `json:"workers"`           // in the order of the assignment
	Weights  []float64 `json:"weights,omitempty"` // requests a second by partition, as known last
}

// A Seen is what was seen of a worker last.
type Seen struct {
	ID         string  `json:"id"`
	Zone       string  `json:"zone,omitempty"`
	Up         bool    `json:"up"`
	Draining   bool    `json:"draining,omitempty"`
	Banned     bool    `json:"banned,omitempty"`
	Partitions int     `json:"partitions"`
	Requests   float64 `json:"requests"`
	Drops      float64 `json:"drops"`
	Busy       float64 `json:"busy"`
	Weight     float64 `json:"weight"` // of its partitions
	Problem    string  `json:"problem,omitempty"`
}

// A MoveLog is one move of a partition, as people read it.
type MoveLog struct {
	At        time.Time `json:"at"`
	Version   int64     `json:"version"` // of the assignment that it made
	Partition int       `json:"partition"`
	From      string    `json:"from,omitempty"`
	To        string    `json:"to"`
	Reason    string    `json:"reason"`
}

// A ClusterStatus is all that is known of a cluster.
type ClusterStatus struct {
	Cluster    *tree.Cluster
	Assignment Assignment   // of version 0 before there is one
	Levers     Levers       // that hold now
	State      ClusterState // the zero value before the first decision
}

// ErrNoCluster reports that no cluster of this id is declared.
var ErrNoCluster = errors.New("no such cluster")

// A LeverError says why a lever cannot be pulled.
type LeverError struct{ problem string }

func (e *LeverError) Error() string { return e.problem }

func leverError(format string, args ...any) error { return &LeverError{fmt.Sprintf(format, args...)} }

// readDocument decodes a document; into stays as it is when there is none. It returns the
// version, 0 for none.
func readDocument(ctx context.Context, db store.Documents, kind, name string, into any) (int64, error) {
	d, err := db.Document(ctx, kind, name)
	if errors.Is(err, store.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if err := json.Unmarshal(d.Value, into); err != nil {
		return 0, fmt.Errorf("%s of cluster %s: %w", kind, name, err)
	}
	return d.Version, nil
}

// ReadLevers returns the levers of a cluster that hold at a time.
func ReadLevers(ctx context.Context, store store.Documents, cluster string, now time.Time) (Levers, error) {
	var l Levers
	_, err := readDocument(ctx, store, DocumentLevers, cluster, &l)
	return l.At(now), err
}

// ReadClusterState returns what the balancer decided last, and the version of the document.
func ReadClusterState(ctx context.Context, store store.Documents, cluster string) (s ClusterState, version int64, err error) {
	version, err = readDocument(ctx, store, DocumentClusterState, cluster, &s)
	return s, version, err
}

// ReadAssignment returns the assignment of a cluster; that of version 0, without workers,
// before there is one.
func ReadAssignment(ctx context.Context, db store.Documents, cluster string) (Assignment, error) {
	d, err := db.Document(ctx, DocumentAssignment, cluster)
	if errors.Is(err, store.ErrNotFound) {
		return Assignment{Cluster: cluster}, nil
	}
	if err != nil {
		return Assignment{}, err
	}
	return DecodeAssignment(d)
}

// ReadMoves returns the last moves of a cluster, the oldest first.
func ReadMoves(ctx context.Context, store store.Documents, cluster string) ([]MoveLog, error) {
	var moves []MoveLog
	_, err := readDocument(ctx, store, DocumentMoves, cluster, &moves)
	return moves, err
}

// Clusters shows the clusters of balancers, and pulls their levers.
type Clusters struct {
	store  store.Documents
	bundle func() *tree.Bundle // the present definition
	now    func() time.Time    // by the store's clock
}

// NewClusters looks at clusters of the definition that bundle gives.
func NewClusters(db store.Documents, bundle func() *tree.Bundle, now func() time.Time) *Clusters {
	return &Clusters{store: db, bundle: bundle, now: now}
}

// ClusterStatus reads what is known of a cluster; [ErrNoCluster].
func (a *Clusters) ClusterStatus(ctx context.Context, cluster string) (s ClusterStatus, err error) {
	if s.Cluster = a.bundle().Cluster(cluster); s.Cluster == nil {
		return s, ErrNoCluster
	}
	if s.Assignment, err = ReadAssignment(ctx, a.store, cluster); err != nil {
		return s, err
	}
	if s.Levers, err = ReadLevers(ctx, a.store, cluster, a.now()); err != nil {
		return s, err
	}
	s.State, _, err = ReadClusterState(ctx, a.store, cluster)
	return s, err
}

// ClusterMoves reads the last moves of a cluster, the oldest first; [ErrNoCluster].
func (a *Clusters) ClusterMoves(ctx context.Context, cluster string) ([]MoveLog, error) {
	if a.bundle().Cluster(cluster) == nil {
		return nil, ErrNoCluster
	}
	return ReadMoves(ctx, a.store, cluster)
}

// leverTries bounds how often a lever is pulled again when somebody else pulls one at
// the same time.
const leverTries = 20

// PullLever pulls a lever of a cluster, or lets it go, with its audit record. The error
// is [ErrNoCluster], a [*LeverError], or [store.ErrNotFound] when a lever is let go that
// nobody holds.
func (a *Clusters) PullLever(ctx context.Context, cluster string, pull LeverPull, by store.Actor) (Levers, error) {
	status, err := a.ClusterStatus(ctx, cluster)
	if err != nil {
		return Levers{}, err
	}
	name, err := status.checkPull(pull)
	if err != nil {
		return Levers{}, err
	}
	now := a.now()
	if !pull.Until.IsZero() && !pull.Until.After(now) {
		return Levers{}, leverError("until must be in the future, have %s", pull.Until.Format(time.RFC3339))
	}
	for try := 1; ; try++ {
		var all Levers
		version, err := readDocument(ctx, a.store, DocumentLevers, cluster, &all)
		if err != nil {
			return Levers{}, err
		}
		levers := all.At(now)
		before := levers.get(pull)
		if before == nil && pull.Release {
			return Levers{}, store.ErrNotFound
		}
		audit := store.Audited{
			Kind: store.AuditCluster, Name: strings.Join([]string{cluster, pull.Lever, name}, "/"), By: by,
			After: store.AuditRemoved(),
		}
		audit.Name = strings.TrimSuffix(audit.Name, "/")
		if before != nil {
			audit.Before = model.EncodeJSON(before)
		}
		lever := Lever{By: by.Name, Reason: by.Reason, Since: now.UTC(), Until: pull.Until.UTC()}
		if pull.Until.IsZero() {
			lever.Until = time.Time{}
		}
		if pull.Lever == LeverPin {
			lever.Worker = pull.Worker
		}
		if !pull.Release {
			audit.After = model.EncodeJSON(lever)
		}
		levers.set(pull, lever)
		_, err = a.store.WriteDocuments(ctx, 0, []store.DocumentWrite{{
			Kind: DocumentLevers, Name: cluster, Version: version, Value: model.EncodeJSON(levers),
		}}, []store.Audited{audit})
		if !errors.Is(err, store.ErrConflict) || try == leverTries {
			levers.Warnings = status.warnings(levers)
			return levers, err
		}
	}
}

// checkPull says what is wrong with a pull, and returns what it is about.
func (s *ClusterStatus) checkPull(p LeverPull) (name string, err error) {
	switch p.Lever {
	case LeverBan, LeverDrain:
		if (p.Worker == "") == (p.Zone == "") || p.Lever == LeverBan && p.Zone != "" {
			return "", leverError("%s wants a worker%s", p.Lever, map[bool]string{true: ", or a zone"}[p.Lever == LeverDrain])
		}
	case LeverPin:
		if p.Partition < 0 || p.Partition >= s.Cluster.Partitions {
			return "", leverError("pin wants a partition from 0 to %d, have %d", s.Cluster.Partitions-1, p.Partition)
		}
		if p.Worker == "" && !p.Release {
			return "", leverError("pin wants the worker that shall hold partition %d", p.Partition)
		}
	case LeverFreeze, LeverDryRun:
		return "", nil
	default:
		message := fmt.Sprintf("want a lever of %s, have %q", strings.Join(LeverNames(), ", "), p.Lever)
		if near := diag.Suggest(p.Lever, LeverNames()); near != "" {
			message += fmt.Sprintf("; did you mean %q?", near)
		}
		return "", leverError("%s", message)
	}
	if p.Release {
		return p.subject(), nil // who is gone may be let go
	}
	if ids := s.workerIDs(); p.Worker != "" && !slices.Contains(ids, p.Worker) {
		return "", leverError("cluster %s has no worker %q; it has %s", s.Cluster.ID, p.Worker, strings.Join(ids, ", "))
	}
	if zones := s.zones(); p.Zone != "" && !slices.Contains(zones, p.Zone) {
		return "", leverError("cluster %s has no zone %q; it has %s", s.Cluster.ID, p.Zone, strings.Join(zones, ", "))
	}
	if p.Lever == LeverPin && !s.mayHold(p.Partition, p.Worker) {
		return "", leverError("the map of cluster %s does not let worker %s hold partition %d; it lets %s",
			s.Cluster.ID, p.Worker, p.Partition, strings.Join(s.holders(p.Partition), ", "))
	}
	return p.subject(), nil
}

func (p LeverPull) subject() string {
	switch {
	case p.Lever == LeverPin:
		return fmt.Sprint(p.Partition)
	case p.Zone != "":
		return "zone/" + p.Zone
	}
	return p.Worker
}

// Members lists the workers of the cluster, those that were discovered included.
func (s *ClusterStatus) Members() []tree.ClusterWorker {
	members := s.Cluster.Members()
	if s.Cluster.Discover != nil {
		for _, w := range s.Assignment.Workers {
			members = append(members, tree.ClusterWorker{ID: w.ID, URL: w.URL, Zone: w.Zone, Capacity: w.Capacity})
		}
	}
	return members
}

func (s *ClusterStatus) workerIDs() (ids []string) {
	for _, w := range s.Members() {
		ids = append(ids, w.ID)
	}
	return ids
}

func (s *ClusterStatus) zones() (zones []string) {
	for _, w := range s.Members() {
		if w.Zone != "" && !slices.Contains(zones, w.Zone) {
			zones = append(zones, w.Zone)
		}
	}
	return zones
}

// warnings describes pins that other levers speak against. Such levers are taken all the
// same, in any order: a ban may end before the pin does.
func (s *ClusterStatus) warnings(l Levers) (found []string) {
	for _, p := range slices.Sorted(maps.Keys(l.Pins)) {
		if text := s.pinWarning(p, l); text != "" {
			found = append(found, text)
		}
	}
	return found
}

// pinWarning says what is stronger, a pin or the ban or drain of its worker; empty when
// there is neither. The balancer takes partitions off a banned worker whatever is
// pinned, and moves none that is where it is pinned to.
func (s *ClusterStatus) pinWarning(partition int, l Levers) string {
	worker := l.Pins[partition].Worker
	if _, banned := l.Banned[worker]; banned {
		return fmt.Sprintf("partition %d is pinned to %s, which is banned: the pin waits for the end of the ban", partition, worker)
	}
	_, emptied := l.Draining[worker]
	for _, w := range s.Members() {
		_, all := l.Zones[w.Zone]
		emptied = emptied || w.ID == worker && w.Zone != "" && all
	}
	if emptied {
		return fmt.Sprintf("partition %d is pinned to %s, which is drained: it stays there until the pin ends, so %s does not become empty",
			partition, worker, worker)
	}
	return ""
}

func (s *ClusterStatus) mayHold(partition int, worker string) bool {
	return slices.Contains(s.holders(partition), worker)
}

// holders lists the workers that the map lets hold a partition.
func (s *ClusterStatus) holders(partition int) (ids []string) {
	members := s.Members()
	for _, i := range cluster.Holders(s.Cluster, members)[partition] {
		ids = append(ids, members[i].ID)
	}
	return ids
}

// get finds the lever that a pull is about; nil when nobody holds it.
func (l *Levers) get(p LeverPull) *Lever {
	in := func(found Lever, ok bool) *Lever {
		if !ok {
			return nil
		}
		return &found
	}
	var found Lever
	var ok bool
	switch {
	case p.Lever == LeverFreeze:
		return l.Frozen
	case p.Lever == LeverDryRun:
		return l.DryRun
	case p.Lever == LeverPin:
		found, ok = l.Pins[p.Partition]
	case p.Lever == LeverBan:
		found, ok = l.Banned[p.Worker]
	case p.Zone != "":
		found, ok = l.Zones[p.Zone]
	default:
		found, ok = l.Draining[p.Worker]
	}
	return in(found, ok)
}

// set puts a lever, or takes it away.
func (l *Levers) set(p LeverPull, lever Lever) {
	switch {
	case p.Lever == LeverFreeze || p.Lever == LeverDryRun:
		at := &l.Frozen
		if p.Lever == LeverDryRun {
			at = &l.DryRun
		}
		if *at = &lever; p.Release {
			*at = nil
		}
	case p.Lever == LeverPin:
		put(&l.Pins, p.Partition, lever, p.Release)
	case p.Lever == LeverBan:
		put(&l.Banned, p.Worker, lever, p.Release)
	case p.Zone != "":
		put(&l.Zones, p.Zone, lever, p.Release)
	default:
		put(&l.Draining, p.Worker, lever, p.Release)
	}
}

func put[K comparable](m *map[K]Lever, key K, lever Lever, release bool) {
	if release {
		delete(*m, key)
		return
	}
	if *m == nil {
		*m = map[K]Lever{}
	}
	(*m)[key] = lever
}
