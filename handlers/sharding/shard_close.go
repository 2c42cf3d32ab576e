package sharding

import (
	"context"
	"fmt"
	"strings"

	"procaas/engine"
	"procaas/engine/model"
	"procaas/engine/store"
	"procaas/handlers/sharding/transfers"
)

// ShardClose closes full shards for new keys, and opens them again later. Shards that people have closed stay closed.
//
// The response has the fields closed and opened: lists of mappings with map, shard and usage.
//
//	id: close
//	shard.close: {close-at: 0.75, open-at: 0.7}
type ShardClose struct {
	tool

	// Map is the shard map. Its default is all maps.
	Map string `yaml:"map"`

	// CloseAt is the usage from which a shard takes no new keys.
	CloseAt float64 `yaml:"close-at" default:"0.75" min:"0" max:"1"`

	// OpenAt is the usage below which a shard takes new keys again. It must be below close-at, so that shards do not
	// open and close all the time.
	OpenAt float64 `yaml:"open-at" default:"0.7" min:"0" max:"1"`

	// DryRun changes nothing, and returns what would change.
	DryRun bool `yaml:"dry-run"`
}

// closedByUsage is the prefix of the reason for shards that this handler has closed.
const closedByUsage = "usage "

// Handle implements [engine.Handler].
func (h *ShardClose) Handle(ctx context.Context, c *engine.Call) (model.Result, error) {
	if h.OpenAt > h.CloseAt {
		return model.Result{}, model.Permanent(fmt.Errorf("open-at %v is above close-at %v", h.OpenAt, h.CloseAt))
	}
	views, err := h.shardsOf(ctx, h.Map, "")
	if err != nil {
		return model.Result{}, err
	}
	closed, opened := []any{}, []any{}
	for _, v := range views {
		reason := v.Closed
		told := map[string]any{"map": v.Map, "shard": v.ID, "usage": v.Usage}
		switch {
		case v.Closed == "" && v.Usage >= h.CloseAt:
			reason = fmt.Sprintf("%s%.0f %%", closedByUsage, 100*v.Usage)
			closed = append(closed, told)
		case strings.HasPrefix(v.Closed, closedByUsage) && v.Usage < h.OpenAt:
			reason = ""
			opened = append(opened, told)
		default:
			continue
		}
		if h.DryRun {
			continue
		}
		if _, err := h.service.SetShard(ctx, v.Map, v.ID, transfers.ShardChange{Closed: &reason}, store.Actor{Name: c.Path}); err != nil {
			return model.Result{}, err
		}
	}
	return model.Result{Response: map[string]any{"closed": closed, "opened": opened}}, nil
}
