package budget

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
)

// A Kind is what memory is used for.
type Kind string

// These are the kinds. Parts of runs, such as replies, have their own.
const (
	Runs     Kind = "runs"     // runs that the node works on
	Replies  Kind = "replies"  // replies of services that have not reached their run yet
	Requests Kind = "requests" // requests to the API
	Proxied  Kind = "proxied"  // requests that the node passes on
	Pages    Kind = "pages"    // pages of the console that open tabs share
	Messages Kind = "messages" // what add-ons have fetched by themselves, until it is stored
)

// Kinds lists all kinds.
func Kinds() []Kind { return []Kind{Runs, Replies, Requests, Proxied, Pages, Messages} }

// Of the limit of the process, half is for what is counted here. The rest is for the program itself,
// for garbage, and for copies that are too short-lived to count.
const (
	countedPart = 2
	onePart     = 4 // of the counted memory, for one run or for all of another kind
)

// A Memory is the budget of a process. A nil Memory has no limit.
//
// Runs may wait for memory while they hold some, so they could wait for each other without end.
// Therefore, a quarter of the memory is a reserve for one run at a time, the one that has waited
// longest. No run may hold more than that. So this run can always go on, and the others follow.
type Memory struct {
	limit, most, one int

	short atomic.Bool // see Short

	mu      sync.Mutex // guards the following
	used    map[Kind]int
	total   int
	first   *Holder   // has the reserve; nil for none
	runs    []*waiter // runs and their parts that wait, in order
	others  []*waiter
	waits   map[Kind]int // how many had to wait
	refused map[Kind]int // how many got nothing
}

// New returns the budget of a process that may use limit bytes.
func New(limit int64) *Memory {
	most := int(limit / countedPart)
	return &Memory{limit: int(limit), most: most, one: most / onePart, used: map[Kind]int{}, waits: map[Kind]int{}, refused: map[Kind]int{}}
}

// Limit returns what the process may use, in bytes. 0 is no limit.
func (m *Memory) Limit() int {
	if m == nil {
		return 0
	}
	return m.limit
}

// One returns the most bytes that one run or request may hold. ok is false if there is no limit.
func (m *Memory) One() (bytes int, ok bool) {
	if m == nil {
		return 0, false
	}
	return m.one, true
}

// Short reports whether something waits for memory, or nothing is free. Then the node must not take
// on more runs.
func (m *Memory) Short() bool { return m != nil && m.short.Load() }

// A Usage shows how a budget is used.
type Usage struct {
	Limit   int // bytes that the process may use
	Budget  int // bytes of it that are for what is counted
	Used    map[Kind]int
	Waiting int          // how many wait now
	Waits   map[Kind]int // how many have had to wait
	Refused map[Kind]int // how many were refused
}

// Usage returns how the budget is used. It is the zero value if there is no limit.
func (m *Memory) Usage() Usage {
	if m == nil {
		return Usage{}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	u := Usage{
		Limit: m.limit, Budget: m.most, Waiting: len(m.runs) + len(m.others),
		Used: map[Kind]int{}, Waits: map[Kind]int{}, Refused: map[Kind]int{},
	}
	for _, k := range Kinds() {
		u.Used[k], u.Waits[k], u.Refused[k] = m.used[k], m.waits[k], m.refused[k]
	}
	return u
}

// A Holder is something that holds memory: a run, a request, or a part of a run. A nil Holder counts
// nothing. It is safe for concurrent use.
type Holder struct {
	m    *Memory
	kind Kind
	root *Holder // the run of a part; otherwise itself

	has    int // bytes; guarded by m.mu, like the following
	sum    int // of a root: with its parts
	parts  map[*Holder]bool
	closed bool
}

// Hold returns a holder that has no memory yet. Call Close when it ends.
func (m *Memory) Hold(kind Kind) *Holder {
	if m == nil {
		return nil
	}
	h := &Holder{m: m, kind: kind}
	h.root = h
	return h
}

// Part returns a holder whose memory is a part of that of a run. It is closed with the run.
func (h *Holder) Part(kind Kind) *Holder {
	if h == nil {
		return nil
	}
	p := &Holder{m: h.m, kind: kind, root: h.root}
	h.m.mu.Lock()
	defer h.m.mu.Unlock()
	p.closed = h.root.closed
	if p.closed {
		return p
	}
	if h.root.parts == nil {
		h.root.parts = map[*Holder]bool{}
	}
	h.root.parts[p] = true
	return p
}

// ErrClosed reports that a holder was closed, or the run that it is a part of.
var ErrClosed = errors.New("its run has left this node")

// A TooLargeError reports something that never fits, however long it waits.
type TooLargeError struct {
	Wants, Has, Most int // bytes: what it wants, what it holds, and what it may hold
}

// Error implements error.
func (e *TooLargeError) Error() string {
	what := fmt.Sprintf("it takes %d bytes of memory", e.Wants)
	if e.Has > 0 {
		what += fmt.Sprintf(" in addition to the %d bytes that its run has", e.Has)
	}
	return fmt.Sprintf("%s, and one run or request may take %d bytes of this node: make it smaller, or give nodes more memory (--memory)",
		what, e.Most)
}

// A waiter waits for memory.
type waiter struct {
	h     *Holder
	bytes int
	ready chan struct{} // closed when it has the memory, or err
	err   error
}

// Take waits until there is memory for so many bytes more. The error is a [*TooLargeError] if there
// will never be, or that of ctx.
func (h *Holder) Take(ctx context.Context, bytes int) error {
	if h == nil || bytes <= 0 {
		return nil
	}
	m := h.m
	m.mu.Lock()
	if h.closed {
		m.mu.Unlock()
		return ErrClosed
	}
	if has := h.keeps(); has+bytes > m.one {
		m.refused[h.kind]++
		m.mu.Unlock()
		return &TooLargeError{Wants: bytes, Has: has, Most: m.one}
	}
	queue := m.queue(h)
	if h.root == m.first && m.fits(h, bytes) || len(*queue) == 0 && m.fits(h, bytes) {
		m.add(h, bytes)
		m.mu.Unlock()
		return nil
	}
	w := &waiter{h: h, bytes: bytes, ready: make(chan struct{})}
	*queue = append(*queue, w)
	m.waits[h.kind]++
	m.wake()
	m.mu.Unlock()
	select {
	case <-w.ready:
		return w.err
	case <-ctx.Done():
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case <-w.ready:
		return w.err
	default:
	}
	*queue = slices.DeleteFunc(*queue, func(other *waiter) bool { return other == w })
	m.refused[h.kind]++
	m.wake()
	return context.Cause(ctx)
}

// Try takes memory if there is some now, and reports whether there is.
func (h *Holder) Try(bytes int) bool {
	if h == nil {
		return true
	}
	h.m.mu.Lock()
	defer h.m.mu.Unlock()
	if h.closed || bytes > 0 && !h.m.fits(h, bytes) {
		return false
	}
	h.m.add(h, bytes)
	return true
}

// Set changes what the holder has, without asking. It is for memory that is used already, or is not
// used any more.
func (h *Holder) Set(bytes int) {
	if h == nil {
		return
	}
	h.m.mu.Lock()
	defer h.m.mu.Unlock()
	if !h.closed {
		h.m.add(h, bytes-h.has)
	}
}

// Has returns the bytes that the holder has.
func (h *Holder) Has() int {
	if h == nil {
		return 0
	}
	h.m.mu.Lock()
	defer h.m.mu.Unlock()
	return h.has
}

// Close returns all memory of the holder. It may be called twice.
func (h *Holder) Close() {
	if h == nil {
		return
	}
	m := h.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if h.closed {
		return
	}
	m.close(h)
	delete(h.root.parts, h)
	for p := range h.parts {
		m.close(p)
	}
	h.parts = nil
	if m.first == h {
		m.first = nil
	}
	m.wake()
}

// close closes one holder. The caller holds the lock, and calls wake.
func (m *Memory) close(h *Holder) {
	h.closed = true
	m.count(h, -h.has)
	queue := m.queue(h)
	*queue = slices.DeleteFunc(*queue, func(w *waiter) bool {
		if w.h != h {
			return false
		}
		w.err = ErrClosed
		close(w.ready)
		return true
	})
}

// keeps returns what the run of a part has, or what a holder of another kind has. The caller holds
// the lock.
func (h *Holder) keeps() int {
	if h.root.kind == Runs {
		return h.root.has
	}
	return h.has
}

// queue returns where a holder waits. The caller holds the lock.
func (m *Memory) queue(h *Holder) *[]*waiter {
	if h.root.kind == Runs {
		return &m.runs
	}
	return &m.others
}

// fits reports whether there is memory for a holder now. The caller holds the lock.
func (m *Memory) fits(h *Holder, bytes int) bool {
	switch {
	case h.root == m.first && h.root.sum+bytes <= m.one:
		return true
	case h.root.kind != Runs && m.used[h.kind]+bytes > m.one:
		return false
	}
	return m.total+bytes <= m.most-m.one
}

// add changes what a holder has. The caller holds the lock.
func (m *Memory) add(h *Holder, bytes int) {
	m.count(h, bytes)
	if bytes < 0 {
		m.wake()
		return
	}
	m.note()
}

// count changes all sums that a holder is part of. The caller holds the lock.
func (m *Memory) count(h *Holder, bytes int) {
	h.has += bytes
	h.root.sum += bytes
	m.used[h.kind] += bytes
	m.total += bytes
}

// note notes whether memory is short. The caller holds the lock.
func (m *Memory) note() { m.short.Store(len(m.runs) > 0 || m.total >= m.most-m.one) }

// wake gives memory to those that wait. The caller holds the lock.
func (m *Memory) wake() {
	defer m.note()
	if m.first != nil && m.total <= m.most-m.one {
		m.first = nil // it no longer needs the reserve
	}
	m.serve(&m.others)
	if len(m.runs) > 0 && m.first == nil && !m.fits(m.runs[0].h, m.runs[0].bytes) {
		m.first = m.runs[0].h.root
	}
	for i := 0; i < len(m.runs); i++ { // the run with the reserve goes before the others
		if w := m.runs[i]; w.h.root == m.first && m.fits(w.h, w.bytes) {
			m.runs = slices.Delete(m.runs, i, i+1)
			m.grant(w)
			i--
		}
	}
	m.serve(&m.runs)
}

// serve gives memory to those of a queue, in order. The caller holds the lock.
func (m *Memory) serve(queue *[]*waiter) {
	for len(*queue) > 0 && m.fits((*queue)[0].h, (*queue)[0].bytes) {
		w := (*queue)[0]
		*queue = slices.Delete(*queue, 0, 1)
		m.grant(w)
	}
}

// grant gives memory to a waiter. The caller holds the lock.
func (m *Memory) grant(w *waiter) {
	m.count(w.h, w.bytes)
	close(w.ready)
}
