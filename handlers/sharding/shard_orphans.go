package sharding

import (
	"context"
	"errors"

	"procaas/engine"
	"procaas/engine/model"
	"procaas/engine/store"
	"procaas/handlers/sharding/transfers"
)

// ShardOrphans lists unfinished transfers whose runs have ended, because somebody cancelled the run or it failed for
// good. Each blocks other transfers of its key, and holds a replication slot, until shard.end ends it.
//
// The response is a list of mappings with map, key, transfer, run, state and switched.
//
//	id: orphans
//	shard.orphans: {}
type ShardOrphans struct {
	tool

	// Map is the shard map. Its default is all maps.
	Map string `yaml:"map"`
}

// Handle implements [engine.Handler].
func (h *ShardOrphans) Handle(ctx context.Context, c *engine.Call) (model.Result, error) {
	if _, err := h.maps(h.Map); err != nil {
		return model.Result{}, err
	}
	if c.RunStatus == nil {
		return model.Result{}, model.Permanent(errors.New("nothing is known of runs here"))
	}
	all, err := transfers.ReadShardTransfers(ctx, c.Documents, h.Map)
	if err != nil {
		return model.Result{}, err
	}
	out := []any{}
	for _, t := range all {
		if transfers.TransferEnded(t.State) {
			continue
		}
		status, err := c.RunStatus(ctx, t.Run)
		if err != nil && !errors.Is(err, store.ErrNotFound) { // the history may no longer have it
			return model.Result{}, err
		}
		if err == nil && !status.Ended() {
			continue
		}
		out = append(out, map[string]any{"map": t.Map, "key": t.Key, "transfer": t.ID, "run": t.Run, "state": t.State, "switched": t.Switched})
	}
	return model.Result{Response: out}, nil
}
