package postgres

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"procaas/engine/store"

	"github.com/jackc/pgx/v5/pgconn"
)

// A look during which somebody stood still does not put off the next look at all.
func TestPaceIsBounded(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for cost, want := range map[time.Duration]time.Duration{
		time.Millisecond: paceLeast, 100 * time.Millisecond: 2 * time.Second, time.Hour: paceMost,
	} {
		var p pace
		p.took(now, cost)
		if p.isDue(now.Add(want-1)) || !p.isDue(now.Add(want)) {
			t.Errorf("a look took %v: want the next one after %v, have %v", cost, want, p.next.Sub(now))
		}
	}
	h, l := horizon{hears: true, from: position{at: now}}, look{from: headOfQueue, lowered: endOfQueue, began: now.Add(-time.Hour)}
	h.found(&l, position{rank: 1})
	if !h.all.isDue(time.Now().Add(paceMost)) {
		t.Errorf("want a look at all within %v, have %v", paceMost, h.all.next)
	}
}

// A transaction that the server has ended, since this process stood still in its midst,
// is made again; whether one that may have committed is, is not for the store to say.
func TestStalledTransactionsAreMadeAgain(t *testing.T) {
	t.Parallel()
	d := &database{}
	for code, want := range map[string]bool{"25P03": true, "25P04": true, "40001": true, "57014": false, "42501": false} {
		e := fmt.Errorf("send: %w", &pgconn.PgError{Code: code, Severity: "FATAL"})
		if have := d.mayPass(unwritten{e}); have != want {
			t.Errorf("code %s: want tried again %v, have %v", code, want, have)
		}
		if d.mayPass(e) {
			t.Errorf("code %s: what may be written is tried again", code)
		}
	}
	for code, want := range map[string]bool{"25P03": true, "25P04": false, "57P01": false} {
		if have := rolledBack(&pgconn.PgError{Code: code, Severity: "FATAL"}); have != want {
			t.Errorf("code %s in a commit: want it certainly unwritten %v, have %v", code, want, have)
		}
	}
}

// What the store answers is not asked for again: it would be the same, only later.
func TestAnswersAreNotAskedForAgain(t *testing.T) {
	t.Parallel()
	d := &database{}
	for _, answer := range []error{store.ErrFenced, store.ErrConflict, store.ErrNotFound, store.ErrStale, store.ErrMoving, errTwice} {
		if d.mayPass(unwritten{fmt.Errorf("move: %w", answer)}) {
			t.Errorf("the answer %q is tried again", answer)
		}
	}
	if !d.mayPass(unwritten{errors.New("connection reset by peer")}) {
		t.Error("a connection that failed before the commit is not tried again")
	}
}
