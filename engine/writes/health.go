package writes

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// FailFor is how long writes must fail, or hang, before the node reports it.
const FailFor = 2 * time.Second

// writesForget is the time after the last failure, because nobody may have tried since.
const writesForget = 10 * time.Second

// A Health knows whether the node's writes succeed. A store with a full disk may still renew
// leases, which needs no new page, and refuse everything else. A connection that is dead lets its
// write hang, while others renew the lease.
type Health struct {
	mu       sync.Mutex  // guards the following
	waiting  Waiting     // those who wait for writes; nil for nobody
	timer    *time.Timer // looks whether a write hangs; nil before the first one
	looks    bool        // the timer is set
	inFlight []time.Time // start times of the writes in flight, oldest first
	written  time.Time   // last success
	since    time.Time   // since when writes fail; zero if the last one succeeded
	last     time.Time   // last failure
	err      error
}

// Waiting are callers who wait for writes.
type Waiting interface {
	// Release answers them with an error.
	Release(err error)
}

// Tell makes a Health release callers when a write hangs, and again while it still does.
func (w *Health) Tell(callers Waiting) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting = callers
}

// look releases callers if a write hangs. It is set while writes are in flight.
func (w *Health) look() {
	if err := w.hangs(time.Now()); err != nil {
		w.waiting.Release(err) // without the lock of Health: Release takes another one
	}
}

// hangs returns an error if a write hangs, and sets the timer for the next look.
func (w *Health) hangs(now time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.inFlight) == 0 {
		w.looks = false
		return nil
	}
	err := w.state(now)
	next := FailFor
	if err == nil {
		next -= now.Sub(w.unwritten(w.inFlight[0]))
	}
	w.timer.Reset(next)
	return err
}

// Begin records that a write begins. The caller must call end when it has ended, and may then call
// Note.
func (w *Health) Begin(now time.Time) (end func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.inFlight = append(w.inFlight, now)
	switch {
	case w.looks || w.waiting == nil:
	case w.timer == nil:
		w.timer = time.AfterFunc(FailFor, w.look)
		w.looks = true
	default:
		w.timer.Reset(FailFor)
		w.looks = true
	}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		at := slices.Index(w.inFlight, now)
		w.inFlight = slices.Delete(w.inFlight, at, at+1)
	}
}

// Note records the outcome of a write that began at the given time.
func (w *Health) Note(err error, began, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		w.written = now
		w.since, w.err = time.Time{}, nil
		return
	}
	if w.since.IsZero() || now.Sub(w.last) > writesForget {
		w.since = w.unwritten(began)
	}
	w.last, w.err = now, err
}

// unwritten returns since when nothing is known to be written, if a write has been in flight since
// then. Others may have succeeded after it began. The caller holds the lock.
func (w *Health) unwritten(began time.Time) time.Time {
	if w.written.After(began) {
		return w.written
	}
	return began
}

// State returns an error while writes keep failing or hang. It forgets a failure that was not
// repeated for a while, so that a node without events is tried again.
func (w *Health) State(now time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state(now)
}

// state is State. The caller holds the lock.
func (w *Health) state(now time.Time) error {
	if !w.since.IsZero() && w.last.Sub(w.since) >= FailFor && now.Sub(w.last) <= writesForget {
		return fmt.Errorf("the store has taken no writes for %s: %w", now.Sub(w.since).Truncate(time.Second), w.err)
	}
	if len(w.inFlight) == 0 {
		return nil
	}
	if took := now.Sub(w.unwritten(w.inFlight[0])); took >= FailFor {
		return fmt.Errorf("a write to the store has taken %s, and no other one has succeeded meanwhile", took.Truncate(time.Second))
	}
	return nil
}
