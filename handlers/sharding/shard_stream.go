package sharding

import (
	"context"

	"procaas/engine"
	"procaas/engine/model"
	"procaas/handlers/sharding/shardmap"
	"procaas/handlers/sharding/transfer"
)

// ShardStream applies changes of the source since the copy to the target of a transfer, until the target keeps up.
//
// It fails if the copy has become useless, because the server dropped its replication data or somebody truncated a
// table. A retry copies again.
//
//	id: stream
//	shard.stream: {}
//	retry: {attempts: 0, on: any}
type ShardStream struct {
	step

	// Transfer names the transfer. Its default is the transfer of the run.
	Transfer string `yaml:"transfer"`
}

// Handle implements [engine.Handler].
func (h *ShardStream) Handle(ctx context.Context, c *engine.Call) (model.Result, error) {
	return h.do(ctx, c, h.Transfer, "stream", func(ctx context.Context, t *task) error {
		if t.view().Method == methodLock {
			return nil
		}
		return t.with(ctx, func(m *transfer.Mover, _ shardmap.Transfer) error {
			if err := m.Copy(ctx); err != nil {
				return err
			}
			return m.Stream(ctx)
		})
	})
}
