package balancer

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode"

	"procaas/dsl/datum"
	"procaas/dsl/rules"
	"procaas/dsl/tree"
	"procaas/engine"
	"procaas/engine/model"
	"procaas/handlers/balancer/clusters"
	"procaas/handlers/balancer/handoff"
	"procaas/handlers/balancer/language"
)

// Handoff tells the workers of a cluster which partitions they gain and lose.
//
// In the phase prepare, before moves are applied, workers load the data of the partitions that they
// will gain. If this does not work in time, the moves happen anyway. In the phase settle, workers
// adopt the stored assignment. A worker releases partitions that it should not serve. The new owner
// takes a partition when no other worker can serve it. Settle corrects every difference, including
// those of earlier ticks, so a node that dies in the middle leaves nothing behind.
//
//	id: settle
//	balancer.handoff: {cluster: fanout, phase: settle}
type Handoff struct {
	bound

	// Cluster is the id of the cluster.
	Cluster string `yaml:"cluster" required:"true"`

	// Phase is the part of the hand-off to do.
	Phase string `yaml:"phase" required:"true" enum:"prepare,settle"`

	// Decision is the response of balancer.decide, for prepare.
	Decision any `yaml:"decision"`

	// Patience is how long to wait for partitions to get warm, or for requests to end.
	Patience time.Duration `yaml:"patience" default:"1s" min:"0s" max:"1m"`

	// Timeout is the longest time of one call of a worker. The handler calls all workers at the same time.
	Timeout time.Duration `yaml:"timeout" default:"1s" min:"10ms" max:"1m"`

	// Grace is how long a worker that does not answer may still serve a partition after a move. The new worker gets it
	// after this time. If nothing listens at the old address, that worker has ended, and 1.5 seconds are enough.
	Grace time.Duration `yaml:"grace" default:"3s" min:"0s" max:"10m"`
}

// CheckBody checks what the tags of [Handoff] cannot express.
func (*Handoff) CheckBody(b *tree.Body) {
	checkCluster(b)
	data, fixed := b.Field("phase").Literal()
	phase, _ := data.(string)
	decision := b.Field("decision")
	switch {
	case !fixed:
	case phase == "prepare" && decision == nil:
		b.Errorf(b.Field("phase").Span, rules.Body, "add decision: !$ sources.decide.response", "prepare needs a decision")
	case phase == "settle" && decision != nil:
		b.Errorf(decision.Span, rules.Body, "leave it out", "settle goes by the assignment that is stored, and takes no decision")
	}
}

// Handle implements [engine.Handler].
func (h *Handoff) Handle(ctx context.Context, c *engine.Call) (model.Result, error) {
	cluster, err := clusterOf(c, h.Cluster)
	if err != nil {
		return model.Result{}, err
	}
	a, err := clusters.ReadAssignment(ctx, c.Documents, cluster.ID)
	if err != nil {
		return model.Result{}, err
	}
	token, err := orderToken(c, cluster)
	if err != nil {
		return model.Result{}, err
	}
	s := handoff.Settler{Caller: handoff.Caller{HTTP: h.client(c), Token: token}, Timeout: h.Timeout, Grace: h.Grace}
	if h.Phase == "prepare" {
		return h.prepare(ctx, c, s, &a)
	}
	state, _, err := clusters.ReadClusterState(ctx, c.Documents, cluster.ID)
	if err != nil {
		return model.Result{}, err
	}
	s.Silent = map[string]bool{}
	for _, w := range state.Workers {
		s.Silent[w.ID] = !w.Up
	}
	return h.settle(ctx, c, s, &a)
}

// orderToken returns the token for orders to the workers of a cluster, or empty. Like all secrets
// of a call, it is hidden in output.
func orderToken(c *engine.Call, cluster *language.Cluster) (string, error) {
	if cluster.Secret == "" {
		return "", nil
	}
	text, err := c.Resolve(datum.Secret{Name: cluster.Secret, To: cluster.ID})
	token := strings.TrimSpace(text)
	switch {
	case err != nil:
		return "", fmt.Errorf("secret of cluster %s: %w", cluster.ID, err)
	case token == "":
		return "", model.Permanent(fmt.Errorf("secret %s of cluster %s is empty", cluster.Secret, cluster.ID))
	case strings.ContainsFunc(token, unicode.IsControl):
		return "", model.Permanent(fmt.Errorf("secret %s of cluster %s holds more than one line: want one "+
			"token", cluster.Secret, cluster.ID))
	}
	return token, nil
}

// handoffMap converts the assignment for package handoff.
func handoffMap(a *clusters.Assignment, workers []clusters.AssignedWorker, now time.Time) handoff.Map {
	m := handoff.Map{Cluster: a.Cluster, Version: a.Version, Owner: a.Owners, Since: a.Since}
	for _, w := range workers {
		m.Workers = append(m.Workers, handoff.Worker{ID: w.ID, URL: w.URL})
	}
	for _, moved := range a.Lately {
		if moved.From >= 0 && moved.From < len(workers) {
			m.Lost = append(m.Lost, handoff.Loss{Partition: moved.Partition, Worker: moved.From, Age: now.Sub(moved.At)})
		}
	}
	return m
}

// prepare lets workers load the partitions that they will gain.
func (h *Handoff) prepare(ctx context.Context, c *engine.Call, s handoff.Settler, a *clusters.Assignment) (model.Result, error) {
	var d Decision
	if err := receive(ctx, c, partDecision, h.Cluster, h.Decision, &d); err != nil {
		return model.Result{}, err
	}
	if len(d.Moves) == 0 || d.Version != a.Version || a.Version == 0 {
		return prepared(handoff.Preparation{Version: a.Version})
	}
	places := map[string]int{}
	for i, w := range d.Workers {
		places[w.ID] = i
	}
	var moves []handoff.Move
	for _, m := range d.Moves {
		to, known := places[m.To]
		if !known || m.Partition < 0 || m.Partition >= len(a.Owners) {
			return model.Result{}, model.Permanent(fmt.Errorf("partition %d cannot move to worker %q", m.Partition, m.To))
		}
		moves = append(moves, handoff.Move{Partition: m.Partition, To: to})
	}
	done, err := s.Prepare(ctx, handoffMap(a, d.Workers, c.Now), moves, h.Patience)
	if err != nil {
		return model.Result{}, fmt.Errorf("prepare moves of cluster %s: %w", h.Cluster, err)
	}
	return prepared(done)
}

func prepared(p handoff.Preparation) (model.Result, error) {
	return model.Result{Response: map[string]any{
		"version": int(p.Version), "warm": p.Warm, "cold": len(p.Cold), "silent": texts(p.Silent),
	}}, nil
}

// settlePause is the pause between two rounds while something is not settled.
const settlePause = 50 * time.Millisecond

// settle brings the workers to the stored assignment.
func (h *Handoff) settle(ctx context.Context, c *engine.Call, s handoff.Settler, a *clusters.Assignment) (model.Result, error) {
	if a.Version == 0 {
		return settled(handoff.Settled{})
	}
	began, start := c.Now, time.Now()
	var all handoff.Settled
	for {
		passed := time.Since(start)
		round, err := s.Settle(ctx, handoffMap(a, a.Workers, began.Add(passed)))
		if err != nil {
			return model.Result{}, fmt.Errorf("hand over partitions of cluster %s: %w", h.Cluster, err)
		}
		round.Released += all.Released
		round.Taken += all.Taken
		all = round
		if len(all.Waiting) == 0 || passed+settlePause > h.Patience {
			return settled(all)
		}
		select {
		case <-time.After(settlePause):
		case <-ctx.Done():
			return model.Result{}, ctx.Err()
		}
	}
}

func settled(s handoff.Settled) (model.Result, error) {
	return model.Result{Response: map[string]any{
		"version": int(s.Version), "held": s.Held, "released": s.Released, "taken": s.Taken,
		"waiting": len(s.Waiting), "absent": len(s.Absent), "silent": texts(s.Silent),
	}}, nil
}

// texts converts strings to data.
func texts(words []string) []any {
	out := make([]any, len(words))
	for i, w := range words {
		out[i] = w
	}
	return out
}
