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

// Nodes lend each other the parts of rate limits that they do not use. Which part each has is in a document of the store.

const (
	lendEvery  = 250 * time.Millisecond // how often a node looks at what it needs
	lendTries  = 5                      // when others write at the same moment
	splitsKind = "rate-limits"
	splitsName = "shares"
)

// A lender is what a node knows of how limits are shared.
type lender struct {
	n       *node
	splits  guard.Splits
	version int64     // of the document; 0 for none
	read    time.Time // when it was; zero when it may have changed since
	known   bool      // others have been told that the node is there
}

// lend shares limits with other nodes until the membership ends.
func (n *node) lend() {
	l := lender{n: n}
	troubled := false
	for {
		changed := n.d.Store.Documents.Changed()
		err := l.turn()
		if err != nil && n.ctx.Err() == nil && !troubled {
			n.d.Metrics.Failed("limits")
			n.log.Warn("parts of rate limits cannot be lent, trying again", "error", err)
		}
		troubled = err != nil
		t := time.NewTimer(lendEvery)
		select {
		case <-n.ctx.Done():
			t.Stop()
			return
		case <-changed:
			l.read = time.Time{}
		case <-t.C:
		}
		t.Stop()
	}
}

// turn looks at what the node needs, and writes what follows. A node that is alone has nobody to lend to.
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
				l.read = time.Time{} // nobody knows whether it was written
				return err
			}
		}
		l.known = true
		return nil
	}
	return nil // others write all the time; they have told something new
}

// look reads how limits are shared.
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

// write tells the others how limits are shared from now on.
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
