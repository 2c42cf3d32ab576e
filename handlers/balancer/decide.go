package balancer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"procaas/dsl/tree"
	"procaas/engine"
	"procaas/engine/model"
	"procaas/engine/store"
	"procaas/handlers/balancer/clusters"
	"procaas/handlers/balancer/language"
)

// Decide decides which partitions of a cluster should move. It uses the policy of the cluster and
// the levers that people have set.
//
// It moves nothing: balancer.apply takes its response and makes the moves. If the decision is larger
// than 64 KiB, the response has its alerts and a reference to it. The node keeps what
// the policy has learned in memory. A node that takes over learns it again from the stored
// observations of the last 15 minutes. In a cluster with more than 500 partitions it may be less: 50
// observations with 10,000 partitions.
//
//	id: decide
//	balancer.decide:
//	  cluster: fanout
//	  observation: !$ sources.observe.response
type Decide struct {
	// Cluster is the id of the cluster.
	Cluster string `yaml:"cluster" required:"true"`

	// Observation is the response of balancer.observe: the observation, or the reference to a large one.
	Observation any `yaml:"observation" required:"true"`
}

// CheckBody checks what the tags of [Decide] cannot express.
func (*Decide) CheckBody(b *tree.Body) { checkCluster(b) }

// kept is a node's memory of a cluster.
type kept struct {
	bundle string
	live   *Live
}

// Handle implements [engine.Handler].
func (h *Decide) Handle(ctx context.Context, c *engine.Call) (model.Result, error) {
	cluster, err := clusterOf(c, h.Cluster)
	if err != nil {
		return model.Result{}, err
	}
	var o Observation
	if err := receive(ctx, c, partObservation, cluster.ID, h.Observation, &o); err != nil {
		return model.Result{}, err
	}
	if err := o.check(cluster); err != nil {
		return model.Result{}, model.Permanent(err)
	}
	state, _, err := clusters.ReadClusterState(ctx, c.Documents, cluster.ID)
	if err != nil {
		return model.Result{}, err
	}
	levers, err := clusters.ReadLevers(ctx, c.Documents, cluster.ID, c.Now)
	if err != nil {
		return model.Result{}, err
	}
	o.Tell(levers)
	// Two calls never share the memory: the other one learns it again.
	name := "balancer/" + cluster.ID
	k, _ := c.Memory.Take(name).(*kept)
	if k == nil || k.bundle != c.Bundle.Hash || k.live.at != state.At || !k.live.knows(&o) {
		live, err := relearn(ctx, c, cluster, &o)
		if err != nil {
			return model.Result{}, err
		}
		k = &kept{c.Bundle.Hash, live}
	}
	decision := k.live.Decide(&o, levers)
	c.Memory.Put(name, k)
	return pass(ctx, c, partDecision, decision, reference{
		Cluster: decision.Cluster, At: decision.At, Version: decision.Version, Skipped: decision.Skipped, Alerts: decision.Alerts,
	})
}

// relearn makes a policy that has seen the recent observations, and knows the workers of an
// observation.
func relearn(ctx context.Context, c *engine.Call, cluster *language.Cluster, o *Observation) (*Live, error) {
	past, err := recorded(ctx, c.Documents, cluster, o.At)
	if err != nil {
		return nil, err
	}
	return replay(cluster, past, o)
}

// mostReplayed bounds what a node learns again, as partitions times observations. Reading and
// following as many takes about a second.
const mostReplayed = 500_000

// recorded reads the latest stored observations of a cluster before a time, oldest first.
func recorded(ctx context.Context, store store.Documents, cluster *language.Cluster, before float64) ([]Observation, error) {
	ring, err := latest(ctx, store, cluster, before)
	if err != nil {
		return nil, err
	}
	age := min(clusters.RingAge(cluster), 1.5*cluster.Step.Seconds()*float64(replayed(cluster)))
	var out []Observation
	for _, d := range ring {
		var o Observation
		if err := json.Unmarshal(d.Value, &o); err != nil {
			return nil, fmt.Errorf("observation %s: %w", d.Name, err)
		}
		if o.At < before && o.At > before-age {
			out = append(out, o)
		}
	}
	slices.SortFunc(out, func(a, b Observation) int {
		if a.At < b.At {
			return -1
		}
		return 1
	})
	return out, nil
}

// replayed returns how many observations a node learns from.
func replayed(cluster *language.Cluster) int {
	return max(1, min(clusters.RingSize(cluster), mostReplayed/cluster.Partitions))
}

// latest reads the newest documents of the ring, as many as a node learns from. It may read older
// leftovers, too.
func latest(ctx context.Context, db store.Documents, cluster *language.Cluster, before float64) (found []store.Document, err error) {
	most := replayed(cluster)
	if most == clusters.RingSize(cluster) {
		return db.DocumentsOf(ctx, clusters.DocumentObservation, cluster.ID+"/")
	}
	for ago := range most + 1 { // the place of this time may have one, too
		at := before - float64(ago)*cluster.Step.Seconds()
		d, err := db.Document(ctx, clusters.DocumentObservation, placeOf(cluster, at))
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		found = append(found, d)
	}
	return found, nil
}

// placeOf returns the name of the document of the ring for an observation at a time.
func placeOf(cluster *language.Cluster, at float64) string {
	return fmt.Sprintf("%s/%03d", cluster.ID, int64(at/cluster.Step.Seconds())%int64(clusters.RingSize(cluster)))
}

// replay follows past observations with the workers of a later one. It skips observations with
// another number of partitions.
func replay(cluster *language.Cluster, past []Observation, o *Observation) (*Live, error) {
	live, err := NewLive(cluster, o)
	if err != nil {
		return nil, err
	}
	for i := range past {
		fitted, err := past[i].among(o)
		if err != nil || fitted.check(cluster) != nil {
			continue
		}
		live.Follow(fitted)
	}
	return live, nil
}

var errNobody = errors.New("the workers of then are not those of now")

// among converts an observation to the workers of a later one. Workers that were not there did not
// answer.
func (o *Observation) among(later *Observation) (*Observation, error) {
	out := *o
	out.Workers = make([]Observed, len(later.Workers))
	places := make([]int, len(o.Workers))
	for i := range places {
		places[i] = -1
	}
	then := map[string]int{}
	for i, w := range o.Workers {
		then[w.ID] = i
	}
	for i, w := range later.Workers {
		out.Workers[i] = Observed{AssignedWorker: w.AssignedWorker, Listed: w.Listed}
		if j, known := then[w.ID]; known {
			places[j] = i
			out.Workers[i] = o.Workers[j]
			out.Workers[i].AssignedWorker, out.Workers[i].Listed = w.AssignedWorker, w.Listed
		}
	}
	out.Owners = slices.Clone(o.Owners)
	for p, w := range out.Owners {
		if w < 0 {
			continue
		}
		if w >= len(places) || places[w] < 0 {
			return nil, errNobody
		}
		out.Owners[p] = places[w]
	}
	return &out, nil
}
