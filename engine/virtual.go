package engine

import (
	"cmp"
	"context"
	"time"

	"procaas/engine/clock"
	"procaas/engine/core"
	"procaas/engine/model"
	"procaas/engine/node"
	"procaas/engine/store"
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
	o       VirtualOptions
	e       *Engine
	stepper node.Stepper
	saved   int // checkpoints so far
}

// VirtualOptions says what a Virtual works with.
type VirtualOptions struct {
	Options // its store must go by Clock

	Clock *clock.Virtual

	// Call makes the calls of handlers, in place of h.Handle, which it may call.
	// Time passes in it by [clock.Sleep] alone. Nil calls the handler.
	Call func(ctx context.Context, t *core.Attempt, h Handler, c *Call) (model.Result, error)

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

// virtualLease is longer than any test: the node is alone.
const virtualLease = 100 * 365 * 24 * time.Hour

// NewVirtual makes an engine and lets it join its store.
func NewVirtual(ctx context.Context, o VirtualOptions) (*Virtual, error) {
	v := &Virtual{o: o}
	v.stepper = node.Stepper{Clock: o.Clock, MaxCalls: cmp.Or(o.MaxCalls, 100_000), Process: v.process}
	return v, v.stepper.Join(ctx)
}

// process makes another engine, which knows only what the store does.
func (v *Virtual) process() (*node.Driver, error) {
	o := v.o.Options
	o.Store.Ledger, o.Store.Waker = virtualLedger{o.Store.Ledger, v}, nil // nobody waits for a hint
	o.Lease = virtualLease
	o.now, o.runID = v.o.Clock.Now, virtualRunID
	if v.o.Call != nil {
		o.call = v.o.Call
	}
	e, err := New(o)
	if err != nil {
		return nil, err
	}
	v.e = e
	return e.driver, nil
}

// virtualRunID makes the id of a new run. In virtual time it follows from the event, and
// so do the delays of repetitions.
func virtualRunID(ev model.Event) string { return model.Digest("run", ev.Source, ev.ID) }

// Engine gives the engine, to hand events in and to look at what became of them.
// After a crash it is another one.
func (v *Virtual) Engine() *Engine { return v.e }

// Saves tells how many checkpoints were written so far.
func (v *Virtual) Saves() int { return v.saved }

// Crash lets the node die at once, as kill -9 does, and another one take over.
// During a call nobody will hear how it ended.
func (v *Virtual) Crash() { v.stepper.Dying = true }

// Until works until a time. It returns earlier when ctx ends.
func (v *Virtual) Until(ctx context.Context, t time.Time) error {
	if _, err := v.stepper.Work(ctx, t); err != nil {
		return err
	}
	if t.After(v.o.Clock.Now()) {
		v.o.Clock.Set(t)
	}
	return nil
}

// Drain works until nothing is left to do, or would be done only after the time
// limit; then it tells when.
func (v *Virtual) Drain(ctx context.Context, limit time.Time) (next time.Time, err error) {
	return v.stepper.Work(ctx, limit)
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
		v.stepper.Dying = true
	}
	if v.stepper.Dying {
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
		v.stepper.Dying = true
		return nil, store.ErrFenced
	}
	return errs, nil
}
