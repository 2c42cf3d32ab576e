package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"procaas/engine/budget"
	"procaas/engine/canary"
	"procaas/engine/clock"
	"procaas/engine/definitions"
	"procaas/engine/intake"
	"procaas/engine/model"
	"procaas/engine/records"
	"procaas/engine/steering"
	"procaas/engine/store"
	"procaas/engine/watch"
	"procaas/engine/writes"
)

// rejoinPause is the pause before a fenced process joins again.
const rejoinPause = 100 * time.Millisecond

// A Driver makes this process a node of the cluster, and drives the runs that it claims. When the
// node is fenced, the Driver joins as another node.
type Driver struct {
	Parts
	node      atomic.Pointer[node] // nil while the process is not a member
	known     store.Membership
	loss      storeLoss
	damage    atomic.Pointer[error] // the last row of the store that can be neither read nor written
	joinError atomic.Pointer[error] // why the process is not yet a member
	written   map[string]int        // in-flight limits of services, as stored
	book      canary.Book           // the runs that are watched for the trial of a new version
}

// Parts are the parts that a [Driver] uses.
type Parts struct {
	*steering.Steering
	Follower *definitions.Follower
	Runs     *records.Runs
	Watch    *watch.Watch // learns of steps, and of runs that the node has released
	Writes   *writes.Health
	Tracer   trace.Tracer // nil traces nothing

	Name        string // of the node, for people
	Turns       *intake.Turns
	Memory      *budget.Memory // of runs and replies; nil for no bound
	MaxInFlight int            // the most runs at once
	Lease       time.Duration  // other nodes take over the runs of a node that is silent for this long
	Drain       time.Duration  // how long a stopping node waits for calls in flight
	Record      float64        // percentage of runs that are recorded for replay

	// Shadow gets runs that have ended and are in the share of a version in the shadow. It must not
	// block.
	Shadow func(t *canary.State, pipeline, run string)

	// Call calls a handler.
	Call func(ctx context.Context, c *Call) (model.Result, error)
}

// NewDriver makes a driver. It does nothing before Run.
func NewDriver(p Parts) *Driver { return &Driver{Parts: p} }

// Run joins the cluster and works until ctx ends. Then it drains. It ends with [store.ErrAdopted] if an operator has adopted a
// restored store meanwhile.
func (d *Driver) Run(ctx context.Context) error {
	defer d.joinError.Store(nil)
	for {
		err := d.member(ctx)
		if ctx.Err() != nil {
			return err
		}
		if !errors.Is(err, store.ErrLost) { // it was reported already, in more detail
			d.Log.Warn("node is fenced, joining anew", "node", d.Name, "error", err)
		}
		if !clock.Pause(ctx, rejoinPause) {
			return nil
		}
		if err := d.part(ctx); err != nil {
			return err
		}
	}
}

// inWords says of a timeout whose it is. It keeps other errors, and nil.
func inWords(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("the store does not answer (%w)", err)
	}
	return err
}

// Healthy returns why the node cannot work now, or nil.
func (d *Driver) Healthy() error {
	if err := d.loss.state(); err != nil {
		return err
	}
	n := d.node.Load()
	if n == nil {
		if err := d.joinError.Load(); err != nil {
			return fmt.Errorf("node is no member: %w", *err)
		}
		return errors.New("node is no member: it starts, stops, or has not been started")
	}
	switch valid, err := n.lease.state(); {
	case !valid:
		return fmt.Errorf("lease is over: %w", cmp.Or(inWords(err), errors.New("it was not renewed in time")))
	case err != nil:
		return fmt.Errorf("lease cannot be renewed: %w", inWords(err))
	}
	if err := n.stalled.state(time.Now()); err != nil {
		return err
	}
	return d.Writes.State(time.Now())
}

// Damaged returns an error if the store has a row that can be neither read nor marked as damaged, or nil.
func (d *Driver) Damaged() error {
	if err := d.damage.Load(); err != nil {
		return *err
	}
	if s := d.Store.Scattered; s != nil {
		return s.Damaged()
	}
	return nil
}

// Lost returns the error if the store has lost what it acknowledged, or nil.
func (d *Driver) Lost() error { return d.loss.state() }

// Number implements [records.Node].
func (d *Driver) Number() int64 { return d.known.Number() }

// Nudge implements [records.Node].
func (d *Driver) Nudge() {
	if n := d.node.Load(); n != nil {
		n.nudge()
	}
}

// Cancel implements [records.Node].
func (d *Driver) Cancel(run string) {
	if j := d.job(run); j != nil {
		j.cancel()
	}
}

// Move implements [records.Node].
func (d *Driver) Move(run, order string) {
	if j := d.job(run); j != nil {
		j.move(order)
	}
}

// Drives reports whether this node drives a run. See [watch.Watch].
func (d *Driver) Drives(run string) bool { return d.job(run) != nil }

// job returns the job of a run, or nil if the node does not drive it.
func (d *Driver) job(run string) *job {
	if n := d.node.Load(); n != nil {
		return n.job(run)
	}
	return nil
}

// Reserve implements [intake.Room].
func (d *Driver) Reserve(runs int, low func(room, share int) int) (r intake.Reservation) {
	n := d.node.Load()
	if n == nil {
		return r
	}
	r.Holder = n
	if !n.backlog.Load() {
		r.Runs = n.ask(min(runs, n.left()), d.Turns.Kept(time.Now()))
	}
	if r.Runs < runs && n.holds() < d.MaxInFlight {
		r.Kept = n.ask(low(r.Runs, n.share()), 0)
	}
	if r.Runs+r.Kept > 0 {
		r.Node = n.number
	}
	return r
}

// member is one membership. It joins, works, and leaves when ctx ends. It returns earlier if the
// node is fenced.
func (d *Driver) member(ctx context.Context) error {
	n := d.join(ctx)
	if n == nil {
		return nil
	}
	d.Guard.Rejoin(d.Clock.Now()) // before any call
	var loops sync.WaitGroup
	loops.Go(n.beats)
	// No run begins before the store's time is known. Its waits would count from the time of this
	// machine, whose clock may be slow.
	select {
	case <-d.Clock.Known:
	case <-ctx.Done():
	case <-n.ctx.Done():
	}
	loops.Go(n.claims)
	loops.Go(n.degrade)
	loops.Go(n.lend)
	loops.Go(n.desk.run)
	loops.Go(n.keepLimits)
	loops.Go(n.stirAll)
	d.node.Store(n)
	select {
	case <-ctx.Done():
	case <-n.ctx.Done():
	}
	d.node.CompareAndSwap(n, nil)
	err := n.drain()
	n.end(errLeft)
	loops.Wait()
	return err
}

// join makes the node a member. It returns nil if ctx ends first.
func (d *Driver) join(ctx context.Context) *node {
	backoff := 10 * time.Millisecond
	for {
		n, err := d.tryJoin(ctx)
		if err == nil {
			return n
		}
		if ctx.Err() != nil {
			return nil
		}
		d.joinError.Store(&err)
		d.Metrics.Failed("join")
		d.Log.Warn("node cannot join, trying again", "node", d.Name, "error", err)
		if !clock.Pause(ctx, backoff) {
			return nil
		}
		backoff = min(2*backoff, longestPoll)
	}
}

// tryJoin tries once to join. The definition and the settings must be known before the first run
// starts.
func (d *Driver) tryJoin(ctx context.Context) (*node, error) {
	limited, cancel := context.WithTimeout(ctx, clock.StoreTimeout)
	defer cancel()
	if err := d.Follower.Agree(limited); err != nil {
		return nil, err
	}
	if err := d.Settings.Refresh(limited); err != nil {
		return nil, err
	}
	if err := d.Degrader.Refresh(limited); err != nil {
		return nil, err
	}
	if err := d.recallLimits(limited); err != nil {
		return nil, err
	}
	began := time.Now()
	number, err := d.Store.Ledger.Join(limited, d.Name, d.Lease)
	if err != nil {
		return nil, fmt.Errorf("join: %w", err)
	}
	d.known.Joined(number)
	n := d.newNode(ctx, number)
	n.backlog.Store(true)
	n.renew(began, nil)
	n.nudge()
	return n, nil
}

// newNode makes a member with its number.
func (d *Driver) newNode(ctx context.Context, number int64) *node {
	n := &node{
		d: d, number: number, joined: time.Now(), log: d.Log.With("node", number), jobs: map[string]*job{}, pool: newWorkerPool(),
		draining: make(chan struct{}), wake: make(chan struct{}, 1), called: make(chan struct{}, 1),
		told: d.Store.Waker != nil, steppers: make(chan struct{}, runtime.GOMAXPROCS(0)),
	}
	// The node continues to work while it drains, after ctx has ended.
	n.ctx, n.end = context.WithCancelCause(context.WithoutCancel(ctx))
	n.calls, n.abort = context.WithCancel(n.ctx)
	n.steps = committer{
		ledger: d.Store.Ledger, runs: d.Store.Runs, node: number, log: n.log, metrics: d.Metrics, health: d.Writes, fenced: n.fence,
		ctx: n.ctx, damaged: func(err error) { d.damage.Store(&err) },
	}
	n.steps.start()
	n.caller = n
	n.desk = newTokenDesk(n)
	n.tokens = n.desk
	n.releaser = d.NewReleaser(n.log, n.nudge, n.room)
	return n
}
