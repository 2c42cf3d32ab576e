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

// openShards opens the shard maps of a node, in the database of its store. It must be PostgreSQL.
func (n *Node) openShards(ctx context.Context, b *tree.Bundle) (err error) {
	if !stores.IsPostgres(n.flags.Store) {
		if len(b.ShardMaps) > 0 {
			n.log.Warn("shard maps are not kept: they need a store in PostgreSQL", "maps", len(b.ShardMaps))
		}
		return nil
	}
	const pause = 5 * time.Second // someone waits for the registration of a key
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

// types returns the handler types of a node. Those of transfers use its shard maps, and those of the queue its
// tasks.
func (n *Node) types() []engine.HandlerType {
	all := queue.Bind(handlers.All(), n.tasks)
	if n.shards == nil {
		return all
	}
	return sharding.Bind(all, n.shards, sharding.BindOptions{})
}

// closeShards closes the connections to shards, if there are any.
func (n *Node) closeShards() {
	if n.shards != nil {
		n.shards.Close()
	}
}

// keepAgain is the pause before new shard maps are tried again after an error.
const keepAgain = time.Second

// keptMaps are the shard maps that a node uses.
type keptMaps struct {
	mu   sync.Mutex // guards hash, and serializes updates
	hash string     // of their bundle
}

// keepMaps takes over the shard maps of the current bundle, unless it has done so.
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

// checkMaps refuses shard maps that cannot be taken over, before they become current.
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

// followShards takes over new shard maps that other nodes activated, until ctx ends.
func (n *Node) followShards(ctx context.Context) {
	for told := ""; ; {
		again := n.engine.Reloaded()
		var later <-chan time.Time
		err := n.keepMaps(ctx)
		switch {
		case err == nil:
			told = ""
		case ctx.Err() == nil:
			later = time.After(keepAgain) // the error may be temporary
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
