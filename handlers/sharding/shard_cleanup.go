package sharding

import (
	"context"
	"errors"
	"fmt"

	"procaas/engine"
	"procaas/engine/model"
	"procaas/handlers/sharding/transfer"
	"procaas/handlers/sharding/transfers"
)

// ShardCleanup ends a transfer. It removes replication slots and publications, and deletes the rows
// on the shard that lost the key.
//
// It deletes in small batches with pauses, along the primary key, and vacuums the table after many
// deletions. So the table stays fast for its other keys.
//
//	id: cleanup
//	shard.cleanup: {}
//	retry: {attempts: 0, on: any}
type ShardCleanup struct {
	step

	// Transfer names the transfer. Its default is the transfer of the run.
	Transfer string `yaml:"transfer"`
}

// Handle implements [engine.Handler].
func (h *ShardCleanup) Handle(ctx context.Context, c *engine.Call) (model.Result, error) {
	return h.do(ctx, c, h.Transfer, "cleanup", cleanUp)
}

// cleanUp does the remaining work when a rollback is no longer possible.
func cleanUp(ctx context.Context, t *task) (err error) {
	if !t.view().Switched {
		return fmt.Errorf("%w: it has not switched", transfers.ErrShardOrder)
	}
	if err := t.set(ctx, func(s *transfers.ShardTransfer) { s.State = transfers.TransferCleaning }); err != nil {
		return err
	}
	m, err := t.open(ctx, transfer.Claim{Owner: t.view().ID, Next: t.view().Next}, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	if err := m.Cleanup(ctx); err != nil {
		return err
	}
	state := transfers.TransferDone
	if t.view().Rollback == "done" {
		state = transfers.TransferRolledBack
	}
	t.change(func(s *transfers.ShardTransfer) { s.State, s.Error = state, "" }) // who sees the end must not see what delayed it
	return nil
}
