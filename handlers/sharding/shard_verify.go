package sharding

import (
	"context"
	_ "embed"

	"procaas/engine"
	"procaas/engine/model"
	"procaas/handlers/sharding/shardmap"
	"procaas/handlers/sharding/transfer"
)

//go:embed shard_verify.go
var shardVerifySource string

// ShardVerify compares all rows of a transfer in source and target, as of one moment,
// while the source is written to.
//
// When they differ it fails, names rows, and copies anew when it is repeated.
//
//	id: verify
//	shard.verify: {}
//	retry: {attempts: 5, on: any}
type ShardVerify struct {
	step

	// Transfer names the transfer; that of the run when it is left out.
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
