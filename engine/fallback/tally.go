package fallback

import (
	"slices"
	"sync"
	"time"

	"procaas/engine/model"
	"procaas/engine/planner"
)

// This file counts what calls come to, for those who decide about fallbacks.

// WatchedIn lists what decides about the fallbacks of a definition, and the steps whose calls
// count; nil when no handler has a fallback. Calls of handlers without one tell whether their
// service is to blame.
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

// A tallyBook counts the calls of this node that have not been reported yet.
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

// take returns the counts of the seconds before one, and forgets them.
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

// Count takes in what one attempt came to. Those that began before the present
// phase of the handler's outage tell of another time.
func (d *Live) Count(s *planner.Step, err error, took time.Duration, now time.Time) {
	if err != nil && !s.Fails(err) {
		return
	}
	if o := d.Outages().Of(s); o != nil && now.Add(-took).Before(o.began(now)) {
		return
	}
	d.tallies.add(s.Path, now.Unix(), err == nil)
}

// longestWindow is how long ago calls may have ended that still count.
func (f *Rules) longestWindow() time.Duration {
	longest := longWindow
	for _, w := range f.watched {
		if w.Fallback != nil {
			longest = max(longest, w.Fallback.Window)
		}
	}
	return longest
}

// Without returns the same handlers, of which those that some name never go out.
func (f *Rules) Without(paths []string) *Rules {
	watched := slices.Clone(f.watched)
	for i, w := range watched {
		if slices.Contains(paths, w.Path) {
			watched[i].Fallback = nil
		}
	}
	return NewRules(watched)
}
