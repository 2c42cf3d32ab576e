package sharding

import (
	"context"
	"time"

	"procaas/engine"
	"procaas/engine/model"
)

// ShardSweep ends two-phase registrations that a dead process left behind. It commits a prepared transaction if the
// other side has its part, and rolls it back otherwise. Only maps with two-phase registrations have any.
//
// The response is a list of mappings with map, key, side and committed. side is map, or the name of a shard.
//
//	id: sweep
//	shard.sweep: {older-than: 1m}
type ShardSweep struct {
	tool

	// Map is the shard map. Its default is all maps.
	Map string `yaml:"map"`

	// OlderThan is the age from which a prepared transaction counts as left behind.
	OlderThan time.Duration `yaml:"older-than" default:"1m" min:"1s"`

	// DryRun changes nothing, and returns what would change.
	DryRun bool `yaml:"dry-run"`
}

// Handle implements [engine.Handler].
func (h *ShardSweep) Handle(ctx context.Context, _ *engine.Call) (model.Result, error) {
	maps, err := h.maps(h.Map)
	if err != nil {
		return model.Result{}, err
	}
	out := []any{}
	for _, m := range maps {
		if r := m.Declared.Registration; r == nil || !r.TwoPhase {
			continue
		}
		swept, err := m.Sweep(ctx, h.OlderThan, h.DryRun)
		if err != nil {
			return model.Result{}, err
		}
		for _, s := range swept {
			out = append(out, map[string]any{"map": s.Map, "key": s.Key, "side": s.Side, "committed": s.Committed})
		}
	}
	return model.Result{Response: out}, nil
}
