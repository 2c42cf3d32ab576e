package clusters

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"procaas/engine/store"
	"procaas/handlers/balancer/language"
)

// A Recording has the balancer's recent observations of a cluster, with everything that another
// policy needs to decide about them.
type Recording struct {
	Cluster    string             `json:"cluster"`
	Policy     string             `json:"policy" doc:"The policy of the cluster during the recording."`
	Partitions int                `json:"partitions"`
	Step       float64            `json:"step_s" doc:"Seconds between two observations."`
	Parameters map[string]float64 `json:"parameters" doc:"The parameters of the policy, named as in a file for --params."`
	Workers    []AssignedWorker   `json:"workers" doc:"The present workers of the cluster."`
	Holders    [][]int            `json:"holders" doc:"For each partition, the indexes of the workers that may hold it."`

	// Observations are responses of balancer.observe, oldest first.
	Observations []json.RawMessage `json:"observations,omitempty" doc:"Responses of balancer.observe, the oldest first."`
}

// ringTime is how long observations of a cluster are kept, in seconds. ringLeast and ringMost are
// the fewest and the most.
const (
	ringTime  = 15 * 60
	ringLeast = 10
	ringMost  = 900
)

// RingSize returns how many observations of a cluster are kept.
func RingSize(c *language.Cluster) int {
	return min(max(int(ringTime/c.Step.Seconds()), ringLeast), ringMost)
}

// RingAge returns the age in seconds beyond which an observation in the ring is a leftover, for
// example of another step.
func RingAge(c *language.Cluster) float64 { return 1.5 * c.Step.Seconds() * float64(RingSize(c)) }

// ClusterRecording reads the stored observations of a cluster. The error is [ErrNoCluster].
func (a *Clusters) ClusterRecording(ctx context.Context, cluster string) (Recording, error) {
	status, err := a.ClusterStatus(ctx, cluster)
	if err != nil {
		return Recording{}, err
	}
	ring, err := a.store.DocumentsOf(ctx, DocumentObservation, cluster+"/")
	if err != nil {
		return Recording{}, err
	}
	return status.record(ring)
}

// record makes a recording from the stored data.
func (s *ClusterStatus) record(ring []store.Document) (Recording, error) {
	c, members := s.Cluster, s.Members()
	r := Recording{
		Cluster: c.ID, Policy: c.Policy, Partitions: c.Partitions, Step: c.Step.Seconds(), Parameters: parametersOf(c),
		Workers: []AssignedWorker{}, Holders: language.Holders(c, members), Observations: []json.RawMessage{},
	}
	for _, w := range members {
		r.Workers = append(r.Workers, AssignedWorker{ID: w.ID, URL: w.URL, Zone: w.Zone, Capacity: w.Capacity})
	}
	for p, holders := range r.Holders {
		if holders == nil {
			r.Holders[p] = []int{}
		}
	}
	type dated struct {
		at    float64
		value json.RawMessage
	}
	var kept []dated
	newest := 0.0
	for _, d := range ring {
		var o struct {
			At float64 `json:"t"`
		}
		if err := json.Unmarshal(d.Value, &o); err != nil {
			return Recording{}, fmt.Errorf("observation %s: %w", d.Name, err)
		}
		kept = append(kept, dated{o.At, d.Value})
		newest = max(newest, o.At)
	}
	slices.SortFunc(kept, func(a, b dated) int { return cmp.Compare(a.at, b.at) })
	for _, o := range kept {
		if o.at > newest-RingAge(c) {
			r.Observations = append(r.Observations, o.value)
		}
	}
	return r, nil
}

// parametersOf returns the parameters of a policy with the names in files.
func parametersOf(c *language.Cluster) map[string]float64 {
	p := c.Parameters
	return map[string]float64{
		"cycle_s": p.Cycle.Seconds(), "overload": p.Overload, "gini_high": p.GiniHigh, "gini_low": p.GiniLow,
		"friction": float64(p.Friction), "friction_s": p.FrictionTime.Seconds(), "horizon_s": p.Horizon.Seconds(),
		"margin": p.Margin, "fixed_cost": p.FixedCost, "budget": p.Budget, "no_return_s": p.NoReturn.Seconds(),
	}
}
