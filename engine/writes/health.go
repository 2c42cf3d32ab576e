package writes

import (
	"fmt"
	"sync"
	"time"
)

const (
	writesFailFor = 2 * time.Second  // before the node says so: a hiccup is none of anybody's business
	writesForget  = 10 * time.Second // after a failure; nobody may have tried since
)

// A Health knows whether what the node writes arrives. A store with a full disk
// may renew leases for long, which need no new page, and refuse all else.
type Health struct {
	mu    sync.Mutex // guards the following
	since time.Time  // of the first failure after the last success; zero when the last try succeeded
	last  time.Time  // failure
	err   error
}

// Note tells what became of a write.
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

// State is an error while writes keep failing. One that nobody has repeated for a
// while is forgotten, so that a node that gets no more events is tried again.
func (w *Health) State(now time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.since.IsZero() || w.last.Sub(w.since) < writesFailFor || now.Sub(w.last) > writesForget {
		return nil
	}
	return fmt.Errorf("the store has taken no writes for %s: %w", now.Sub(w.since).Truncate(time.Second), w.err)
}
