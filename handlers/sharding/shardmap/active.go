package shardmap

import (
	"context"
	"strings"
	"sync"
	"time"
)

// An activity has the placements that were asked for since the last write, in order to find unused
// keys.
type activity struct {
	mu  sync.Mutex // guards new
	new []string
}

// A placement is written once an hour, in batches of limited size. Those that are left out are
// written when they are asked for again.
const (
	activityFlush  = time.Minute
	activityForget = time.Hour
	activityMost   = 100_000
)

// note remembers a placement, once until the index forgets it.
func (m *Map) note(placement string) {
	if m.index.noted(placement) {
		return
	}
	a := &m.active
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.new) < activityMost && m.index.note(placement) {
		a.new = append(a.new, strings.Clone(placement)) // it may be a part of a request
	}
}

// take removes and returns the remembered placements.
func (a *activity) take() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	taken := a.new
	a.new = nil
	return taken
}

// Six hours are precise enough, and avoid a write for most questions.
const writeActive = `update shard_placements set active = now() where map = $1 and key = any($2) and active < now() - interval '6 hours'`

// noteActive writes which placements were asked for, until ctx ends.
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
				m.index.forgetNotes()
			}
		}
	}
}

// FlushActivity writes which placements were asked for since the last write.
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
