package handoff

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// A Holder is a worker's half of the hand-off: it knows which partitions the worker
// serves. It keeps what it has while nobody gives orders, however long that is.
type Holder struct {
	options HolderOptions

	mu      sync.Mutex // guards what follows
	version int64      // the newest that an order has told; it never falls
	holds   map[int]*hold
	loading sync.WaitGroup // of calls of Load; waited for without mu, which they need to end
}

// HolderOptions say what a [Holder] is for.
type HolderOptions struct {
	Cluster    string // its id; orders for another one are refused
	Partitions int    // of the cluster; orders for others than 0 to Partitions-1 are refused

	// Heard is the version of the assignment that a worker knows when it starts. It may
	// be 0; one that has asked for it cannot be fooled by a balancer that was replaced
	// while the worker was away.
	Heard int64

	// Token is the bearer token that orders over HTTP must have. Orders are followed
	// whoever gives them when it is empty.
	Token string

	// Load gets what a partition needs before it is served, such as a cache. It is a
	// favour: a partition may be taken before it ends, whose context ends then. Nothing
	// is loaded when nil.
	Load func(ctx context.Context, partition int)

	// Drop forgets what Load and serving have gathered of a partition that has gone. It
	// must not wait, nor ask the holder anything: it is called while the holder is locked,
	// so that nobody is served by what is about to go. Nothing is dropped when nil.
	Drop func(partition int)

	Drain  time.Duration    // how long a release waits for requests under way before it answers; [DefaultDrain] when 0
	Forget time.Duration    // how long a partition that was announced is waited for; [DefaultForget] when 0
	Now    func() time.Time // [time.Now] when nil
}

// The times of a [Holder] that sets none itself.
const (
	DefaultDrain  = 500 * time.Millisecond
	DefaultForget = 2 * time.Minute
)

// A hold is what a worker has to do with one partition.
type hold struct {
	phase   Phase
	version int64              // of the order that brought it into this phase: the token of who holds it
	since   time.Time          // when it was announced or taken
	serving int                // requests under way
	idle    chan struct{}      // closed when it is not releasing any more; nil before it was
	stop    context.CancelFunc // ends the loading; nil when nothing was loaded
}

// NewHolder makes a holder that holds nothing yet.
func NewHolder(o HolderOptions) *Holder {
	if o.Drain <= 0 {
		o.Drain = DefaultDrain
	}
	if o.Forget <= 0 {
		o.Forget = DefaultForget
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Holder{options: o, version: o.Heard, holds: map[int]*hold{}}
}

// Begin reports whether a partition is served here, and by which version of the assignment
// it came: the fencing token of what is written for it. end must be called when the
// request is over; more than once does no harm.
func (h *Holder) Begin(partition int) (token int64, end func(), ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	x := h.holds[partition]
	if x == nil || x.phase != Held {
		return 0, nil, false
	}
	x.serving++
	return x.version, sync.OnceFunc(func() { h.end(partition, x) }), true
}

// end ends a request. The last one of a partition that is being released sets it free.
func (h *Holder) end(p int, x *hold) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if x.serving--; x.serving == 0 && x.phase == Releasing {
		h.remove(p, x)
	}
}

// State returns what the worker holds.
func (h *Holder) State() State {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.state()
}

// state is [Holder.State] for who holds the lock.
func (h *Holder) state() State {
	s := State{Cluster: h.options.Cluster, Version: h.version, Partitions: make([]Partition, 0, len(h.holds))}
	for p, x := range h.holds {
		s.Partitions = append(s.Partitions, Partition{Partition: p, Phase: x.phase, Version: x.version})
	}
	slices.SortFunc(s.Partitions, func(a, b Partition) int { return a.Partition - b.Partition })
	return s
}

// Prepare announces partitions, by the assignment before the one that gives them.
func (h *Holder) Prepare(o Order) (State, error) {
	return h.obey(o, func(p int) {
		if h.holds[p] == nil {
			h.holds[p] = &hold{phase: Prepared, version: h.version, since: h.options.Now()}
		}
	})
}

// Warm begins to load what partitions need that were announced.
func (h *Holder) Warm(o Order) (State, error) {
	return h.obey(o, func(p int) {
		x := h.holds[p]
		if x == nil {
			x = &hold{phase: Prepared, version: h.version, since: h.options.Now()}
			h.holds[p] = x
		}
		if x.phase == Prepared {
			h.warm(p, x)
		}
	})
}

// warm begins to load a partition. Loading belongs to the holder, not to the order: its
// context is another one than that of the request that asked for it.
func (h *Holder) warm(p int, x *hold) {
	if h.options.Load == nil {
		x.phase = Warm
		return
	}
	x.phase = Warming
	ctx, cancel := context.WithCancel(context.Background())
	x.stop = cancel
	h.loading.Go(func() {
		defer cancel()
		h.options.Load(ctx, p)
		h.mu.Lock()
		defer h.mu.Unlock()
		// It may have been taken or removed meanwhile.
		if x.phase == Warming {
			x.phase = Warm
		}
	})
}

// Take begins to serve partitions.
func (h *Holder) Take(o Order) (State, error) {
	return h.obey(o, func(p int) {
		x := h.holds[p]
		switch {
		case x == nil:
			h.holds[p] = &hold{phase: Held, version: h.version, since: h.options.Now()}
		// It keeps the version by which it came: requests under way have it as their token.
		case x.phase == Held:
		case x.phase == Releasing:
			x.phase, x.version = Held, h.version
			close(x.idle)
			x.idle = nil
			h.forget(p) // it may have been elsewhere meanwhile
		default:
			x.cancel()
			x.phase, x.version = Held, h.version
		}
	})
}

// Release ends the service of partitions. It answers when their requests have ended, or
// when it has waited long enough: those that are left are releasing then.
func (h *Holder) Release(ctx context.Context, o Order) (State, error) {
	var wait []<-chan struct{}
	state, err := h.obey(o, func(p int) {
		x := h.holds[p]
		switch {
		case x == nil:
		case x.phase == Held && x.version == o.Version:
			// It was taken by this very assignment: the order is one that was late.
		// Whatever was only announced goes at once, too.
		case x.serving == 0:
			h.remove(p, x)
		default:
			x.phase, x.version = Releasing, h.version
			if x.idle == nil {
				x.idle = make(chan struct{})
			}
			wait = append(wait, x.idle)
		}
	})
	if err != nil || len(wait) == 0 {
		return state, err
	}
	ctx, cancel := context.WithTimeout(ctx, h.options.Drain)
	defer cancel()
	for _, idle := range wait {
		select {
		case <-idle:
		case <-ctx.Done():
		}
	}
	return h.State(), nil
}

// obey follows an order, unless it is an outdated one.
func (h *Holder) obey(o Order, follow func(partition int)) (State, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.check(o); err != nil {
		return h.state(), err
	}
	// Before the partitions: what they become is by this version.
	h.version = o.Version
	for _, p := range o.Partitions {
		follow(p)
	}
	h.sweep()
	return h.state(), nil
}

// check says why an order is not followed. What makes no sense is said before what is
// outdated: a balancer of another cluster must not take this for a newer assignment.
func (h *Holder) check(o Order) error {
	switch {
	case o.Cluster != h.options.Cluster:
		return &MisdirectedError{fmt.Sprintf("the order is for the cluster %q, and this is a worker of %q", o.Cluster, h.options.Cluster)}
	case o.Version < 1:
		return &MisdirectedError{fmt.Sprintf("version %d: want the version of an assignment, from 1", o.Version)}
	}
	for _, p := range o.Partitions {
		if p < 0 || p >= h.options.Partitions {
			return &MisdirectedError{fmt.Sprintf("partition %d: the cluster has the partitions 0 to %d", p, h.options.Partitions-1)}
		}
	}
	if o.Version < h.version {
		return &OutdatedError{Order: o.Version, Heard: h.version}
	}
	return nil
}

// sweep forgets what was announced and has not come. It runs with each order: without
// orders nothing is announced, either.
func (h *Holder) sweep() {
	for p, x := range h.holds {
		if x.phase != Held && x.phase != Releasing && h.options.Now().Sub(x.since) > h.options.Forget {
			h.remove(p, x)
		}
	}
}

// remove gives a partition up, and lets those go on who wait for its release.
func (h *Holder) remove(p int, x *hold) {
	x.cancel()
	x.phase = Releasing // whoever still loads it finds that it has gone
	if x.idle != nil {
		close(x.idle)
		x.idle = nil
	}
	delete(h.holds, p)
	h.forget(p)
}

// forget tells the worker that what it has of a partition is worthless.
func (h *Holder) forget(p int) {
	if h.options.Drop != nil {
		h.options.Drop(p)
	}
}

// cancel ends the loading, if there is any; more than once does no harm.
func (x *hold) cancel() {
	if x.stop != nil {
		x.stop()
	}
}

// Close ends what is being loaded, and waits for it.
func (h *Holder) Close() {
	h.mu.Lock()
	for _, x := range h.holds {
		x.cancel()
	}
	h.mu.Unlock()
	h.loading.Wait()
}
