package sharding

import (
	"context"
	"errors"
	"time"

	"procaas/engine"
	"procaas/engine/model"
	"procaas/handlers/sharding/transfer"
	"procaas/handlers/sharding/transfers"
)

// ShardRetire keeps the source of a transfer up to date for some time after the switch, so that a
// rollback loses nothing.
//
// It ends after the grace period, or when an operator finishes the transfer or rolls it back. For a
// rollback, rollback in its response is true. If a rollback becomes impossible, it records this in
// the transfer and ends.
//
//	id: retire
//	shard.retire: {grace: 15m}
//	retry: {attempts: 0, on: any}
type ShardRetire struct {
	step

	// Transfer names the transfer. Its default is the transfer of the run.
	Transfer string `yaml:"transfer"`

	// Grace is how long operators can roll the transfer back.
	Grace time.Duration `yaml:"grace" default:"15m" min:"0s" max:"48h"`
}

// followFor is how long one pass of following the target lasts.
const followFor = 500 * time.Millisecond

// Handle implements [engine.Handler].
func (h *ShardRetire) Handle(ctx context.Context, c *engine.Call) (model.Result, error) {
	var rollback bool
	r, err := h.do(ctx, c, h.Transfer, "retire", func(ctx context.Context, t *task) error {
		order, _, err := t.order(ctx)
		if err != nil {
			return err
		}
		rollback = order == transfers.OrderRollback && t.view().Switched
		if rollback || order == transfers.OrderFinish {
			return nil
		}
		if !t.view().Switched || t.view().Method == methodLock || t.view().OneWay || h.Grace == 0 {
			return t.set(ctx, func(s *transfers.ShardTransfer) { s.Rollback = "nothing was kept for it" })
		}
		return h.observe(ctx, t)
	})
	if response, ok := r.Response.(map[string]any); ok {
		response["rollback"] = rollback
	}
	return r, err
}

func (h *ShardRetire) observe(ctx context.Context, t *task) (err error) {
	err = t.set(ctx, func(s *transfers.ShardTransfer) {
		s.State = transfers.TransferObserving
		if s.Observe.IsZero() {
			s.Rollback, s.Observe = "possible", t.call.Now.Add(h.Grace)
		}
	})
	if err != nil {
		return err
	}
	left := t.view().Observe.Sub(t.call.Now)
	until := time.Now().Add(left)
	m, err := t.open(ctx, transfer.Claim{Owner: t.view().ID, Next: t.view().Next}, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	if err := m.Settle(ctx); err != nil {
		return err
	}
	for time.Now().Before(until) {
		err := m.Follow(ctx, min(followFor, time.Until(until)))
		if transfer.Hopeless(err) {
			return t.set(ctx, func(s *transfers.ShardTransfer) { s.Rollback = err.Error() })
		}
		if err != nil {
			return err
		}
	}
	return t.set(ctx, func(s *transfers.ShardTransfer) { s.Rollback = "the grace period is over" })
}
