package sharding

import (
	"context"

	"procaas/engine"
	"procaas/engine/model"
	"procaas/handlers/sharding/transfers"
)

// ShardEnd ends a transfer whose run has ended. Before the switch of the map it undoes the transfer: the source keeps
// the key, and the target keeps nothing. After the switch it completes the transfer. It first does a rollback that an
// operator has ordered.
//
//	id: end
//	shard.end:
//	  transfer: !$ event.payload.transfer
type ShardEnd struct {
	step

	// Transfer names the transfer.
	Transfer string `yaml:"transfer" required:"true"`
}

// Handle implements [engine.Handler].
func (h *ShardEnd) Handle(ctx context.Context, c *engine.Call) (model.Result, error) {
	t, err := h.task(ctx, c, h.Transfer)
	if err != nil || transfers.TransferEnded(t.t.State) {
		return t.result(err)
	}
	if t.t.Waits != "" { // it has not begun
		return t.result(t.set(ctx, func(s *transfers.ShardTransfer) { s.State = transfers.TransferCancelled }))
	}
	order, version, err := t.order(ctx)
	if err != nil {
		return model.Result{}, err
	}
	t.change(func(s *transfers.ShardTransfer) { s.Run = c.Run })
	return t.result(t.work(ctx, "end", version, func(ctx context.Context, t *task) error {
		if !t.view().Switched {
			err := t.giveUp(ctx, transfers.TransferCancelled)
			if !t.view().Switched { // the map may have said otherwise
				return err
			}
		}
		end := []func(context.Context, *task) error{retire, cleanUp}
		if order == transfers.OrderRollback && t.view().Rollback != "done" {
			end[0] = rollBack
		}
		for _, do := range end {
			if err := do(ctx, t); err != nil {
				return err
			}
		}
		return nil
	}))
}
