package main

import (
	"context"
	"time"

	"procaas/dsl"
	"procaas/engine"
	"procaas/engine/postgres"
	"procaas/handlers"
	"procaas/handlers/queue"
	"procaas/handlers/sharding"
)

// openShards begins to keep the shard maps of a node. They live in the database of the
// store, which must be PostgreSQL.
func (n *node) openShards(ctx context.Context, b *dsl.Bundle) (err error) {
	if !isPostgres(n.flags.store) {
		if len(b.ShardMaps) > 0 {
			n.log.Warn("shard maps are not kept: they need a store in PostgreSQL", "maps", len(b.ShardMaps))
		}
		return nil
	}
	n.shards, err = sharding.Open(ctx, sharding.Options{
		DSN: n.flags.store, Maps: b.ShardMaps, Secret: n.secrets.value, Targets: n.targets, HTTP: n.targets.Client(), Log: n.log, Audit: postgres.WriteAudit,
		Transfers: func(ctx context.Context, shardMap string) ([]engine.ShardTransfer, error) {
			return engine.ReadShardTransfers(ctx, n.store, shardMap)
		},
	})
	return err
}

// types lists the handler types of a node; those of transfers use its shard maps, and
// those of the queue its tasks.
func (n *node) types() []engine.HandlerType {
	all := queue.Bind(handlers.All(), n.tasks)
	if n.shards == nil {
		return all
	}
	return sharding.Bind(all, n.shards, sharding.BindOptions{})
}

// closeShards lets go of the connections to the shards, if there are any.
func (n *node) closeShards() {
	if n.shards != nil {
		n.shards.Close()
	}
}

// lookForMaps is how often a node looks whether its pipelines, and with them its shard maps,
// have been replaced.
const lookForMaps = time.Second

// followShards takes new shard maps over, until ctx ends. have is the hash of the bundle
// whose maps are kept so far.
func (n *node) followShards(ctx context.Context, have string) {
	if n.shards == nil {
		return
	}
	tick := time.NewTicker(lookForMaps)
	defer tick.Stop()
	for refused := ""; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		b := n.engine.Bundle()
		if b.Hash == have {
			continue
		}
		if err := n.shards.Apply(ctx, b.ShardMaps); err != nil {
			if refused != b.Hash && ctx.Err() == nil {
				n.log.Error("new shard maps are not taken over, those before stay; it is tried again each second", "error", err)
			}
			refused = b.Hash // the store may be away for a moment, or the last key may leave a shard soon
			continue
		}
		have = b.Hash
	}
}
