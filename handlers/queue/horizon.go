package queue

import (
	"math"
	"slices"
	"sync"
	"time"
)

// Somebody may leave a transaction open in the cluster: a report, a forgotten console.
// Until it ends, the entries of all tasks that were taken since it began stay before
// those that are ready, and each claim passes by all of them. So a store remembers of
// each type up to where it has taken them. What becomes ready before that is told: by
// this process to itself, by others with their hints. A hint may be lost, so once in a
// while a claim looks at all.

// A place is one in the queue of a type.
type place struct {
	rank int // the negative of the priority
	at   time.Time
}

var headOfQueue = place{rank: math.MinInt32}

func (p place) before(q place) bool { return p.rank < q.rank || p.rank == q.rank && p.at.Before(q.at) }

func earlier(p, q place) place {
	if q.before(p) {
		return q
	}
	return p
}

// A horizon remembers from where on there may be ready tasks.
type horizon struct {
	mu      sync.Mutex // guards the following
	hears   bool       // the hints of others; otherwise nothing is remembered
	types   map[string]*reach
	looking map[*look]struct{}
}

// A reach is what is known of one type.
type reach struct {
	from place
	all  time.Time // when to look at all again
}

// A look is a claim under way.
type look struct {
	began   time.Time
	from    map[string]place
	bounded []string         // types of which so many may be taken already that none is looked at
	lowered map[string]place // by what has become ready meanwhile
}

// How many types are remembered, the time between two looks at all, and how much longer
// than such a look that time is. A process or a server that stood still does not make it
// longer than it may be.
const (
	reachMost      = 1000
	reachPause     = time.Second
	reachPauseMost = time.Minute
	reachShare     = 20
)

// look begins a claim of types.
func (h *horizon) look(types []string) *look {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := &look{began: time.Now(), from: make(map[string]place, len(types))}
	for _, t := range types {
		if h.types[t] == nil && len(h.types) < reachMost {
			if h.types == nil {
				h.types = map[string]*reach{}
			}
			h.types[t] = &reach{from: headOfQueue}
		}
		l.from[t] = h.from(t, l.began)
	}
	if h.looking == nil {
		h.looking = map[*look]struct{}{}
	}
	h.looking[l] = struct{}{}
	return l
}

// from is where a look at a type begins, for who holds the lock.
func (h *horizon) from(kind string, now time.Time) place {
	if r := h.types[kind]; r != nil && h.hears && now.Before(r.all) {
		return r.from
	}
	return headOfQueue
}

// peek is from for who takes nothing.
func (h *horizon) peek(kind string) place {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.from(kind, time.Now())
}

// took ends a claim that has taken tasks, the last of each type at these places.
func (h *horizon) took(l *look, last map[string]place) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.looking, l)
	now := time.Now()
	for t, from := range l.from {
		r := h.types[t]
		if r == nil {
			continue
		}
		to, ok := last[t]
		if from == headOfQueue && (ok || !slices.Contains(l.bounded, t)) {
			r.all = now.Add(min(max(reachPause, reachShare*now.Sub(l.began)), reachPauseMost))
		}
		if ok {
			r.from = to
			if low, ok := l.lowered[t]; ok {
				r.from = earlier(to, low)
			}
		}
	}
}

// failed ends a claim of which nobody knows what it has taken.
func (h *horizon) failed(l *look) {
	h.mu.Lock()
	delete(h.looking, l)
	h.mu.Unlock()
	lowest := make(map[string]place, len(l.from))
	for t := range l.from {
		lowest[t] = headOfQueue
	}
	h.lower(lowest)
}

// lower notes that tasks have become ready, or may have, none of them before these
// places.
func (h *horizon) lower(to map[string]place) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for t, p := range to {
		if r := h.types[t]; r != nil {
			r.from = earlier(r.from, p)
		}
		for l := range h.looking {
			if _, ok := l.from[t]; !ok {
				continue
			}
			if l.lowered == nil {
				l.lowered = map[string]place{}
			}
			low := p
			if other, ok := l.lowered[t]; ok {
				low = earlier(other, p)
			}
			l.lowered[t] = low
		}
	}
}

// lowerAll is for tasks of which the type is not known.
func (h *horizon) lowerAll() {
	h.mu.Lock()
	all := make(map[string]place, len(h.types))
	for t := range h.types {
		all[t] = headOfQueue
	}
	h.mu.Unlock()
	h.lower(all)
}

// listens notes whether the hints of others are heard from now on.
func (h *horizon) listens(hears bool) {
	h.mu.Lock()
	h.hears = hears
	h.mu.Unlock()
	h.lowerAll()
}
