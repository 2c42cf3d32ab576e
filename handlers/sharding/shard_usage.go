package sharding

import (
	"context"
	"fmt"
	"sync"

	"procaas/engine"
	"procaas/engine/model"
	"procaas/handlers/sharding/shardmap"
)

// ShardUsage measures how full and how busy the shards are. Dead rows and free space in tables do not
// count, so the usage falls when keys leave. It stores the numbers in the map, for
// placing new keys and for transfers.
//
// The response has the fields shards, as in shard.list, and failed. failed lists the shards that
// did not answer, with map, shard and error. They keep their earlier numbers.
//
//	id: measure
//	shard.usage: {map: mail}
type ShardUsage struct {
	tool

	// Map is the shard map. Its default is all maps.
	Map string `yaml:"map"`
}

// Handle implements [engine.Handler].
func (h *ShardUsage) Handle(ctx context.Context, _ *engine.Call) (model.Result, error) {
	maps, err := h.maps(h.Map)
	if err != nil {
		return model.Result{}, err
	}
	failed, errs := []any{}, measureAll(ctx, maps)
	var last error
	total := 0
	for _, m := range maps {
		for _, d := range m.Declared.Shards {
			total++
			if err := errs[[2]string{m.ID, d.ID}]; err != nil {
				last = err
				failed = append(failed, map[string]any{"map": m.ID, "shard": d.ID, "error": err.Error()})
			}
		}
	}
	if total > 0 && len(failed) == total {
		return model.Result{}, fmt.Errorf("no shard answers: %w", last)
	}
	views, err := h.shardsOf(ctx, h.Map, "")
	if err != nil {
		return model.Result{}, err
	}
	return model.Result{Response: map[string]any{"shards": describe(views), "failed": failed}}, nil
}

// measureAtOnce is how many shards are measured at the same time. A shard that does not answer
// takes seconds. One after another, a dozen of them would use up the handler's time and prevent the
// other measurements.
const measureAtOnce = 16

// measureAll measures all shards of some maps, and returns errors by map and shard.
func measureAll(ctx context.Context, maps []*shardmap.Map) map[[2]string]error {
	var mu sync.Mutex // guards errs
	errs := map[[2]string]error{}
	var work sync.WaitGroup
	slots := make(chan struct{}, measureAtOnce) // one per measurement in flight
	for _, m := range maps {
		for _, d := range m.Declared.Shards {
			slots <- struct{}{}
			work.Go(func() {
				defer func() { <-slots }()
				if err := (shardmap.Usage{Map: m}).Measure(ctx, d.ID); err != nil {
					mu.Lock()
					defer mu.Unlock()
					errs[[2]string{m.ID, d.ID}] = err
				}
			})
		}
	}
	work.Wait()
	return errs
}
