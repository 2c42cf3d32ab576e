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

// Wake implements [store.Waker].
func (d *deadly) Wake() <-chan struct{} {
	waker, ok := d.Store.(store.Waker)
	if !ok {
		return nil
	}
	hints := make(chan struct{}, 1)
	go func() {
		for range waker.Wake() {
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
func (d *deadly) Accept(ctx context.Context, node int64, runs []model.Intake) (out []store.Accepted, err error) {
	d.io("accept", func() { out, err = d.Store.Accept(ctx, node, runs) })
	return out, err
}

// Join implements [store.Ledger].
func (d *deadly) Join(ctx context.Context, name string, lease time.Duration) (node int64, err error) {
	d.io("join", func() { node, err = d.Store.Join(ctx, name, lease) })
	return node, err
}

// deadlyBeats is how often the node beats, though its lease is long: so there are beats to
// die at in the midst of the runs.
const deadlyBeats = 50 * time.Millisecond

// Beat implements [store.Ledger].
func (d *deadly) Beat(ctx context.Context, node int64, lease time.Duration, bundle string) (b store.Beat, err error) {
	d.io("beat", func() { b, err = d.Store.Beat(ctx, node, lease, bundle) })
	if err == nil && (b.Next == 0 || b.Next > deadlyBeats) {
		b.Next = deadlyBeats
	}
	return b, err
}

// Claim implements [store.Ledger].
func (d *deadly) Claim(ctx context.Context, node int64, limit int, bundle string) (runs []store.Claimed, err error) {
	d.io("claim", func() { runs, err = d.Store.Claim(ctx, node, limit, bundle) })
	return runs, err
}

// Commit implements [store.Ledger].
func (d *deadly) Commit(ctx context.Context, node int64, changes []model.Change) (errs []error, err error) {
	d.io("commit", func() { errs, err = d.Store.Commit(ctx, node, changes) })
	return errs, err
}

// Leave implements [store.Ledger].
func (d *deadly) Leave(ctx context.Context, node int64, keep []string) (err error) {
	d.io("leave", func() { err = d.Store.Leave(ctx, node, keep) })
	return err
}

// Activate implements [store.Bundles].
func (d *deadly) Activate(ctx context.Context, hash string, files []byte, onlyNew bool, by store.Actor) (current string, err error) {
	d.io("activate", func() { current, err = d.Store.Activate(ctx, hash, files, onlyNew, by) })
	return current, err
}
