package fallback

import (
	"slices"
	"sync"
	"time"

	"procaas/engine/model"
	"procaas/engine/planner"
)

// This file counts the outcomes of calls for the decisions about fallbacks.

// WatchedIn lists the handlers that matter for the fallbacks of a definition, and the steps whose
// calls count. Both are nil if no handler has a fallback. Handlers without a fallback count too,
// because their calls show whether the service fails.
func WatchedIn(plans []*planner.Plan) (watched []Watched, counted map[*planner.Step]bool) {
	wanted := false
	counted = map[*planner.Step]bool{}
	for _, p := range plans {
		for _, s := range p.Written {
			w := Watched{Path: s.Path, Service: s.Peer, Critical: s.Handler.IsCritical(), Unfrozen: unfrozen(s), Fallback: s.Fallback()}
			wanted = wanted || w.Fallback != nil
			watched = append(watched, w)
			if w.Fallback != nil || w.Service != "" {
				counted[s] = true
			}
		}
	}
	if !wanted {
		return nil, nil
	}
	return watched, counted
}

// A tallyBook has this node's unreported calls.
type tallyBook struct {
	mu     sync.Mutex // guards the following
	counts map[tallyKey]tallyCounts
}

type tallyKey struct {
	path   string
	second int64
}

type tallyCounts struct{ good, bad int }

// add counts one call that ended in a second.
func (t *tallyBook) add(path string, second int64, good bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counts == nil {
		t.counts = map[tallyKey]tallyCounts{}
	}
	key := tallyKey{path, second}
	c := t.counts[key]
	if good {
		c.good++
	} else {
		c.bad++
	}
	t.counts[key] = c
}

// take removes and returns the counts before a second.
func (t *tallyBook) take(before int64) []model.Tally {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []model.Tally
	for key, c := range t.counts {
		if key.second < before {
			out = append(out, model.Tally{Path: key.path, Second: key.second, Good: c.good, Bad: c.bad})
			delete(t.counts, key)
		}
	}
	return out
}

// Count records the outcome of an attempt, which is a failure if it took too long. It ignores attempts that began before the current phase
// of the handler's outage.
func (d *Live) Count(s *planner.Step, err error, took time.Duration, now time.Time) {
	slow := s.IsSlow(took)
	if err != nil && !s.Fails(err) && !slow {
		return
	}
	if o := d.Outages().Of(s); o != nil && now.Add(-took).Before(o.began(now)) {
		return
	}
	d.tallies.add(s.Path, now.Unix(), err == nil && !slow)
}

// longestWindow returns for how long ended calls count.
func (f *Rules) longestWindow() time.Duration {
	longest := longWindow
	for _, w := range f.watched {
		if w.Fallback != nil {
			longest = max(longest, w.Fallback.Window)
		}
	}
	return longest
}

// Without returns the same rules, except that the handlers of the given paths are never turned off.
func (f *Rules) Without(paths []string) *Rules {
	watched := slices.Clone(f.watched)
	for i, w := range watched {
		if slices.Contains(paths, w.Path) {
			watched[i].Fallback = nil
		}
	}
	return NewRules(watched)
}
