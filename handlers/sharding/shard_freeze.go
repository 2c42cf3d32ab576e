package sharding

import (
	"context"

	"procaas/engine"
	"procaas/engine/model"
	"procaas/handlers/sharding/shardmap"
	"procaas/handlers/sharding/transfer"
	"procaas/handlers/sharding/transfers"
)

// ShardFreeze makes the target of a transfer the only shard that takes writes of the key, within
// milliseconds. It freezes the source and waits until the freeze has passed through the stream.
// Then it opens the target and switches the map.
//
// If this takes too long, or this process dies, the source thaws by itself and the handler tries
// again. It freezes the source only when the stream is fast. Before that it compares all rows once
// more, to learn which rows it must compare again during the freeze.
//
//	id: freeze
//	shard.freeze: {}
//	retry: {attempts: 0, on: any}
type ShardFreeze struct {
	step

	// Transfer names the transfer. Its default is the transfer of the run.
	Transfer string `yaml:"transfer"`
}

// Handle implements [engine.Handler].
func (h *ShardFreeze) Handle(ctx context.Context, c *engine.Call) (model.Result, error) {
	return h.do(ctx, c, h.Transfer, "freeze", cutover)
}

// cutover does the remaining work until the map has switched.
func cutover(ctx context.Context, t *task) error {
	return t.with(ctx, func(m *transfer.Mover, tr shardmap.Transfer) (err error) {
		var w transfer.Window
		if t.view().Method == methodLock {
			w, err = m.LockCopySwitch(ctx, t.switcher(tr))
		} else {
			for _, step := range []func(context.Context) error{m.Copy, m.Stream, m.Verify} {
				if err := step(ctx); err != nil {
					return err
				}
			}
			w, err = m.Cutover(ctx, t.switcher(tr))
		}
		if err != nil {
			return err
		}
		t.change(func(s *transfers.ShardTransfer) {
			s.Switched, s.Next = true, tr.Next
			s.WindowMS = float64(w.Frozen.Microseconds()) / 1000
		})
		return nil
	})
}
