package writes

import (
	"fmt"
	"sync"
	"time"
)

const (
	writesFailFor = 2 * time.Second  // how long writes must fail before the node reports it
	writesForget  = 10 * time.Second // after the last failure, because nobody may have tried since
)

// A Health knows whether the node's writes succeed. A store with a full disk may still renew
// leases, which needs no new page, and refuse everything else.
type Health struct {
	mu    sync.Mutex // guards the following
	since time.Time  // first failure after the last success; zero if the last write succeeded
	last  time.Time  // last failure
	err   error
}

// Note records the outcome of a write.
func (w *Health) Note(err error, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		w.since, w.err = time.Time{}, nil
		return
	}
	if w.since.IsZero() || now.Sub(w.last) > writesForget {
		w.since = now
	}
	w.last, w.err = now, err
}

// State returns an error while writes keep failing. It forgets a failure that was not repeated for
// a while, so that a node without events is tried again.
func (w *Health) State(now time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.since.IsZero() || w.last.Sub(w.since) < writesFailFor || now.Sub(w.last) > writesForget {
		return nil
	}
	return fmt.Errorf("the store has taken no writes for %s: %w", now.Sub(w.since).Truncate(time.Second), w.err)
}
