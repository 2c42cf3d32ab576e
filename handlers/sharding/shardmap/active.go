package shardmap

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// An activity remembers which placements were asked for, so that keys which nobody uses can
// be told from others.
type activity struct {
	seen atomic.Pointer[sync.Map] // of this hour

	mu  sync.Mutex // guards new
	new []string
}

// Placements are noted once an hour, in turns, and at most some at once: those that are left
// out are noted when they are asked for again.
const (
	activityFlush  = time.Minute
	activityForget = time.Hour
	activityMost   = 100_000
)

// note remembers a placement.
func (a *activity) note(key string) {
	seen := a.seen.Load()
	if _, known := seen.Load(key); known {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, known := seen.Load(key); known || len(a.new) >= activityMost {
		return
	}
	seen.Store(key, nil)
	a.new = append(a.new, key)
}

// take returns what was noted since the last time.
func (a *activity) take() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	taken := a.new
	a.new = nil
	return taken
}

// Six hours are fine enough for classes of use, and keep most questions from writing anything.
const writeActive = `update shard_placements set active = now() where map = $1 and key = any($2) and active < now() - interval '6 hours'`

// noteActive writes down which placements were asked for, until ctx ends.
func (s *Service) noteActive(ctx context.Context) {
	tick := time.NewTicker(activityFlush)
	defer tick.Stop()
	for forgot := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := s.FlushActivity(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("the use of keys could not be written down", "error", err)
		}
		if time.Since(forgot) >= activityForget {
			forgot = time.Now()
			for _, m := range s.Maps() {
				m.active.seen.Store(&sync.Map{})
			}
		}
	}
}

// FlushActivity writes down which placements were asked for since the last time.
func (s *Service) FlushActivity(ctx context.Context) error {
	for _, m := range s.Maps() {
		keys := m.active.take()
		if len(keys) == 0 {
			continue
		}
		if _, err := s.pool.Exec(ctx, writeActive, m.ID, keys); err != nil {
			return err
		}
	}
	return nil
}
