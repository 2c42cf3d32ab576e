package serve

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"procaas/cmd/procaas/internal/serve/stores"
	"procaas/dsl/tree"
	"procaas/engine"
	"procaas/engine/definitions"
	"procaas/engine/postgres"
	"procaas/engine/transfers"
	"procaas/handlers"
	"procaas/handlers/queue"
	"procaas/handlers/sharding"
	"procaas/handlers/sharding/shardmap"
)

// openShards begins to keep the shard maps of a node. They live in the database of the
// store, which must be PostgreSQL.
func (n *Node) openShards(ctx context.Context, b *tree.Bundle) (err error) {
	if !stores.IsPostgres(n.flags.Store) {
		if len(b.ShardMaps) > 0 {
			n.log.Warn("shard maps are not kept: they need a store in PostgreSQL", "maps", len(b.ShardMaps))
		}
		return nil
	}
	const pause = 5 * time.Second // somebody waits for the registration of a key
	n.shards, err = shardmap.Open(ctx, shardmap.Options{
		DSN: n.flags.Store, Maps: b.ShardMaps, Secret: n.secrets.Value, Targets: n.targets,
		HTTP: n.breakers.Guard("registration", n.targets.Client(), pause), Log: n.log, Audit: postgres.WriteAudit,
		Transfers: func(ctx context.Context, shardMap string) ([]transfers.ShardTransfer, error) {
			return transfers.ReadShardTransfers(ctx, n.store.Documents, shardMap)
		},
	})
	n.kept.hash = b.Hash
	return err
}

// types lists the handler types of a node; those of transfers use its shard maps, and
// those of the queue its tasks.
func (n *Node) types() []engine.HandlerType {
	all := queue.Bind(handlers.All(), n.tasks)
	if n.shards == nil {
		return all
	}
	return sharding.Bind(all, n.shards, sharding.BindOptions{})
}

// closeShards lets go of the connections to the shards, if there are any.
func (n *Node) closeShards() {
	if n.shards != nil {
		n.shards.Close()
	}
}

// keepAgain is how long it takes until new shard maps are tried again that could not be taken over.
const keepAgain = time.Second

// keptMaps is which shard maps a node keeps.
type keptMaps struct {
	mu   sync.Mutex // guards hash, and makes one at a time take maps over
	hash string     // of their bundle
}

// keepMaps takes the shard maps of the present bundle over, unless that has been done.
func (n *Node) keepMaps(ctx context.Context) error {
	if n.shards == nil {
		return nil
	}
	n.kept.mu.Lock()
	defer n.kept.mu.Unlock()
	b := n.engine.Bundle()
	if b.Hash == n.kept.hash {
		return nil
	}
	if err := n.shards.Apply(ctx, b.ShardMaps); err != nil {
		return fmt.Errorf("the new shard maps are not taken over yet, those before stay; it is tried again each second: %w", err)
	}
	n.kept.hash = b.Hash
	return nil
}

// checkMaps refuses shard maps that cannot be taken over, before anybody is told of them.
func (n *Node) checkMaps(ctx context.Context, b *tree.Bundle) error {
	if n.shards == nil {
		return nil
	}
	err := n.shards.Check(ctx, b.ShardMaps)
	if _, ok := errors.AsType[*shardmap.MapError](err); ok {
		return &definitions.LoadError{Err: err}
	}
	return err
}

// followShards takes new shard maps over which other nodes have brought, until ctx ends.
func (n *Node) followShards(ctx context.Context) {
	for told := ""; ; {
		again := n.engine.Reloaded()
		var later <-chan time.Time
		err := n.keepMaps(ctx)
		switch {
		case err == nil:
			told = ""
		case ctx.Err() == nil:
			later = time.After(keepAgain) // the store may be away for a moment, or the last key may leave a shard soon
			if told != err.Error() {
				n.log.Error("shard maps", "error", err)
			}
			told = err.Error()
		}
		select {
		case <-ctx.Done():
			return
		case <-again:
		case <-later:
		}
	}
}
