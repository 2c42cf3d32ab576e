package sharding

import "procaas/engine"

// Types lists the handler types of this package: those that look after shards, then those of
// transfers in their order. [Bind] gives them a service.
func Types() []engine.HandlerType {
	return append(toolTypes(), []engine.HandlerType{
		engine.Type[ShardPlan]("shard.plan", shardPlanSource),
		engine.Type[ShardCopy]("shard.copy", shardCopySource),
		engine.Type[ShardStream]("shard.stream", shardStreamSource),
		engine.Type[ShardVerify]("shard.verify", shardVerifySource),
		engine.Type[ShardFreeze]("shard.freeze", shardFreezeSource),
		engine.Type[ShardSwitch]("shard.switch", shardSwitchSource),
		engine.Type[ShardRetire]("shard.retire", shardRetireSource),
		engine.Type[ShardRollback]("shard.rollback", shardRollbackSource),
		engine.Type[ShardCleanup]("shard.cleanup", shardCleanupSource),
		engine.Type[ShardEnd]("shard.end", shardEndSource),
	}...)
}
