package sharding

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"procaas/engine"
	"procaas/engine/model"
	"procaas/handlers/sharding/shardmap"
)

// ShardRun runs SQL on the master of a shard, in one transaction: a migration of its schema, or a
// regular job. Use for-each over shard.list to run it on all shards of a map.
//
// SQL with a name runs once on each shard, which records the name in the same transaction. So after
// an interruption, a second run continues with the other shards.
//
// Tables without a schema are in public, or in the search_path of the parameters in the map's
// connect.
//
// The response has the fields map, shard, done and rows. done is false if the shard had run it
// before. rows counts the rows that the last statement changed.
//
//	id: migrate
//	for-each: {items: !$ sources.shards.response, max-parallel: 4}
//	shard.run:
//	  map: !$ item.map
//	  shard: !$ item.shard
//	  name: 0007-add-flags
//	  sql: alter table messages add column flags int not null default 0
type ShardRun struct {
	tool

	// Map is the shard map.
	Map string `yaml:"map" required:"true"`

	// Shard is the shard.
	Shard string `yaml:"shard" required:"true"`

	// Name makes the SQL run once on each shard. Without it, the SQL runs each time.
	Name string `yaml:"name"`

	// SQL is the SQL to run: one statement, or several separated by semicolons.
	SQL string `yaml:"sql" required:"true"`

	// DryRun rolls the transaction back.
	DryRun bool `yaml:"dry-run"`
}

// markRun records a run. It waits for another process that is about to run the same.
const markRun = `insert into procaas.migrations (name) values ($1) on conflict do nothing`

// errDry rolls a dry run back.
var errDry = fmt.Errorf("dry run")

// Handle implements [engine.Handler].
func (h *ShardRun) Handle(ctx context.Context, _ *engine.Call) (model.Result, error) {
	maps, err := h.maps(h.Map)
	if err != nil {
		return model.Result{}, err
	}
	pool, err := h.service.Connect(ctx, maps[0], h.Shard)
	if errors.Is(err, shardmap.ErrUnknownShard) {
		return model.Result{}, model.Permanent(err)
	}
	if err != nil {
		return model.Result{}, err
	}
	pooled, err := pool.Acquire(ctx)
	if err != nil {
		return model.Result{}, fmt.Errorf("map %s: shard %s: %w", h.Map, h.Shard, err)
	}
	// It does not go back to the pool, because the SQL may have changed settings of its session,
	// such as the search path.
	conn := pooled.Hijack()
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	done, rows := true, int64(0)
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if h.Name != "" {
			tag, err := tx.Exec(ctx, markRun, "run/"+h.Map+"/"+h.Name)
			if err != nil {
				return err
			}
			done = tag.RowsAffected() > 0
			if !done {
				return nil
			}
		}
		results, err := tx.Conn().PgConn().Exec(ctx, h.SQL).ReadAll()
		if err != nil {
			return err
		}
		if tx.Conn().PgConn().TxStatus() != 'T' {
			return model.Permanent(errors.New("the SQL has ended its transaction: leave out commit and rollback"))
		}
		if len(results) > 0 {
			rows = results[len(results)-1].CommandTag.RowsAffected()
		}
		if h.DryRun {
			return errDry
		}
		return nil
	})
	if err != nil && !errors.Is(err, errDry) {
		return model.Result{}, fmt.Errorf("map %s: shard %s: %w", h.Map, h.Shard, err)
	}
	return model.Result{Response: map[string]any{"map": h.Map, "shard": h.Shard, "done": done, "rows": int(rows)}}, nil
}
