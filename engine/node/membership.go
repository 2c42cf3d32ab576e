package node

import (
	"context"
	"errors"
	"sync/atomic"

	"procaas/engine/clock"
	"procaas/engine/store"
)

// A storeLoss is why the engine refuses its store; nil inside while it does not.
type storeLoss struct{ why atomic.Pointer[error] }

// state is the reason.
func (l *storeLoss) state() error {
	if err := l.why.Load(); err != nil {
		return *err
	}
	return nil
}

// lose refuses the store from now on, and says so.
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

// part finds out, at the end of a membership, whether the node was fenced by others or by a
// store that was set back. It returns when the store is fit to be joined, or ctx has ended.
func (d *Driver) part(ctx context.Context) {
	for backoff := rejoinPause; ; backoff = min(2*backoff, longestPoll) {
		if d.isFit(ctx, d.known.Number()) || !clock.Pause(ctx, backoff) {
			return
		}
	}
}

// isFit asks the store once. While it is refused nothing is written to it, not even a beat.
func (d *Driver) isFit(ctx context.Context, node int64) bool {
	ctx, cancel := context.WithTimeout(ctx, clock.StoreTimeout)
	defer cancel()
	if d.loss.state() != nil {
		nodes, err := d.Store.Ledger.Nodes(ctx)
		if err != nil || !d.known.KnownTo(nodes) {
			return false
		}
		d.regain()
	}
	b, err := d.Store.Ledger.Beat(ctx, node, d.Lease, d.Library.Present().Bundle.Hash)
	switch err = d.known.Check(node, b, err); {
	case errors.Is(err, store.ErrLost):
		d.lose(err)
	case err == nil: // it is there after all: nobody need wait for the end of its lease
		err = d.Store.Ledger.Leave(ctx, node, nil)
	}
	return err == nil || errors.Is(err, store.ErrFenced)
}
