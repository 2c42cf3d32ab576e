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

	"procaas/dsl/diag"
	"procaas/dsl/tree"
	"procaas/engine/model"
	"procaas/engine/store"
	"procaas/handlers/balancer/language"
)

// These are the kinds of the balancer's documents, other than [DocumentAssignment]. Their names are
// the ids of clusters.
const (
	DocumentLevers       = "levers"
	DocumentClusterState = "cluster-state"
	DocumentMoves        = "moves"
	DocumentObservation  = "observation" // CLUSTER/PLACE, a ring of the latest ones
	DocumentTick         = "tick"        // CLUSTER/PART, large parts of the tick under way
)

// Levers are people's instructions to the balancer of a cluster.
type Levers struct {
	Banned   map[string]Lever `json:"banned,omitempty"`   // workers that serve nothing
	Draining map[string]Lever `json:"draining,omitempty"` // workers that are being emptied gracefully
	Zones    map[string]Lever `json:"zones,omitempty"`    // zones that are being emptied
	Pins     map[int]Lever    `json:"pins,omitempty"`     // partitions that stay on a worker
	Frozen   *Lever           `json:"frozen,omitempty"`   // nothing moves at all
	DryRun   *Lever           `json:"dry_run,omitempty"`  // moves are decided but not made
	Evacuate *Lever           `json:"evacuate,omitempty"` // silent workers are left as usual, even if half of the cluster is silent

	// Warnings are computed from all levers when they are read. They are not stored.
	Warnings []string `json:"warnings,omitempty" doc:"Pins that contradict a ban or drain of their worker, and which of the two applies."`
}

// A Lever is one lever, with who pulled it.
type Lever struct {
	Worker string    `json:"worker,omitempty"` // of a pin
	By     string    `json:"by"`
	Reason string    `json:"reason"`
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until,omitzero"` // when it ends; zero for never
}

// over reports whether a lever has ended.
func (l Lever) over(now time.Time) bool { return !l.Until.IsZero() && !now.Before(l.Until) }

// At returns the levers in force at a time.
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
		Evacuate: one(l.Evacuate),
	}
}

// These are the names of levers.
const (
	LeverBan      = "ban"
	LeverDrain    = "drain"
	LeverPin      = "pin"
	LeverFreeze   = "freeze"
	LeverDryRun   = "dry-run"
	LeverEvacuate = "evacuate"
)

// leverNames lists the names.
func leverNames() []string {
	return []string{LeverBan, LeverDrain, LeverPin, LeverFreeze, LeverDryRun, LeverEvacuate}
}

// A LeverPull is a request to pull or release a lever.
type LeverPull struct {
	Lever     string
	Worker    string
	Zone      string
	Partition int // of a pin; -1 for none
	Until     time.Time
	Release   bool
}

// A ClusterState is the result of the balancer's last observation.
type ClusterState struct {
	At       float64   `json:"t"` // of the observation; Unix seconds
	Time     time.Time `json:"time"`
	Policy   string    `json:"policy"`
	Gini     float64   `json:"gini"`
	Requests float64   `json:"requests"` // per second, for the cluster
	Drops    float64   `json:"drops"`
	Decided  int       `json:"decided"`           // number of observations with a decision
	Moves    int       `json:"moves"`             // since the cluster began
	Dropped  float64   `json:"dropped"`           // requests since then
	Would    []MoveLog `json:"would,omitempty"`   // what the last dry run would have moved
	Alerts   []string  `json:"alerts,omitempty"`  // what a person should look at
	Unserved int       `json:"unserved"`          // partitions that nobody serves and nobody can take
	Workers  []Seen    `json:"workers"`           // in the order of the assignment
	Weights  []float64 `json:"weights,omitempty"` // last known requests per second by partition
}

// A Seen is the last observation of a worker.
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

// A MoveLog is one move of a partition, for people.
type MoveLog struct {
	At        time.Time `json:"at"`
	Version   int64     `json:"version"` // of the resulting assignment
	Partition int       `json:"partition"`
	From      string    `json:"from,omitempty"`
	To        string    `json:"to"`
	Reason    string    `json:"reason"`
}

// A ClusterStatus has everything that is known about a cluster.
type ClusterStatus struct {
	Cluster    *language.Cluster
	Assignment Assignment   // version 0 before there is one
	Levers     Levers       // in force now
	State      ClusterState // zero before the first decision
}

// ErrNoCluster reports that no cluster of this id is declared.
var ErrNoCluster = errors.New("no such cluster")

// A LeverError says why a lever cannot be pulled.
type LeverError struct{ problem string }

func (e *LeverError) Error() string { return e.problem }

func leverError(format string, args ...any) error { return &LeverError{fmt.Sprintf(format, args...)} }

// readDocument decodes a document. If there is none, into is unchanged. It returns the version, or
// 0.
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

// ReadLevers returns the levers of a cluster in force at a time.
func ReadLevers(ctx context.Context, store store.Documents, cluster string, now time.Time) (Levers, error) {
	var l Levers
	_, err := readDocument(ctx, store, DocumentLevers, cluster, &l)
	return l.At(now), err
}

// ReadClusterState returns the balancer's last state, and the version of the document.
func ReadClusterState(ctx context.Context, store store.Documents, cluster string) (s ClusterState, version int64, err error) {
	version, err = readDocument(ctx, store, DocumentClusterState, cluster, &s)
	return s, version, err
}

// ReadAssignment returns the assignment of a cluster. Before there is one, it returns version 0
// without workers.
func ReadAssignment(ctx context.Context, db store.Documents, cluster string) (Assignment, error) {
	d, err := db.Document(ctx, DocumentAssignment, cluster)
	if errors.Is(err, store.ErrNotFound) {
		return Assignment{Cluster: cluster}, nil
	}
	if err != nil {
		return Assignment{}, err
	}
	return decodeAssignment(d)
}

// ReadMoves returns the last moves of a cluster, oldest first.
func ReadMoves(ctx context.Context, store store.Documents, cluster string) ([]MoveLog, error) {
	var moves []MoveLog
	_, err := readDocument(ctx, store, DocumentMoves, cluster, &moves)
	return moves, err
}

// Clusters shows the clusters of balancers, and pulls their levers.
type Clusters struct {
	store  store.Documents
	runs   store.Runs
	bundle func() *tree.Bundle // returns the current definition
	now    func() time.Time    // by the store's clock
}

// NewClusters makes a Clusters for the definition that bundle returns.
func NewClusters(db store.Store, bundle func() *tree.Bundle, now func() time.Time) *Clusters {
	return &Clusters{store: db.Documents, runs: db.Runs, bundle: bundle, now: now}
}

// Bundle returns the current definition.
func (a *Clusters) Bundle() *tree.Bundle { return a.bundle() }

// ClusterStatus reads the status of a cluster. The error is [ErrNoCluster].
func (a *Clusters) ClusterStatus(ctx context.Context, cluster string) (s ClusterStatus, err error) {
	s.Cluster = language.ClusterOf(a.bundle(), cluster)
	if s.Cluster == nil {
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

// ClusterMoves reads the last moves of a cluster, oldest first. The error is [ErrNoCluster].
func (a *Clusters) ClusterMoves(ctx context.Context, cluster string) ([]MoveLog, error) {
	if language.ClusterOf(a.bundle(), cluster) == nil {
		return nil, ErrNoCluster
	}
	return ReadMoves(ctx, a.store, cluster)
}

// leverTries bounds the tries to pull a lever while others pull one.
const leverTries = 20

// PullLever pulls or releases a lever of a cluster, with its audit record. The error is
// [ErrNoCluster], a [*LeverError], or [store.ErrNotFound] if a lever to release is not pulled.
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

// checkPull checks a pull, and returns what it is about.
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
	case LeverFreeze, LeverDryRun, LeverEvacuate:
		return "", nil
	default:
		message := fmt.Sprintf("want a lever of %s, have %q", strings.Join(leverNames(), ", "), p.Lever)
		if near := diag.Suggest(p.Lever, leverNames()); near != "" {
			message += fmt.Sprintf("; did you mean %q?", near)
		}
		return "", leverError("%s", message)
	}
	if p.Release {
		return p.subject(), nil // a lever of a removed worker may be released
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

// Members lists the workers of the cluster, including discovered ones.
func (s *ClusterStatus) Members() []language.ClusterWorker {
	members := s.Cluster.Members()
	if s.Cluster.Discover != nil {
		for _, w := range s.Assignment.Workers {
			members = append(members, language.ClusterWorker{ID: w.ID, URL: w.URL, Zone: w.Zone, Capacity: w.Capacity})
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

// warnings describes pins that contradict other levers. Such levers are accepted in any order,
// because a ban may end before the pin.
func (s *ClusterStatus) warnings(l Levers) (found []string) {
	for _, p := range slices.Sorted(maps.Keys(l.Pins)) {
		if text := s.pinWarning(p, l); text != "" {
			found = append(found, text)
		}
	}
	return found
}

// pinWarning says what wins, a pin or the ban or drain of its worker. It is empty if there is
// neither. The balancer moves partitions off a banned worker even if they are pinned. It does not
// move a partition that is where it is pinned to.
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

// holders lists the workers that may hold a partition according to the map.
func (s *ClusterStatus) holders(partition int) (ids []string) {
	members := s.Members()
	for _, i := range language.Holders(s.Cluster, members)[partition] {
		ids = append(ids, members[i].ID)
	}
	return ids
}

// whole returns the place of a lever that is about the whole cluster, or nil for another lever.
func (l *Levers) whole(name string) **Lever {
	switch name {
	case LeverFreeze:
		return &l.Frozen
	case LeverDryRun:
		return &l.DryRun
	case LeverEvacuate:
		return &l.Evacuate
	}
	return nil
}

// get returns the lever of a pull, or nil if it is not pulled.
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
	case l.whole(p.Lever) != nil:
		return *l.whole(p.Lever)
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

// set pulls or releases a lever.
func (l *Levers) set(p LeverPull, lever Lever) {
	switch {
	case l.whole(p.Lever) != nil && p.Release:
		*l.whole(p.Lever) = nil
	case l.whole(p.Lever) != nil:
		*l.whole(p.Lever) = &lever
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
