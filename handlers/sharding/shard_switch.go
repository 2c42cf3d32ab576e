package sharding

import (
	"context"
	"errors"

	"procaas/engine"
	"procaas/engine/model"
	"procaas/handlers/sharding/transfer"
)

// ShardSwitch ensures that the map names the target of a transfer, and records the new place of the
// key on the source.
//
// shard.freeze already switches the map. shard.switch completes that after an interruption.
//
//	id: switch
//	shard.switch: {}
//	retry: {attempts: 0, on: any}
type ShardSwitch struct {
	step

	// Transfer names the transfer. Its default is the transfer of the run.
	Transfer string `yaml:"transfer"`
}

// Handle implements [engine.Handler].
func (h *ShardSwitch) Handle(ctx context.Context, c *engine.Call) (model.Result, error) {
	return h.do(ctx, c, h.Transfer, "switch", func(ctx context.Context, t *task) (err error) {
		if err := cutover(ctx, t); err != nil {
			return err
		}
		return retire(ctx, t)
	})
}

// retire tells the source where the key has gone.
func retire(ctx context.Context, t *task) (err error) {
	m, err := t.open(ctx, transfer.Claim{Owner: t.view().ID, Next: t.view().Next}, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	return m.Retire(ctx)
}
