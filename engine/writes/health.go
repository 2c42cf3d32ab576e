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
	inFlight []time.Time // start times of the writes in flight, oldest first
	written  time.Time   // last success
	since    time.Time   // since when writes fail; zero if the last one succeeded
	last     time.Time   // last failure
	err      error
}

// Begin records that a write begins. The caller must call end when it has ended, and may then call
// Note.
func (w *Health) Begin(now time.Time) (end func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.inFlight = append(w.inFlight, now)
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
