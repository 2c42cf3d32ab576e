package sharding

import (
	"context"
	"fmt"

	"procaas/engine/model"
	"procaas/handlers/sharding/shardmap"
	"procaas/handlers/sharding/transfers"
)

// A tool is what the handler types that maintain shards share.
type tool struct{ service *shardmap.Service }

func (t *tool) bind(service *shardmap.Service, _ BindOptions) { t.service = service }

// maps returns the map of a name, or all maps for an empty one.
func (t *tool) maps(id string) ([]*shardmap.Map, error) {
	if t.service == nil {
		return nil, model.Permanent(errNoService)
	}
	if id == "" {
		return t.service.Maps(), nil
	}
	m, err := t.service.Map(id)
	if err != nil {
		return nil, model.Permanent(err)
	}
	return []*shardmap.Map{m}, nil
}

// shardsOf lists the shards that a handler works on: one, or all of the maps.
func (t *tool) shardsOf(ctx context.Context, id, shard string) ([]transfers.ShardView, error) {
	maps, err := t.maps(id)
	if err != nil {
		return nil, err
	}
	var out []transfers.ShardView
	for _, m := range maps {
		views, err := m.ShardViews(ctx, shard)
		if err != nil {
			return nil, err
		}
		if shard != "" && len(views) == 0 && id != "" {
			return nil, model.Permanent(fmt.Errorf("map %s: %w %q", m.ID, shardmap.ErrUnknownShard, shard))
		}
		out = append(out, views...)
	}
	return out, nil
}

// describe returns what expressions read about shards.
func describe(views []transfers.ShardView) []any {
	out := make([]any, len(views))
	for i, v := range views {
		out[i] = map[string]any{
			"map": v.Map, "shard": v.ID, "class": v.Class, "usage": v.Usage, "used": int(v.Used), "capacity": int(v.Capacity),
			"keys": int(v.Placements),
			"load": v.Load, "connections": v.Connections,
			"registration": v.Registration, "transfer": v.Transfer, "closed": v.Closed, "draining": v.Draining, "master": v.Master,
			"problem": v.Problem,
		}
	}
	return out
}
