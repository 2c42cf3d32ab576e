package sharding

import (
	"context"

	"procaas/engine"
	"procaas/engine/model"
	"procaas/handlers/sharding/shardmap"
	"procaas/handlers/sharding/transfer"
)

// ShardCopy copies a snapshot of the rows of a transfer to its target, while services write to the source.
//
// It does nothing if an earlier attempt has copied the rows and the stream can continue from there. A transfer by
// lock-copy-switch copies later, while the key is frozen.
//
//	id: copy
//	shard.copy: {}
type ShardCopy struct {
	step

	// Transfer names the transfer. Its default is the transfer of the run.
	Transfer string `yaml:"transfer"`
}

// Handle implements [engine.Handler].
func (h *ShardCopy) Handle(ctx context.Context, c *engine.Call) (model.Result, error) {
	return h.do(ctx, c, h.Transfer, "copy", func(ctx context.Context, t *task) error {
		if t.view().Method == methodLock {
			return nil
		}
		return t.with(ctx, func(m *transfer.Mover, _ shardmap.Transfer) error { return m.Copy(ctx) })
	})
}
