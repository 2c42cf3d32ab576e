package node

import (
	"fmt"
	"sync"
	"time"

	"procaas/engine/stats"
)

// stalledAfter is how long a node must be unable to claim a run before it reports so.
const stalledAfter = 3 * time.Second

// A stall knows since when a node can claim nothing although runs are due. Without it, a store that
// renews leases and keeps events but returns no run would look healthy.
type stall struct {
	log stats.Teller

	mu    sync.Mutex // guards the following
	began time.Time  // of the claim in flight; zero for none
	since time.Time  // of the first claim that failed after the last one that did not; zero for none
	err   error      // of the last claim; nil if it found nothing
	ready bool       // runs are due that no other node claims
}

// begins notes that a claim begins.
func (s *stall) begins(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.began = now
}

// due notes whether the last beat saw runs that only this node can claim.
func (s *stall) due(ready bool, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready = ready
	if !ready && s.err == nil {
		s.since = time.Time{}
	}
}

// claimed notes the outcome of a claim.
func (s *stall) claimed(runs int, err error, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	began := s.began
	s.began, s.err = time.Time{}, err
	switch {
	case runs > 0, err == nil && !s.ready:
		s.since = time.Time{}
	case !s.since.IsZero():
	case err != nil && !began.IsZero():
		s.since = began // it may have hung
	default:
		s.since = now
	}
}

// seconds returns how long the node has been unable to claim a run, or 0.
func (s *stall) seconds(now time.Time) float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.since.IsZero() {
		return 0
	}
	return now.Sub(s.since).Seconds()
}

// state returns an error once it has lasted.
func (s *stall) state(now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	took := now.Sub(s.since)
	switch hangs := now.Sub(s.began); {
	case !s.began.IsZero() && hangs >= stalledAfter && s.since.IsZero():
		return fmt.Errorf("asking the store for runs has taken %s", hangs.Truncate(time.Second))
	case s.since.IsZero() || took < stalledAfter:
		return nil
	case s.err != nil:
		return fmt.Errorf("no run could be taken from the store for %s: %w", took.Truncate(time.Second), s.err)
	}
	return fmt.Errorf("the store has returned none of the runs that are due for %s", took.Truncate(time.Second))
}
