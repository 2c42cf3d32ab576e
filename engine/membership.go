package engine

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
func (e *Engine) lose(err error) {
	if e.loss.why.Swap(&err) == nil {
		e.log.Error("store is refused: this node starts nothing and takes nothing in", "node", e.o.Name, "error", err)
	}
	e.metrics.StoreLost.Set(1)
}

// regain accepts the store again.
func (e *Engine) regain() {
	if e.loss.why.Swap(nil) != nil {
		e.log.Info("store has what it acknowledged again", "node", e.o.Name)
	}
	e.metrics.StoreLost.Set(0)
}

// part finds out, at the end of a membership, whether the node was fenced by others or by a
// store that was set back. It returns when the store is fit to be joined, or ctx has ended.
func (e *Engine) part(ctx context.Context) {
	for backoff := rejoinPause; ; backoff = min(2*backoff, longestPoll) {
		if e.isFit(ctx, e.known.Number()) || !clock.Pause(ctx, backoff) {
			return
		}
	}
}

// isFit asks the store once. While it is refused nothing is written to it, not even a beat.
func (e *Engine) isFit(ctx context.Context, node int64) bool {
	ctx, cancel := context.WithTimeout(ctx, clock.StoreTimeout)
	defer cancel()
	if e.loss.state() != nil {
		nodes, err := e.o.Store.Ledger.Nodes(ctx)
		if err != nil || !e.known.KnownTo(nodes) {
			return false
		}
		e.regain()
	}
	b, err := e.o.Store.Ledger.Beat(ctx, node, e.o.Lease, e.Bundle().Hash)
	switch err = e.known.Check(node, b, err); {
	case errors.Is(err, store.ErrLost):
		e.lose(err)
	case err == nil: // it is there after all: nobody need wait for the end of its lease
		err = e.o.Store.Ledger.Leave(ctx, node, nil)
	}
	return err == nil || errors.Is(err, store.ErrFenced)
}
