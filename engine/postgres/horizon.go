package postgres

import (
	"fmt"
	"math"
	"sync"
	"time"
)

// Somebody may leave a transaction open in the cluster: a report, a forgotten
// console. Until it ends, nothing that was updated or deleted since it began can be
// cleaned up. What leaves the queue stays before its head then, and who looks for
// the head passes by all of it, each time. So nodes remember from where on there is
// something. What becomes ready before that is told: by this process to itself, and
// by others with their hints. A hint may be lost, so once in a while all is looked at.

// A position is a place in the queue of ready runs: none that is ready comes before.
type position struct {
	rank int64 // the negative of the priority
	at   time.Time
}

// The ends of the queue.
var (
	headOfQueue = position{rank: math.MinInt64}
	endOfQueue  = position{rank: math.MaxInt64}
)

func (p position) before(q position) bool {
	return p.rank < q.rank || p.rank == q.rank && p.at.Before(q.at)
}

func earlier(p, q position) position {
	if q.before(p) {
		return q
	}
	return p
}

// String writes a position as hints carry it.
func (p position) String() string { return fmt.Sprint(p.rank, " ", p.at.UnixMicro()) }

// parsePosition reads a hint; one that is not understood may be about anything.
func parsePosition(text string) position {
	var rank, micros int64
	if _, err := fmt.Sscan(text, &rank, &micros); err != nil {
		return headOfQueue
	}
	return position{rank, time.UnixMicro(micros).UTC()}
}

// A horizon remembers from where on there may be ready runs.
type horizon struct {
	mu      sync.Mutex // guards the following
	from    position
	hears   bool // the hints of others; otherwise nothing is remembered
	looking map[*look]struct{}
	all     pace // of looks at all
}

// A look at the queue is under way.
type look struct {
	from    position
	lowered position // the first that has become ready meanwhile
	began   time.Time
}

// look begins to look for ready runs.
func (h *horizon) look() *look {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := &look{from: h.from, lowered: endOfQueue, began: time.Now()}
	if !h.hears || h.all.isDue(l.began) {
		l.from = headOfQueue
	}
	if h.looking == nil {
		h.looking = map[*look]struct{}{}
	}
	h.looking[l] = struct{}{}
	return l
}

// found ends a look that has found nothing before a position.
func (h *horizon) found(l *look, first position) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.looking, l)
	if now := time.Now(); l.from == headOfQueue {
		h.all.took(now, now.Sub(l.began))
	}
	h.from = earlier(first, l.lowered)
}

// failed ends a look of which nobody knows what it has found.
func (h *horizon) failed(l *look) {
	h.mu.Lock()
	delete(h.looking, l)
	h.mu.Unlock()
	h.lower(headOfQueue)
}

// lower notes that a run has become ready, or may have.
func (h *horizon) lower(to position) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.from = earlier(h.from, to)
	for l := range h.looking {
		l.lowered = earlier(l.lowered, to)
	}
}

// listens notes whether the hints of others are heard from now on.
func (h *horizon) listens(hears bool) {
	h.mu.Lock()
	h.hears = hears
	h.mu.Unlock()
	h.lower(headOfQueue)
}

// start tells from where on there may be ready runs.
func (h *horizon) start() position {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.hears {
		return headOfQueue
	}
	return h.from
}

// A pace lets something happen as often as its cost allows.
type pace struct{ next time.Time }

// The time between two, and by how much longer than it took the time is. A node or a
// server that stood still does not make it longer than it may be: what was missed is
// found by the next one only.
const (
	paceLeast = time.Second
	paceMost  = time.Minute
	paceShare = 20
)

func (p *pace) isDue(now time.Time) bool { return !now.Before(p.next) }

func (p *pace) took(now time.Time, cost time.Duration) {
	p.next = now.Add(min(max(paceLeast, paceShare*cost), paceMost))
}

// timers remembers from when on a run may be due.
type timers struct {
	mu   sync.Mutex // guards the following
	from time.Time
	all  pace
}

// timersMargin is how much later than its beginning a transaction is seen that parks
// a run, or schedules one. Slower ones are found by the looks at all.
const timersMargin = 500 * time.Millisecond

// look returns the time from when on to look.
func (t *timers) look(now time.Time) (from time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all.isDue(now) {
		return time.Time{}
	}
	return t.from
}

// found notes the first due time of those from a time on; nil for none.
func (t *timers) found(from time.Time, first *time.Time, storeNow, began time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now := time.Now(); from.IsZero() {
		t.all.took(now, now.Sub(began))
	}
	next := storeNow
	if first != nil && first.Before(next) {
		next = *first
	}
	t.from = next.Add(-timersMargin)
}

// A heavy is when there may be reading that is not always cheap.
type heavy struct {
	mu sync.Mutex // guards the following
	pace
}
