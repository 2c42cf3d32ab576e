package enginetest_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"procaas/engine/model"
	"procaas/engine/store"
)

// A deadly store counts the I/Os of the engine that works with it, and ends the
// process at one of them.
type deadly struct {
	store.Store
	of    string // the kind of I/O that at counts; empty for all
	at    int    // counted from 1; 0 for none
	after bool
	count atomic.Int64

	counted atomic.Int64 // of the kind that at counts
}

// io does one I/O.
func (d *deadly) io(op string, do func()) {
	n := int(d.count.Add(1))
	if d.of != "" {
		n = 0
		if op == d.of {
			n = int(d.counted.Add(1))
		}
	}
	if n > 0 && n == d.at && !d.after {
		die("before " + op)
	}
	do()
	if n > 0 && n == d.at && d.after {
		die("after " + op)
	}
}

// die ends the process as a kill would: nothing is flushed, closed or given back.
func die(when string) {
	fmt.Println("\n" + sweepDied + when)
	os.Exit(1)
}

// between counts calls on their way to a service.
func (d *deadly) between(service http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.io("call", func() { service.ServeHTTP(w, r) })
	})
}

// ports returns the store that counts.
func (d *deadly) ports() store.Store {
	db := d.Store
	db.Inbox, db.Ledger, db.Bundles = deadlyInbox{db.Inbox, d}, deadlyLedger{db.Ledger, d}, deadlyBundles{db.Bundles, d}
	if db.Waker != nil {
		db.Waker = deadlyWaker{db.Waker, d}
	}
	return db
}

// The ports whose I/O is counted.
type (
	deadlyInbox struct {
		store.Inbox
		*deadly
	}
	deadlyLedger struct {
		store.Ledger
		*deadly
	}
	deadlyBundles struct {
		store.Bundles
		*deadly
	}
	deadlyWaker struct {
		store.Waker
		*deadly
	}
)

// Wake implements [store.Waker].
func (d deadlyWaker) Wake() <-chan struct{} {
	hints := make(chan struct{}, 1)
	go func() {
		for range d.Waker.Wake() {
			d.io("wake", func() {
				select {
				case hints <- struct{}{}:
				default:
				}
			})
		}
	}()
	return hints
}

// Accept implements [store.Inbox].
func (d deadlyInbox) Accept(ctx context.Context, node int64, runs []model.Intake) (out []store.Accepted, err error) {
	d.io("accept", func() { out, err = d.Inbox.Accept(ctx, node, runs) })
	return out, err
}

// Join implements [store.Ledger].
func (d deadlyLedger) Join(ctx context.Context, name string, lease time.Duration) (node int64, err error) {
	d.io("join", func() { node, err = d.Ledger.Join(ctx, name, lease) })
	return node, err
}

// deadlyBeats is how often the node beats, though its lease is long: so there are beats to
// die at in the midst of the runs.
const deadlyBeats = 50 * time.Millisecond

// Beat implements [store.Ledger].
func (d deadlyLedger) Beat(ctx context.Context, node int64, lease time.Duration, bundle string) (b store.Beat, err error) {
	d.io("beat", func() { b, err = d.Ledger.Beat(ctx, node, lease, bundle) })
	if err == nil && (b.Next == 0 || b.Next > deadlyBeats) {
		b.Next = deadlyBeats
	}
	return b, err
}

// Claim implements [store.Ledger].
func (d deadlyLedger) Claim(ctx context.Context, node int64, limit int, bundle string) (runs []store.Claimed, err error) {
	d.io("claim", func() { runs, err = d.Ledger.Claim(ctx, node, limit, bundle) })
	return runs, err
}

// Commit implements [store.Ledger].
func (d deadlyLedger) Commit(ctx context.Context, node int64, changes []model.Change) (errs []error, err error) {
	d.io("commit", func() { errs, err = d.Ledger.Commit(ctx, node, changes) })
	return errs, err
}

// Leave implements [store.Ledger].
func (d deadlyLedger) Leave(ctx context.Context, node int64, keep []string) (err error) {
	d.io("leave", func() { err = d.Ledger.Leave(ctx, node, keep) })
	return err
}

// Activate implements [store.Bundles].
func (d deadlyBundles) Activate(ctx context.Context, hash string, files []byte, onlyNew bool, by store.Actor) (current string, err error) {
	d.io("activate", func() { current, err = d.Bundles.Activate(ctx, hash, files, onlyNew, by) })
	return current, err
}
