package sharding

import (
	"context"
	_ "embed"
	"time"

	"procaas/engine"
	"procaas/engine/model"
)

//go:embed shard_sweep.go
var shardSweepSource string

// ShardSweep ends registrations in two phases that were left behind by a process that died:
// a prepared transaction is committed when the other side has its part, and rolled back
// otherwise. Only maps that register so have any.
//
// The response is a list of mappings with map, key, side, which is map or the name of a
// shard, and committed.
//
//	id: sweep
//	shard.sweep: {older-than: 1m}
type ShardSweep struct {
	tool

	// Map is the shard map; all when it is left out.
	Map string `yaml:"map"`

	// OlderThan is the age from which a prepared transaction counts as left behind.
	OlderThan time.Duration `yaml:"older-than" default:"1m" min:"1s"`

	// DryRun changes nothing, and tells what would be.
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
