package sharding

import (
	"context"
	"errors"

	"procaas/engine"
	"procaas/engine/model"
	"procaas/handlers/sharding/shardmap"
	"procaas/handlers/sharding/transfer"
	"procaas/handlers/sharding/transfers"
)

// ShardRollback moves the key of a transfer back to its source, with everything that services wrote
// to the target since the switch. Writers are blocked for milliseconds.
//
//	id: rollback
//	shard.rollback: {}
//	retry: {attempts: 0, on: any}
type ShardRollback struct {
	step

	// Transfer names the transfer. Its default is the transfer of the run.
	Transfer string `yaml:"transfer"`
}

// Handle implements [engine.Handler].
func (h *ShardRollback) Handle(ctx context.Context, c *engine.Call) (model.Result, error) {
	return h.do(ctx, c, h.Transfer, "rollback", rollBack)
}

// rollBack returns the key to the source.
func rollBack(ctx context.Context, t *task) (err error) {
	now := t.view()
	tr, err := t.m.BeginTransfer(ctx, shardmap.Begin{Key: now.Key, Target: now.Source, Transfer: now.ID + "_back", Force: true})
	if err != nil {
		return err
	}
	m, err := t.open(ctx, transfer.Claim{Owner: tr.Owner, Epoch: tr.Epoch, Next: tr.Next}, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	if !tr.Switched {
		if err := m.Claim(ctx); err != nil {
			return err
		}
		err := m.Stream(ctx)
		var w transfer.Window
		if err == nil {
			w, err = m.Cutover(ctx, t.switcher(tr))
		}
		if transfer.Hopeless(err) {
			// The target keeps the key. What is left to do is to release the slot, and to delete the rows on the source.
			return errors.Join(t.m.Abort(ctx, tr), t.set(ctx, func(s *transfers.ShardTransfer) { s.Rollback = "impossible: " + err.Error() }))
		}
		if err != nil {
			return err
		}
		t.change(func(s *transfers.ShardTransfer) { s.WindowMS = float64(w.Frozen.Microseconds()) / 1000 })
	}
	if err := m.Retire(ctx); err != nil {
		return err
	}
	t.change(func(s *transfers.ShardTransfer) {
		s.Rollback, s.Next, s.State = "done", tr.Next, transfers.TransferCleaning
	})
	return nil
}
