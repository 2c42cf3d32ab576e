package sharding

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"sync"

	"procaas/engine"
	"procaas/engine/model"
)

//go:embed shard_usage.go
var shardUsageSource string

// ShardUsage measures how full and how busy the shards are, and writes it down in the map:
// new keys and transfers go by it.
//
// The response has the fields shards, as shard.list gives them, and failed, which lists the
// shards that did not answer with map, shard and error. They keep what was measured before.
//
//	id: measure
//	shard.usage: {map: mail}
type ShardUsage struct {
	tool

	// Map is the shard map; all when it is left out.
	Map string `yaml:"map"`
}

const (
	readUsage = `select pg_database_size(current_database()), count(*) filter (where state = 'active' and pid <> pg_backend_pid())::real,
		count(*)::int, current_setting('max_connections')::int from pg_stat_activity where backend_type = 'client backend'`

	// The load of a moment says little: it is evened out over some measurements.
	writeUsage = `update shards set used = $3, load = case when measured > now() - interval '2 hours' then (coalesce(load, $4) + $4) / 2 else $4 end,
		connections = $5, max_connections = $6, measured = now() where map = $1 and id = $2`
)

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

// measureAtOnce is how many shards are measured at the same time. Those that do not answer take seconds
// each: one after the other, a dozen of them would use up the time of the handler, and with it the
// measurements of all the others.
const measureAtOnce = 16

// measureAll measures all shards of some maps, and gives what went wrong by the map and the shard.
func measureAll(ctx context.Context, maps []*Map) map[[2]string]error {
	var mu sync.Mutex // guards errs
	errs := map[[2]string]error{}
	var work sync.WaitGroup
	slots := make(chan struct{}, measureAtOnce) // one for each that is being measured
	for _, m := range maps {
		for _, d := range m.Declared.Shards {
			slots <- struct{}{}
			work.Go(func() {
				defer func() { <-slots }()
				if err := m.measure(ctx, d.ID); err != nil {
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

// measure finds out how full and how busy a shard is.
func (m *Map) measure(ctx context.Context, shard string) error {
	pool, err := m.service.Connect(ctx, m, shard)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*m.service.patience())
	defer cancel()
	var used int64
	var load float32
	var connections, most int
	if err := pool.QueryRow(ctx, readUsage).Scan(&used, &load, &connections, &most); err != nil {
		return errors.Join(err, ctx.Err())
	}
	_, err = m.service.pool.Exec(ctx, writeUsage, m.ID, shard, used, load, connections, most)
	return err
}
