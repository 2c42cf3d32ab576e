package queue

import (
	"math"
	"slices"
	"sync"
	"time"
)

// Somebody may leave a transaction open in the cluster, such as a report or a forgotten console.
// Until it ends, the index entries of all tasks that were taken since its start stay in front of
// the ready ones, and each claim has to pass them. So a store remembers for each type up to which
// place it has taken tasks. If tasks become ready before it, this process notes it, and other
// processes send hints. A hint may be lost, so now and then a claim reads everything.

// A place is a place in the queue of a type.
type place struct {
	rank int // the negated priority
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

// A horizon remembers the places from which there may be ready tasks.
type horizon struct {
	mu      sync.Mutex // guards the following
	hears   bool       // it receives the hints of others; otherwise it remembers nothing
	types   map[string]*reach
	looking map[*look]struct{}
}

// A reach is what is known about one type.
type reach struct {
	from place
	all  time.Time // when to read everything again
}

// A look is a claim in flight.
type look struct {
	began   time.Time
	from    map[string]place
	bounded []string         // types that have reached their limit of taken tasks, so that none was looked at
	lowered map[string]place // the first places that have become ready meanwhile
}

// These are the number of remembered types, the shortest and longest interval between two full
// reads, and the ratio of the interval to the cost. The longest one bounds the effect of a process
// or server that stood still.
const (
	reachMost      = 1000
	reachPause     = time.Second
	reachPauseMost = time.Minute
	reachShare     = 20
)

// look starts a claim of types.
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

// from returns where a look at a type begins. The caller holds the lock.
func (h *horizon) from(kind string, now time.Time) place {
	if r := h.types[kind]; r != nil && h.hears && now.Before(r.all) {
		return r.from
	}
	return headOfQueue
}

// peek is from for callers that take nothing.
func (h *horizon) peek(kind string) place {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.from(kind, time.Now())
}

// took ends a claim that has taken tasks. last has the last place of each type.
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

// failed ends a claim with an unknown outcome.
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

// lower notes that tasks have become ready, or may have, none of them before these places.
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

// lowerAll is for tasks of unknown types.
func (h *horizon) lowerAll() {
	h.mu.Lock()
	all := make(map[string]place, len(h.types))
	for t := range h.types {
		all[t] = headOfQueue
	}
	h.mu.Unlock()
	h.lower(all)
}

// listens sets whether hints of others are received from now on.
func (h *horizon) listens(hears bool) {
	h.mu.Lock()
	h.hears = hears
	h.mu.Unlock()
	h.lowerAll()
}
