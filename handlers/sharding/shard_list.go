package sharding

import (
	"context"

	"procaas/engine"
	"procaas/engine/model"
	"procaas/handlers/sharding/transfers"
)

// ShardList lists the shards of a map, for handlers with for-each.
//
// The response is a list of mappings with map, shard, class, usage, used, capacity, load,
// connections, keys, registration, transfer, closed, draining, master and problem.
//
//	id: shards
//	shard.list: {map: mail}
type ShardList struct {
	tool

	// Map is the shard map. Its default is all maps.
	Map string `yaml:"map"`

	// Class limits the list to shards of a class.
	Class string `yaml:"class"`
}

// Handle implements [engine.Handler].
func (h *ShardList) Handle(ctx context.Context, _ *engine.Call) (model.Result, error) {
	views, err := h.shardsOf(ctx, h.Map, "")
	if err != nil {
		return model.Result{}, err
	}
	kept := []transfers.ShardView{}
	for _, v := range views {
		if h.Class == "" || v.Class == h.Class {
			kept = append(kept, v)
		}
	}
	return model.Result{Response: describe(kept)}, nil
}
