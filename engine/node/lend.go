package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"procaas/engine/clock"
	"procaas/engine/guard"
	"procaas/engine/model"
	"procaas/engine/store"
)

// Nodes lend each other the unused parts of rate limits. A document of the store says which part
// each node has.

const (
	lendEvery  = 250 * time.Millisecond // how often a node checks what it needs
	lendTries  = 5                      // tries if other nodes write at the same time
	splitsKind = "rate-limits"
	splitsName = "shares"
)

// A lender is a node's view of how nodes share limits.
type lender struct {
	n       *node
	splits  guard.Splits
	version int64     // of the document; 0 for none
	read    time.Time // when it was read; zero if it may have changed since
	known   bool      // the other nodes know of this node
}

// lend shares limits with other nodes until the membership ends. A node that has nobody to share with waits until one comes.
func (n *node) lend() {
	l := lender{n: n}
	troubled := false
	for {
		changed, regrouped := n.d.Store.Documents.Changed(), n.d.Guard.Regrouped()
		err := l.turn()
		if err != nil && n.ctx.Err() == nil && !troubled {
			n.d.Metrics.Failed("limits")
			n.log.Warn("parts of rate limits cannot be lent, trying again", "error", err)
		}
		troubled = err != nil
		t := time.NewTimer(lendEvery)
		if n.d.Guard.SharesNothing() {
			t.Stop()
		}
		select {
		case <-n.ctx.Done():
			t.Stop()
			return
		case <-changed:
			l.read = time.Time{}
		case <-regrouped:
		case <-t.C:
		}
		t.Stop()
	}
}

// turn checks what the node needs, and writes the new shares. A single node has nobody to share
// with.
func (l *lender) turn() error {
	ctx, cancel := context.WithTimeout(l.n.ctx, clock.StoreTimeout)
	defer cancel()
	d := l.n.d
	for range lendTries {
		if d.Guard.Nodes.Load() > 1 && time.Since(l.read) >= store.BeatEvery {
			if err := l.look(ctx); err != nil {
				return err
			}
		}
		next, changed := d.Guard.Lend(l.n.number, l.splits, d.Clock.Now())
		if d.Guard.Nodes.Load() < 2 {
			return nil
		}
		if !l.known {
			next, changed = guard.Splits{}, len(l.splits) > 0
		}
		if changed {
			err := l.write(ctx, next)
			if errors.Is(err, store.ErrConflict) {
				l.read = time.Time{}
				continue
			}
			if err != nil {
				l.read = time.Time{} // the outcome of the write is unknown
				return err
			}
		}
		l.known = true
		return nil
	}
	return nil // other nodes have written newer shares
}

// look reads the shares.
func (l *lender) look(ctx context.Context) error {
	began := time.Now()
	doc, err := l.n.d.Store.Documents.Document(ctx, splitsKind, splitsName)
	if errors.Is(err, store.ErrNotFound) {
		l.splits, l.version, l.read = nil, 0, began
		return nil
	}
	if err != nil {
		return err
	}
	if doc.Version != l.version || l.splits == nil {
		l.splits = nil
		if err := json.Unmarshal(doc.Value, &l.splits); err != nil {
			return fmt.Errorf("parts of rate limits: %w", err)
		}
	}
	l.version, l.read = doc.Version, began
	return nil
}

// write writes the new shares.
func (l *lender) write(ctx context.Context, next guard.Splits) error {
	versions, err := l.n.d.Store.Documents.WriteDocuments(ctx, l.n.number, []store.DocumentWrite{
		{Kind: splitsKind, Name: splitsName, Version: l.version, Value: model.EncodeJSON(next)},
	}, nil)
	if err != nil {
		return err
	}
	l.splits, l.version = next, versions[0]
	return nil
}
