package node

import (
	"context"
	"errors"
	"sync/atomic"

	"procaas/engine/clock"
	"procaas/engine/store"
)

// A storeLoss is why the engine refuses its store. It is nil inside while the store is fine.
type storeLoss struct{ why atomic.Pointer[error] }

// state returns the reason, or nil.
func (l *storeLoss) state() error {
	if err := l.why.Load(); err != nil {
		return *err
	}
	return nil
}

// lose refuses the store from now on, and logs it.
func (d *Driver) lose(err error) {
	if d.loss.why.Swap(&err) == nil {
		d.Log.Error("store is refused: this node starts nothing and takes nothing in", "node", d.Name, "error", err)
	}
	d.Metrics.StoreLost.Set(1)
}

// regain accepts the store again.
func (d *Driver) regain() {
	if d.loss.why.Swap(nil) != nil {
		d.Log.Info("store has what it acknowledged again", "node", d.Name)
	}
	d.Metrics.StoreLost.Set(0)
}

// part finds out, at the end of a membership, whether other nodes fenced this one or the store was
// set back. It returns when the store can be joined, or when ctx has ended. The error is
// [store.ErrAdopted].
func (d *Driver) part(ctx context.Context) error {
	for backoff := rejoinPause; ; backoff = min(2*backoff, longestPoll) {
		fit, err := d.isFit(ctx, d.known.Number())
		if errors.Is(err, store.ErrAdopted) {
			return err
		}
		if fit || !clock.Pause(ctx, backoff) {
			return nil
		}
	}
}

// isFit checks the store once. While the store is refused, nothing is written to it, not even a
// beat.
func (d *Driver) isFit(ctx context.Context, node int64) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, clock.StoreTimeout)
	defer cancel()
	if d.loss.state() != nil {
		nodes, err := d.Store.Ledger.Nodes(ctx)
		if err != nil || !d.known.KnownTo(nodes) {
			return false, err
		}
	}
	b, err := d.Store.Ledger.Beat(ctx, node, d.Lease, d.Library.Present().Bundle.Hash)
	switch err = d.known.Check(node, b, err); {
	case errors.Is(err, store.ErrLost):
		d.lose(err)
	case err == nil || errors.Is(err, store.ErrFenced):
		d.regain()
	}
	if err == nil { // the node is known after all: release its runs before its lease ends
		err = d.Store.Ledger.Leave(ctx, node, nil)
	}
	return err == nil || errors.Is(err, store.ErrFenced), err
}
