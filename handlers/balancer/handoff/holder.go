package handoff

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// A Holder is a worker's part of the hand-off. It knows which partitions the worker serves. Without
// orders it keeps what it has, for any time.
type Holder struct {
	options HolderOptions

	mu      sync.Mutex // guards what follows
	version int64      // newest version in an order; never decreases
	holds   map[int]*hold
	loading sync.WaitGroup // calls of Load; waited for without mu, which they need to end
}

// HolderOptions configures a [Holder].
type HolderOptions struct {
	Cluster    string // its id; orders for other clusters are refused
	Partitions int    // of the cluster; orders for others than 0 to Partitions-1 are refused

	// Heard is the version of the assignment that a worker knows when it starts. It may be 0. A
	// worker that has asked for it cannot be misled by a balancer that was replaced while the
	// worker was away.
	Heard int64

	// Token is the bearer token that orders over HTTP must have. If it is empty, all orders are
	// followed.
	Token string

	// Load loads what a partition needs before it is served, such as a cache. It may be incomplete:
	// if the partition is taken before Load ends, its context ends. Nil loads nothing.
	Load func(ctx context.Context, partition int)

	// Drop removes what Load and serving have collected for a partition that has left. It is called
	// with the holder locked, so that no request uses the removed data. It must not wait or call
	// the holder. Nil drops nothing.
	Drop func(partition int)

	Drain  time.Duration    // how long a release waits for requests in flight before it answers; 0 means [DefaultDrain]
	Forget time.Duration    // how long an announced partition is expected; 0 means [DefaultForget]
	Now    func() time.Time // nil means [time.Now]
}

// These are the default times of a [Holder].
const (
	DefaultDrain  = 500 * time.Millisecond
	DefaultForget = 2 * time.Minute
)

// A hold is the state of one partition of a worker.
type hold struct {
	phase   Phase
	version int64              // of the order that set this phase: the fencing token
	since   time.Time          // when it was announced or taken
	serving int                // requests in flight
	idle    chan struct{}      // closed when it is no longer releasing; nil before that
	stop    context.CancelFunc // ends the loading; nil if nothing was loaded
}

// NewHolder makes a holder without partitions.
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

// Begin reports whether a partition is served here, and the version of the assignment that brought
// it. The version is the fencing token of writes for the partition. Call end when the request is
// over. Calling it again does no harm.
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

// end ends a request. The last one frees a partition that is being released.
func (h *Holder) end(p int, x *hold) {
	h.mu.Lock()
	defer h.mu.Unlock()
	x.serving--
	if x.serving == 0 && x.phase == Releasing {
		h.remove(p, x)
	}
}

// State returns the worker's state.
func (h *Holder) State() State {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.state()
}

// state is State for a caller that holds the lock.
func (h *Holder) state() State {
	s := State{Cluster: h.options.Cluster, Version: h.version, Partitions: make([]Partition, 0, len(h.holds))}
	for p, x := range h.holds {
		s.Partitions = append(s.Partitions, Partition{Partition: p, Phase: x.phase, Version: x.version})
	}
	slices.SortFunc(s.Partitions, func(a, b Partition) int { return a.Partition - b.Partition })
	return s
}

// Prepare announces partitions, with the version before the one that assigns them.
func (h *Holder) Prepare(o Order) (State, error) {
	return h.obey(o, func(p int) {
		if h.holds[p] == nil {
			h.holds[p] = &hold{phase: Prepared, version: h.version, since: h.options.Now()}
		}
	})
}

// Warm begins to load announced partitions.
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

// warm begins to load a partition. Loading does not use the context of the request that ordered it.
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
		// It keeps its version, which is the token of requests in flight.
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

// Release stops serving partitions. It returns when their requests have ended, or when it has
// waited long enough. The remaining ones are then releasing.
func (h *Holder) Release(ctx context.Context, o Order) (State, error) {
	var wait []<-chan struct{}
	state, err := h.obey(o, func(p int) {
		x := h.holds[p]
		switch {
		case x == nil:
		case x.phase == Held && x.version == o.Version:
			// It was taken with this very version, so the order came late. A partition that was
			// only announced goes at once, too.
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

// obey follows an order, unless it is outdated.
func (h *Holder) obey(o Order, follow func(partition int)) (State, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.check(o); err != nil {
		return h.state(), err
	}
	// Before the partitions, because they get this version.
	h.version = o.Version
	for _, p := range o.Partitions {
		follow(p)
	}
	h.sweep()
	return h.state(), nil
}

// check returns why an order is refused. Invalid orders are reported before outdated ones, because
// a balancer of another cluster must not take the answer for a newer assignment.
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

// sweep removes announced partitions that have not come. It runs with each order, because nothing
// is announced without orders.
func (h *Holder) sweep() {
	for p, x := range h.holds {
		if x.phase != Held && x.phase != Releasing && h.options.Now().Sub(x.since) > h.options.Forget {
			h.remove(p, x)
		}
	}
}

// remove removes a partition, and wakes those that wait for its release.
func (h *Holder) remove(p int, x *hold) {
	x.cancel()
	x.phase = Releasing // tells its loader that it has left
	if x.idle != nil {
		close(x.idle)
		x.idle = nil
	}
	delete(h.holds, p)
	h.forget(p)
}

// forget tells the worker that its data of a partition is worthless.
func (h *Holder) forget(p int) {
	if h.options.Drop != nil {
		h.options.Drop(p)
	}
}

// cancel ends the loading, if there is any. It may be called several times.
func (x *hold) cancel() {
	if x.stop != nil {
		x.stop()
	}
}

// Close cancels loading, and waits for its end.
func (h *Holder) Close() {
	h.mu.Lock()
	for _, x := range h.holds {
		x.cancel()
	}
	h.mu.Unlock()
	h.loading.Wait()
}
