package balancer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"procaas/dsl/tree"
	"procaas/engine"
	"procaas/engine/model"
	"procaas/engine/store"
	"procaas/handlers/balancer/clusters"
	"procaas/handlers/balancer/language"
)

// Apply makes the moves of a decision. It writes the next version of the assignment, and the reason
// of each move to the audit.
//
// It does so only if nobody changed the assignment meanwhile, and if other nodes do not consider
// this node dead. So of two balancers one wins, and an old version never returns. The same
// transaction stores the observation and the status of the cluster.
//
//	id: apply
//	balancer.apply:
//	  cluster: fanout
//	  observation: !$ sources.observe.response
//	  decision: !$ sources.decide.response
type Apply struct {
	// Cluster is the id of the cluster.
	Cluster string `yaml:"cluster" required:"true"`

	// Observation is the response of balancer.observe: the observation, or the reference to a large one.
	Observation any `yaml:"observation" required:"true"`

	// Decision is the response of balancer.decide: the decision, or the reference to a large one.
	Decision any `yaml:"decision" required:"true"`
}

// CheckBody checks what the tags of [Apply] cannot express.
func (*Apply) CheckBody(b *tree.Body) { checkCluster(b) }

// mostMoves is how many moves are kept to show.
const mostMoves = 500

// balancerName is the actor of moves in the audit.
const balancerName = "procaas/balancer"

// Handle implements [engine.Handler].
func (h *Apply) Handle(ctx context.Context, c *engine.Call) (model.Result, error) {
	cluster, err := clusterOf(c, h.Cluster)
	if err != nil {
		return model.Result{}, err
	}
	var o Observation
	var d Decision
	err = receive(ctx, c, partObservation, cluster.ID, h.Observation, &o)
	if err == nil {
		err = receive(ctx, c, partDecision, cluster.ID, h.Decision, &d)
	}
	if err != nil {
		return model.Result{}, err
	}
	if err := o.check(cluster); err != nil {
		return model.Result{}, model.Permanent(err)
	}
	if d.Cluster != o.Cluster || d.At != o.At {
		return model.Result{}, model.Permanent(errors.New("the decision is about another observation"))
	}
	if d.Skipped != "" {
		return outcome(o.Version, 0, d.Skipped)
	}
	w := &writing{cluster: cluster, o: &o, d: &d, c: c}
	return w.run(ctx)
}

// outcome returns the response of the handler.
func outcome(version int64, moved int, reason string) (model.Result, error) {
	response := map[string]any{"version": int(version), "moved": moved, "reason": nil}
	if reason != "" {
		response["reason"] = reason
	}
	return model.Result{Response: response}, nil
}

// A writing has what one Apply writes.
type writing struct {
	cluster *language.Cluster
	o       *Observation
	d       *Decision
	c       *engine.Call

	old, next    clusters.Assignment
	writes       []store.DocumentWrite
	audits       []store.Audited
	stateVersion int64
}

func (w *writing) run(ctx context.Context) (model.Result, error) {
	var err error
	db := w.c.Documents
	if w.old, err = clusters.ReadAssignment(ctx, db, w.cluster.ID); err != nil {
		return model.Result{}, err
	}
	state, version, err := clusters.ReadClusterState(ctx, db, w.cluster.ID)
	if err != nil {
		return model.Result{}, err
	}
	switch {
	case state.At == w.d.At:
		// An earlier attempt wrote this, and its answer was lost.
		return outcome(w.old.Version, len(w.d.Moves), "")
	case state.At > w.d.At:
		return outcome(w.old.Version, 0, "a later observation was decided about")
	case w.old.Version != w.d.Version:
		return outcome(w.old.Version, 0, fmt.Sprintf("version %d of the assignment has come since version %d was observed", w.old.Version,
			w.d.Version))
	}
	w.stateVersion = version
	w.next = w.old
	if len(w.d.Moves) > 0 || w.old.Version == 0 && len(w.d.Workers) > 0 || !w.sameWorkers() {
		if err := w.assign(ctx); err != nil {
			return model.Result{}, err
		}
	}
	known := state.Alerts
	w.see(&state)
	w.keep(state)
	_, err = db.WriteDocuments(ctx, w.c.Node, w.writes, w.audits)
	switch {
	case errors.Is(err, store.ErrConflict):
		return outcome(w.old.Version, 0, "somebody else was faster")
	case err != nil:
		return model.Result{}, err
	}
	for _, alert := range w.d.Alerts {
		if !slices.Contains(known, alert) {
			w.c.Log.Warn("balancer: "+alert, "cluster", w.cluster.ID)
		}
	}
	return outcome(w.next.Version, len(w.d.Moves), "")
}

func (w *writing) sameWorkers() bool {
	return slices.Equal(w.old.Workers, w.d.Workers)
}

// assign makes the next version of the assignment.
func (w *writing) assign(ctx context.Context) error {
	places := map[string]int{}
	for i, worker := range w.d.Workers {
		places[worker.ID] = i
	}
	for i, worker := range w.old.Workers {
		if at, known := places[worker.ID]; !known || at != i {
			return model.Permanent(fmt.Errorf("the decision has no worker %s in place %d", worker.ID, i))
		}
	}
	moves := make([]clusters.Moved, len(w.d.Moves))
	for i, m := range w.d.Moves {
		to, known := places[m.To]
		if !known || m.Partition < 0 || m.Partition >= w.cluster.Partitions {
			return model.Permanent(fmt.Errorf("partition %d cannot move to worker %q", m.Partition, m.To))
		}
		moves[i] = clusters.Moved{Partition: m.Partition, To: to}
	}
	now := timeOf(w.d.At)
	w.next = w.old.Next(w.d.Workers, w.cluster.Partitions, moves, now)
	w.write(clusters.DocumentAssignment, w.cluster.ID, w.old.Version, w.next)
	if len(moves) == 0 {
		return nil
	}
	var logged []clusters.MoveLog
	version, err := w.moves(ctx, &logged)
	if err != nil {
		return err
	}
	for _, m := range w.d.Moves {
		logged = append(logged, clusters.MoveLog{
			At: now, Version: w.next.Version, Partition: m.Partition, From: m.From, To: m.To,
			Reason: m.Reason,
		})
	}
	w.write(clusters.DocumentMoves, w.cluster.ID, version, logged[max(0, len(logged)-mostMoves):])
	before, err := json.Marshal(map[string]any{"version": w.old.Version})
	if err != nil {
		return err
	}
	after, err := json.Marshal(map[string]any{"version": w.next.Version, "moves": w.d.Moves})
	if err != nil {
		return err
	}
	w.audits = append(w.audits, store.Audited{
		Kind: store.AuditCluster, Name: w.cluster.ID, Before: before, After: after,
		By: store.Actor{Name: balancerName, Reason: fmt.Sprintf("%d moves by %s", len(moves), w.cluster.Policy)},
	})
	return nil
}

// moves reads the stored moves.
func (w *writing) moves(ctx context.Context, into *[]clusters.MoveLog) (version int64, err error) {
	d, err := w.c.Documents.Document(ctx, clusters.DocumentMoves, w.cluster.ID)
	if errors.Is(err, store.ErrNotFound) {
		return 0, nil
	}
	if err == nil {
		err = json.Unmarshal(d.Value, into)
	}
	return d.Version, err
}

func (w *writing) write(kind, name string, version int64, v any) {
	value, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("balancer: %s of cluster %s: %v", kind, name, err)) // such data always encodes
	}
	w.writes = append(w.writes, store.DocumentWrite{Kind: kind, Name: name, Version: version, Value: value})
}

// see fills in the state that people see.
func (w *writing) see(state *clusters.ClusterState) {
	seen := make([]clusters.Seen, len(w.o.Workers))
	last := state.Weights
	state.Weights = make([]float64, len(w.o.Weights))
	for p, x := range w.o.Weights {
		switch {
		case x != nil:
			state.Weights[p] = *x
		case p < len(last):
			state.Weights[p] = last[p]
		}
	}
	or0 := func(x *float64) float64 {
		if x == nil {
			return 0
		}
		return *x
	}
	state.Requests, state.Drops = 0, 0
	for i, x := range w.o.Workers {
		seen[i] = clusters.Seen{
			ID: x.ID, Zone: x.Zone, Up: x.Up, Requests: or0(x.Requests), Drops: or0(x.Drops), Busy: or0(x.Busy), Problem: x.Problem,
			Draining: x.Draining || slices.Contains(w.d.Draining, x.ID), Banned: slices.Contains(w.d.Banned, x.ID),
		}
		state.Requests += seen[i].Requests
		state.Drops += seen[i].Drops
	}
	for p, owner := range w.next.Owners {
		if owner >= 0 {
			seen[owner].Partitions++
			seen[owner].Weight = round(seen[owner].Weight + state.Weights[p])
		}
	}
	var weights []float64
	for _, x := range seen {
		if x.Up && !x.Banned {
			weights = append(weights, x.Weight)
		}
	}
	step := w.cluster.Step.Seconds()
	if gap := w.d.At - state.At; state.Decided > 0 && gap < 10*step {
		step = gap
	}
	state.At = w.d.At
	state.Time = timeOf(w.d.At)
	state.Policy = w.cluster.Policy
	state.Workers = seen
	state.Gini = math.Round(Gini(weights)*1e4) / 1e4
	state.Decided++
	state.Moves += len(w.d.Moves)
	state.Dropped = round(state.Dropped + state.Drops*step)
	state.Would = nil
	for _, m := range w.d.Would {
		state.Would = append(state.Would, clusters.MoveLog{At: state.Time, Partition: m.Partition, From: m.From, To: m.To, Reason: m.Reason})
	}
	state.Alerts, state.Unserved = w.d.Alerts, w.d.Unserved
}

// keep adds the state and the observation to the writes.
func (w *writing) keep(state clusters.ClusterState) {
	w.write(clusters.DocumentClusterState, w.cluster.ID, w.stateVersion, state)
	w.o.Banned, w.o.Draining = w.d.Banned, w.d.Draining
	w.write(clusters.DocumentObservation, placeOf(w.cluster, w.d.At), store.AnyVersion, w.o)
}
