package sharding

import (
	"embed"

	"procaas/dsl/spec"
	"procaas/engine"
)

//go:embed shard_*.go
var typeFiles embed.FS

// Types lists the handler types of this package: those that maintain shards, then those of
// transfers in their order. [Bind] sets their service.
func Types() []engine.HandlerType {
	own := spec.Read(typeFiles)
	return []engine.HandlerType{
		engine.Type[ShardList]("shard.list", own),
		engine.Type[ShardUsage]("shard.usage", own),
		engine.Type[ShardClose]("shard.close", own),
		engine.Type[ShardMoves]("shard.moves", own),
		engine.Type[ShardRun]("shard.run", own),
		engine.Type[ShardSweep]("shard.sweep", own),
		engine.Type[ShardOrphans]("shard.orphans", own),
		engine.Type[ShardPlan]("shard.plan", own),
		engine.Type[ShardCopy]("shard.copy", own),
		engine.Type[ShardStream]("shard.stream", own),
		engine.Type[ShardVerify]("shard.verify", own),
		engine.Type[ShardFreeze]("shard.freeze", own),
		engine.Type[ShardSwitch]("shard.switch", own),
		engine.Type[ShardRetire]("shard.retire", own),
		engine.Type[ShardRollback]("shard.rollback", own),
		engine.Type[ShardCleanup]("shard.cleanup", own),
		engine.Type[ShardEnd]("shard.end", own),
	}
}
