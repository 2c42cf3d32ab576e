package postgres

import (
	"fmt"
	"math"
	"sync"
	"time"
)

// Somebody may leave a transaction open in the cluster, such as a report or a forgotten console.
// Until it ends, row versions that were updated or deleted since its start cannot be cleaned up.
// Each search for the head of the queue then has to pass all rows that have left the queue. So
// nodes remember the position of the first possible ready run. If a run becomes ready before it,
// this process notes it, and other processes send a hint. A hint may be lost, so a node now and
// then reads the whole queue.

// A position is a place in the queue of ready runs. No ready run comes before it.
type position struct {
	rank int64 // the negated priority
	at   time.Time
}

// These are the ends of the queue.
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

// String formats a position for hints.
func (p position) String() string { return fmt.Sprint(p.rank, " ", p.at.UnixMicro()) }

// parsePosition parses a hint. An unknown text means the head of the queue.
func parsePosition(text string) position {
	var rank, micros int64
	if _, err := fmt.Sscan(text, &rank, &micros); err != nil {
		return headOfQueue
	}
	return position{rank, time.UnixMicro(micros).UTC()}
}

// A horizon remembers the position from which there may be ready runs.
type horizon struct {
	mu      sync.Mutex // guards the following
	from    position
	hears   bool // it receives the hints of others; otherwise it remembers nothing
	looking map[*look]struct{}
	all     pace // limits reads of the whole queue
}

// A look is a search of the queue in progress.
type look struct {
	from    position
	lowered position // the first position that has become ready meanwhile
	began   time.Time
}

// look starts a search for ready runs.
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

// found ends a search that has found nothing before a position.
func (h *horizon) found(l *look, first position) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.looking, l)
	if now := time.Now(); l.from == headOfQueue {
		h.all.took(now, now.Sub(l.began))
	}
	h.from = earlier(first, l.lowered)
}

// failed ends a search with an unknown result.
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

// listens sets whether hints of others are received from now on.
func (h *horizon) listens(hears bool) {
	h.mu.Lock()
	h.hears = hears
	h.mu.Unlock()
	h.lower(headOfQueue)
}

// start returns the position from which there may be ready runs.
func (h *horizon) start() position {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.hears {
		return headOfQueue
	}
	return h.from
}

// A pace limits how often something happens, by its cost.
type pace struct{ next time.Time }

// These are the shortest and longest interval, and the ratio of the interval to the cost. The
// longest one bounds the effect of a node or server that stood still, because only the next read
// finds what was missed.
const (
	paceLeast = time.Second
	paceMost  = time.Minute
	paceShare = 20
)

func (p *pace) isDue(now time.Time) bool { return !now.Before(p.next) }

func (p *pace) took(now time.Time, cost time.Duration) {
	p.next = now.Add(min(max(paceLeast, paceShare*cost), paceMost))
}

// timers remembers the earliest time at which a run may be due.
type timers struct {
	mu   sync.Mutex // guards the following
	from time.Time
	all  pace
}

// timersMargin is how much later than its start a transaction that parks or schedules a run may
// become visible. Full reads find the runs of slower ones.
const timersMargin = 500 * time.Millisecond

// look returns the time from which to look.
func (t *timers) look(now time.Time) (from time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all.isDue(now) {
		return time.Time{}
	}
	return t.from
}

// found notes the first due time after a time. Nil means none.
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

// A heavy limits reads that are not always cheap.
type heavy struct {
	mu sync.Mutex // guards the following
	pace
}
