package sharding

import (
	"context"
	_ "embed"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"procaas/engine"
	"procaas/engine/model"
	"procaas/handlers/sharding/shardmap"
)

//go:embed shard_run.go
var shardRunSource string

// ShardRun runs SQL on the master of a shard, in one transaction: a migration of its schema,
// or a regular job. With for-each over shard.list it works on all shards of a map.
//
// What has a name is done once on each shard: it is noted there in the same transaction. So
// a list of shards that was cut short goes on with those that are left.
//
// Tables without a schema are those of public, or of the search_path among the parameters of
// the map's connect.
//
// The response has the fields map, shard, done, which is false when it was done before, and
// rows, the rows that the last statement has changed.
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

	// Name makes the SQL run once on each shard; it runs each time when it is left out.
	Name string `yaml:"name"`

	// SQL is what to run: one statement, or several separated by semicolons.
	SQL string `yaml:"sql" required:"true"`

	// DryRun rolls back what was run.
	DryRun bool `yaml:"dry-run"`
}

// markRun notes what was run; waiting for the one who is about to run the same.
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
	// It does not go back to the pool: the SQL may have changed settings of its session, such as the search path.
	conn := pooled.Hijack()
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	done, rows := true, int64(0)
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if h.Name != "" {
			tag, err := tx.Exec(ctx, markRun, "run/"+h.Map+"/"+h.Name)
			if err != nil {
				return err
			}
			if done = tag.RowsAffected() > 0; !done {
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
