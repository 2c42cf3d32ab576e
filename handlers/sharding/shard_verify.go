package sharding

import (
	"context"

	"procaas/engine"
	"procaas/engine/model"
	"procaas/handlers/sharding/shardmap"
	"procaas/handlers/sharding/transfer"
)

// ShardVerify compares all rows of a transfer in source and target, as of one moment, while
// services write to the source.
//
// If rows differ, it fails and names them. A retry copies again.
//
//	id: verify
//	shard.verify: {}
//	retry: {attempts: 5, on: any}
type ShardVerify struct {
	step

	// Transfer names the transfer. Its default is the transfer of the run.
	Transfer string `yaml:"transfer"`
}

// Handle implements [engine.Handler].
func (h *ShardVerify) Handle(ctx context.Context, c *engine.Call) (model.Result, error) {
	return h.do(ctx, c, h.Transfer, "verify", func(ctx context.Context, t *task) error {
		if t.view().Method == methodLock {
			return nil
		}
		return t.with(ctx, func(m *transfer.Mover, _ shardmap.Transfer) error {
			if err := m.Copy(ctx); err != nil {
				return err
			}
			if err := m.Stream(ctx); err != nil {
				return err
			}
			return m.Verify(ctx)
		})
	})
}
