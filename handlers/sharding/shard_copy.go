package sharding

import (
	"context"
	_ "embed"

	"procaas/engine"
	"procaas/engine/model"
	"procaas/handlers/sharding/shardmap"
	"procaas/handlers/sharding/transfer"
)

//go:embed shard_copy.go
var shardCopySource string

// ShardCopy copies the rows of a transfer to its target, as of one moment, while the
// source is written to.
//
// When it has done so before and the stream can go on from there, it does nothing. A
// transfer by lock-copy-switch copies later, while it is frozen.
//
//	id: copy
//	shard.copy: {}
type ShardCopy struct {
	step

	// Transfer names the transfer; that of the run when it is left out.
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
