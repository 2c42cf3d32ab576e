package engine

import (
	"net/url"
	"slices"
	"sync"
	"time"

	"procaas/dsl"
)

// This file counts what calls come to, for those who decide about fallbacks.

// watchedIn lists what decides about the fallbacks of a definition, and marks the
// steps whose calls count; nil when no handler has a fallback. Calls of handlers
// without one tell whether their service is to blame.
func watchedIn(plans []*Plan) []Watched {
	var watched []Watched
	wanted := false
	for _, p := range plans {
		for _, s := range p.all {
			w := Watched{Path: s.Path, Service: s.calledService(), Critical: s.Handler.IsCritical(), Fallback: s.fallback()}
			wanted = wanted || w.Fallback != nil
			watched = append(watched, w)
		}
	}
	if !wanted {
		return nil
	}
	for _, p := range plans {
		for _, s := range p.all {
			s.counted = s.fallback() != nil || s.calledService() != ""
		}
	}
	return watched
}

// fallback gives the fallback by which a handler goes out of the flow; nil when
// it never does.
func (s *Step) fallback() *dsl.Fallback {
	if s.Handler.IsCritical() {
		return nil
	}
	return s.Handler.Fallback
}

// calledService names whom a handler calls, as far as that is known beforehand: a
// declared service, or a host; empty for nobody.
func (s *Step) calledService() string {
	if s.service != "" {
		return s.service
	}
	literal, _ := s.Handler.Body.Get("url").Literal()
	text, _ := literal.(string)
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return ""
	}
	return hostPort(u)
}

// fails tells whether a call that came to an error counts as a failure. Others
// say nothing about the handler: that what it asked for is not there, or that it
// asked wrongly.
func (s *Step) fails(err error) bool {
	if f := s.Handler.Fallback; f != nil && len(f.On) > 0 {
		return InClass(err, f.On)
	}
	return InClass(err, DefaultRetry().On) || ClassOf(err) == "other" && !IsPermanent(err)
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

// take gives the counts of the seconds before one, and forgets them.
func (t *tallyBook) take(before int64) []Tally {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []Tally
	for key, c := range t.counts {
		if key.second < before {
			out = append(out, Tally{Path: key.path, Second: key.second, Good: c.good, Bad: c.bad})
			delete(t.counts, key)
		}
	}
	return out
}

// count takes in what one attempt came to. Those that began before the present
// phase of the handler's outage tell of another time.
func (d *degrader) count(s *Step, err error, took time.Duration, now time.Time) {
	if !s.counted || err != nil && !s.fails(err) {
		return
	}
	if o := d.outages().of(s); o != nil && now.Add(-took).Before(o.began(now)) {
		return
	}
	d.tallies.add(s.Path, now.Unix(), err == nil)
}

// longestWindow is how long ago calls may have ended that still count.
func (f *Fallbacks) longestWindow() time.Duration {
	longest := longWindow
	for _, w := range f.watched {
		if w.Fallback != nil {
			longest = max(longest, w.Fallback.Window)
		}
	}
	return longest
}

// without gives the same handlers, of which those that some name never go out.
func (f *Fallbacks) without(paths []string) *Fallbacks {
	watched := slices.Clone(f.watched)
	for i, w := range watched {
		if slices.Contains(paths, w.Path) {
			watched[i].Fallback = nil
		}
	}
	return NewFallbacks(watched)
}
