package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"procaas/engine/clock"
	"procaas/engine/core"
	"procaas/engine/intake"
	"procaas/engine/model"
	"procaas/engine/store"
	"procaas/engine/writes"
)

// A Virtual is an engine in virtual time, for tests of pipelines: one node that
// does one thing after the other, in the order of time. Its clock stands still
// while something is done, and then goes to what comes next, so that a wait of a
// day takes no time, and the same events and answers give the same history. All
// but the goroutines is that of [Engine]: intake, core, guard, checkpoints and
// controls, on a store that goes by the same clock.
//
// A Virtual is not safe for concurrent use.
type Virtual struct {
	o     VirtualOptions
	clock *VirtualClock

	e     *Engine
	n     *node
	jobs  []*job // by when they were claimed
	ends  []virtualEnd
	dying bool // the node dies, as soon as it can be seen
	saved int  // checkpoints so far
	calls int
}

// VirtualOptions says what a Virtual works with.
type VirtualOptions struct {
	Options // its store must go by Clock

	Clock *VirtualClock

	// Call makes the calls of handlers, in place of h.Handle, which it may call.
	// Time passes in it by [clock.Sleep] alone. Nil calls the handler.
	Call func(ctx context.Context, t core.Attempt, h Handler, c *Call) (model.Result, error)

	// Saved is told what the store has taken. It may be nil.
	Saved func(c model.Change)

	// CrashAt is the number of a checkpoint, from 1, at which the node dies; 0 for
	// none. It dies before the checkpoint is written, or with CrashAfter when it is.
	CrashAt    int
	CrashAfter bool

	// MaxCalls bounds the calls of all runs together, since a flow need not come
	// to an end; 100000 when 0.
	MaxCalls int
}

// A VirtualClock is the time of a Virtual and its store.
type VirtualClock struct{ now time.Time }

// NewVirtualClock makes a clock that stands at a time.
func NewVirtualClock(now time.Time) *VirtualClock { return &VirtualClock{now.UTC()} }

// Now tells the time.
func (c *VirtualClock) Now() time.Time { return c.now }

// A virtualEnd is how a call will have ended at a time.
type virtualEnd struct {
	at time.Time
	j  *job
	ended
}

// virtualLease is longer than any test: the node is alone.
const virtualLease = 100 * 365 * 24 * time.Hour

// NewVirtual makes an engine and lets it join its store.
func NewVirtual(ctx context.Context, o VirtualOptions) (*Virtual, error) {
	o.MaxCalls = cmp.Or(o.MaxCalls, 100_000)
	v := &Virtual{o: o, clock: o.Clock}
	return v, v.join(ctx)
}

// Engine gives the engine, to hand events in and to look at what became of them.
// After a crash it is another one.
func (v *Virtual) Engine() *Engine { return v.e }

// Saves tells how many checkpoints were written so far.
func (v *Virtual) Saves() int { return v.saved }

// Crash lets the node die at once, as kill -9 does, and another one take over.
// During a call nobody will hear how it ended.
func (v *Virtual) Crash() { v.dying = true }

// Until works until a time. It returns earlier when ctx ends.
func (v *Virtual) Until(ctx context.Context, t time.Time) error {
	if _, err := v.work(ctx, t); err != nil {
		return err
	}
	if t.After(v.clock.now) {
		v.clock.now = t
	}
	return nil
}

// Drain works until nothing is left to do, or would be done only after the time
// limit; then it tells when.
func (v *Virtual) Drain(ctx context.Context, limit time.Time) (next time.Time, err error) {
	return v.work(ctx, limit)
}

// join starts a process: a new engine, which knows only what the store does.
func (v *Virtual) join(ctx context.Context) error {
	o := v.o.Options
	o.Store.Ledger, o.Store.Waker = virtualLedger{o.Store.Ledger, v}, nil // nobody waits for a hint
	o.virtual = &v.o
	e, err := New(o)
	if err != nil {
		return err
	}
	if err := e.Agree(ctx); err != nil {
		return err
	}
	if err := e.settings.Refresh(ctx); err != nil {
		return err
	}
	number, err := o.Store.Ledger.Join(ctx, o.Name, virtualLease)
	if err != nil {
		return fmt.Errorf("join: %w", err)
	}
	n := e.newNode(ctx, number)
	n.lease.renew(time.Now().Add(virtualLease), time.Time{}, nil)
	n.virtual = v
	v.e, v.n = e, n
	return nil
}

// restart is what happens after a crash.
func (v *Virtual) restart(ctx context.Context) error {
	v.dying = false
	for _, j := range slices.Clone(v.jobs) { // close takes them out of the list
		v.close(j)
	}
	v.jobs, v.ends = nil, nil
	v.n.end(store.ErrFenced)
	// Whoever comes next takes the runs of the dead node over.
	if err := v.o.Store.Ledger.Leave(ctx, v.n.number, nil); err != nil {
		return err
	}
	return v.join(ctx)
}

// work does what there is to do up to a time, and tells when there is more; zero
// for never.
func (v *Virtual) work(ctx context.Context, until time.Time) (next time.Time, err error) {
	for {
		if err := ctx.Err(); err != nil {
			return next, context.Cause(ctx)
		}
		if v.calls > v.o.MaxCalls {
			return next, fmt.Errorf("no end after %d calls", v.o.MaxCalls)
		}
		if v.dying {
			if err := v.restart(ctx); err != nil {
				return next, err
			}
		}
		due, busy, err := v.look(ctx)
		if err != nil {
			return next, err
		}
		if busy || v.dying {
			continue
		}
		if next = v.next(due); next.IsZero() || next.After(until) {
			return next, nil
		}
		v.clock.now = next
		v.deliver()
	}
}

// look asks the store what there is to do now, and does it. It tells when the
// store will have more, and whether there may be more at once.
func (v *Virtual) look(ctx context.Context) (due time.Duration, busy bool, err error) {
	b, err := v.o.Store.Ledger.Beat(ctx, v.n.number, virtualLease, v.e.Bundle().Hash)
	if err != nil {
		return 0, false, fmt.Errorf("beat: %w", err)
	}
	soon, err := v.n.heed(b)
	if err != nil {
		return 0, false, err
	}
	claimed, err := v.o.Store.Ledger.Claim(ctx, v.n.number, writes.MaxBatch, v.e.Bundle().Hash)
	if err != nil {
		return 0, false, fmt.Errorf("claim: %w", err)
	}
	for i := range claimed {
		j := newJob(v.n, &claimed[i])
		v.n.jobs[j.claimed.ID] = j
		v.begin(j)
		if v.dying {
			return 0, true, nil
		}
	}
	for _, j := range slices.Clone(v.jobs) {
		if v.stirred(j) {
			busy = true
			v.step(j)
		}
		if v.dying {
			break
		}
	}
	if due = b.Next; soon > 0 && (due == 0 || soon < due) {
		due = soon
	}
	return due, busy || len(claimed) > 0, nil
}

// begin takes a run up.
func (v *Virtual) begin(j *job) {
	j.calls, j.stopCalls = context.WithCancel(v.n.calls)
	v.jobs = append(v.jobs, j)
	v.attempt(j, func() bool { return j.begin() && v.advance(j) })
}

// stirred tells whether a run has to look again though nothing of it has ended.
// One that an operator wants ended ends.
func (v *Virtual) stirred(j *job) bool {
	select {
	case <-j.cancelled:
		j.underway = 0 // the calls under way are broken off
		j.stop()
		v.close(j)
		return false
	case <-j.superseded():
		return true
	case <-j.wake:
		return true
	default:
		return false
	}
}

// step lets a run go on as far as it can without time passing.
func (v *Virtual) step(j *job) { v.attempt(j, func() bool { return v.advance(j) }) }

// attempt does something with a run, and forgets the run when it needs no more of
// this node.
func (v *Virtual) attempt(j *job, do func() (more bool)) {
	more := false
	defer func() {
		if !more {
			v.close(j)
		}
	}()
	defer j.survive()
	more = do()
}

func (v *Virtual) advance(j *job) (more bool) {
	for again := true; again; {
		tasks := j.ready()
		if !j.save() || v.dying || !j.start(tasks) {
			return false
		}
		again, j.again = j.again, false
	}
	if j.underway == 0 && j.run.Next().IsZero() {
		j.fail("", errors.New("internal error: the run waits for nothing"))
		return false
	}
	return true
}

// call makes a call, and notes when it ends.
func (v *Virtual) call(j *job, t core.Attempt) {
	if v.dying {
		return
	}
	v.calls++
	p := &clock.Pace{Began: v.clock.now}
	e := virtualEnd{j: j, ended: j.call(clock.Paced(j.calls, p), t)}
	e.at = p.Began.Add(p.Passed)
	at, _ := slices.BinarySearchFunc(v.ends, e, func(a, b virtualEnd) int {
		return cmp.Or(a.at.Compare(b.at), -1) // behind those of the same time
	})
	v.ends = slices.Insert(v.ends, at, e)
}

// next is when something happens next; zero for never.
func (v *Virtual) next(due time.Duration) time.Time {
	var next time.Time
	sooner := func(t time.Time) {
		if next.IsZero() || t.Before(next) {
			next = t
		}
	}
	if len(v.ends) > 0 {
		sooner(v.ends[0].at)
	}
	if due > 0 {
		sooner(v.clock.now.Add(due))
	}
	for _, j := range v.jobs {
		if delay, ok := j.delay(j.run.Next()); ok {
			sooner(v.clock.now.Add(max(delay, 0)))
		}
	}
	return next
}

// deliver tells runs what has come by now: the ends of calls, one by one, and the
// times that they have waited for.
func (v *Virtual) deliver() {
	for len(v.ends) > 0 && !v.ends[0].at.After(v.clock.now) && !v.dying {
		e := v.ends[0]
		v.ends = v.ends[1:]
		e.j.finish(e.ended)
		v.step(e.j)
	}
	for _, j := range slices.Clone(v.jobs) {
		if delay, ok := j.delay(j.run.Next()); ok && delay <= 0 && !v.dying {
			v.step(j)
		}
	}
}

// close forgets a run: it has ended, is parked, or is lost.
func (v *Virtual) close(j *job) {
	j.stopCalls()
	j.pass.Close(v.clock.now)
	delete(v.n.jobs, j.claimed.ID)
	v.jobs = slices.DeleteFunc(v.jobs, func(other *job) bool { return other == j })
	v.ends = slices.DeleteFunc(v.ends, func(e virtualEnd) bool { return e.j == j })
}

// now gives the clock; nil for the machine's.
func (o *VirtualOptions) now() func() time.Time {
	if o == nil {
		return nil
	}
	return o.Clock.Now
}

// RunID makes the id of a new run. In virtual time it follows from the event, and
// so do the delays of repetitions.
func (o *VirtualOptions) runID(ev model.Event) string {
	if o == nil {
		return intake.NewID()
	}
	return model.Digest("run", ev.Source, ev.ID)
}

// call makes a call of a handler.
func (o *VirtualOptions) call(ctx context.Context, t core.Attempt, h Handler, c *Call) (model.Result, error) {
	if o == nil || o.Call == nil {
		return h.Handle(ctx, c)
	}
	return o.Call(ctx, t, h, c)
}

// A virtualLedger counts checkpoints, and lets the node die at one.
type virtualLedger struct {
	store.Ledger
	v *Virtual
}

// Commit implements [store.Ledger].
func (s virtualLedger) Commit(ctx context.Context, node int64, changes []model.Change) ([]error, error) {
	v := s.v
	crash := v.saved+1 == v.o.CrashAt
	if crash && !v.o.CrashAfter {
		v.saved++ // so that it is tried again after the crash
		v.dying = true
	}
	if v.dying {
		return nil, store.ErrFenced
	}
	errs, err := s.Ledger.Commit(ctx, node, changes)
	if err != nil {
		return errs, err
	}
	v.saved++
	for i, c := range changes {
		if errs[i] == nil && v.o.Saved != nil {
			v.o.Saved(c)
		}
	}
	if crash {
		v.dying = true
		return nil, store.ErrFenced
	}
	return errs, nil
}
