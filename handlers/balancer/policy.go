package balancer

import (
	"fmt"
	"slices"
	"strings"

	"procaas/dsl/diag"
)

// A Policy decides which partitions move. Decide is called for each report, in order of time. Its
// moves are applied before the next call.
type Policy interface {
	Decide(r *Report) []Move
}

// Names returns the names of the policies, oldest first.
func Names() []string { return []string{"v1", "v2", "v3", "v4", "v5"} }

// Default is the recommended policy.
const Default = "v5"

// New makes a policy by name.
func New(name string, c Cluster, p Params) (Policy, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	if err := p.check(); err != nil {
		return nil, err
	}
	version := slices.Index(Names(), name) + 1
	switch {
	case version == 0:
		message := fmt.Sprintf("want a policy of %s, have %q", strings.Join(Names(), ", "), name)
		if near := diag.Suggest(name, Names()); near != "" {
			message += fmt.Sprintf("; did you mean %q?", near)
		}
		return nil, fmt.Errorf("%s", message)
	case version < 5:
		return newClassic(version, c, p), nil
	}
	return newController(c, p), nil
}

// Params are the parameters of policies. The zero value is not useful. See [DefaultParams].
type Params struct {
	// Cycle is how often v1 to v4 decide, in seconds.
	Cycle float64 `json:"cycle_s"`

	// Overload is a share of what a worker serves. If the median of its drops in the last minute
	// exceeds it, the worker is overloaded, for v2 to v4.
	Overload float64 `json:"overload"`

	// GiniHigh and GiniLow turn the even distribution of weights on and off, for v3 and v4.
	GiniHigh float64 `json:"gini_high"`
	GiniLow  float64 `json:"gini_low"`

	// Friction bounds the moves of a partition within FrictionTime seconds, for v4.
	Friction     int     `json:"friction"`
	FrictionTime float64 `json:"friction_s"`

	// Horizon is how far v5 looks ahead, in seconds.
	Horizon float64 `json:"horizon_s"`

	// Margin is how many times, beyond once, a move of v5 must be worth its cost. A higher value
	// means fewer moves.
	Margin float64 `json:"margin"`

	// FixedCost is the cost of a move in v5 in addition to its drops, as a share of what a worker
	// does in a second.
	FixedCost float64 `json:"fixed_cost"`

	// Budget limits the voluntary moves of v5 in any minute, as a share of all partitions, but at
	// least five moves. It is three times as much while the cluster drops.
	Budget float64 `json:"budget"`

	// NoReturn is how long v5 does not move a partition back, in seconds.
	NoReturn float64 `json:"no_return_s"`
}

// DefaultParams returns parameters that need no tuning.
func DefaultParams() Params {
	return Params{
		Cycle: 10, Overload: 0.01, GiniHigh: 0.12, GiniLow: 0.08, Friction: 1, FrictionTime: 600,
		Horizon: 300, Margin: 1, FixedCost: 0.2, Budget: 0.06, NoReturn: 600,
	}
}

func (p Params) check() error {
	for name, v := range map[string]float64{
		"cycle_s": p.Cycle, "overload": p.Overload, "gini_high": p.GiniHigh, "gini_low": p.GiniLow,
		"friction": float64(p.Friction), "friction_s": p.FrictionTime, "horizon_s": p.Horizon, "margin": p.Margin,
		"fixed_cost": p.FixedCost, "budget": p.Budget, "no_return_s": p.NoReturn,
	} {
		if !(v >= 0) || v > 1e9 {
			return fmt.Errorf("%s: want a number from 0 to 1e9, have %v", name, v)
		}
	}
	if p.GiniLow > p.GiniHigh || p.GiniHigh > 1 {
		return fmt.Errorf("want 0 <= gini_low <= gini_high <= 1, have %v and %v", p.GiniLow, p.GiniHigh)
	}
	if p.Friction < 1 {
		return fmt.Errorf("friction: want 1 move or more, have %d", p.Friction)
	}
	return nil
}
