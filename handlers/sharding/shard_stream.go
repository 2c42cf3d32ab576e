package sharding

import (
	"context"
	_ "embed"

	"procaas/engine"
	"procaas/engine/model"
	"procaas/handlers/sharding/shardmap"
	"procaas/handlers/sharding/transfer"
)

//go:embed shard_stream.go
var shardStreamSource string

// ShardStream applies to the target of a transfer what has changed in the source since
// the copy, until it keeps up.
//
// When the copy has become useless meanwhile, since the server has dropped what is
// needed to go on or a table was truncated, it fails, and copies anew when it is
// repeated.
//
//	id: stream
//	shard.stream: {}
//	retry: {attempts: 0, on: any}
type ShardStream struct {
	step

	// Transfer names the transfer; that of the run when it is left out.
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
