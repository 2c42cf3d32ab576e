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

// A Virtual is an engine in virtual time, for tests of pipelines. It has one node that does one
// thing at a time, in the order of time. Its clock does not move while the node works, then jumps to
// the next due time. So a wait of a day takes no time, and the same events and answers give the
// same history. Apart from goroutines it is an [Engine]: intake, core, guard, checkpoints and
// controls, on a store that uses the same clock.
//
// A Virtual is not safe for concurrent use.
type Virtual struct {
	o       VirtualOptions
	e       *Engine
	stepper node.Stepper
	saved   int // checkpoints so far
}

// VirtualOptions configures a Virtual.
type VirtualOptions struct {
	Options // its store must use Clock

	Clock *clock.Virtual

	// Call replaces h.Handle, which it may call. Time passes inside it only through [clock.Sleep].
	// Nil calls the handler.
	Call func(ctx context.Context, t *core.Attempt, h Handler, c *Call) (model.Result, error)

	// Saved receives each change that the store has accepted. It may be nil.
	Saved func(c model.Change)

	// CrashAt is the number of the checkpoint at which the node dies, from 1. 0 means never. The
	// node dies before the checkpoint is written, or after that with CrashAfter.
	CrashAt    int
	CrashAfter bool

	// MaxCalls bounds the calls of all runs together, because a flow need not end. 0 means 100000.
	MaxCalls int
}

// virtualLease is longer than any test, because no other node exists to take over.
const virtualLease = 100 * 365 * 24 * time.Hour

// NewVirtual makes an engine, which joins its store.
func NewVirtual(ctx context.Context, o VirtualOptions) (*Virtual, error) {
	v := &Virtual{o: o}
	v.stepper = node.Stepper{Clock: o.Clock, MaxCalls: cmp.Or(o.MaxCalls, 100_000), Process: v.process}
	return v, v.stepper.Join(ctx)
}

// process makes another engine, which knows only what the store has.
func (v *Virtual) process() (*node.Driver, error) {
	o := v.o.Options
	o.Store.Ledger, o.Store.Waker = virtualLedger{o.Store.Ledger, v}, nil // nothing waits for hints
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

// virtualRunID makes the id of a new run. In virtual time it is derived from the event, which also
// fixes the delays of retries.
func virtualRunID(ev model.Event) string { return model.Digest("run", ev.Source, ev.ID) }

// Engine returns the engine, which accepts events and shows runs. A crash replaces it by another
// one.
func (v *Virtual) Engine() *Engine { return v.e }

// Saves returns the number of checkpoints written so far.
func (v *Virtual) Saves() int { return v.saved }

// Crash kills the node at once, like kill -9, and another node takes over. The outcome of a call in
// flight is lost.
func (v *Virtual) Crash() { v.stepper.Kill() }

// Until works until t. It returns earlier when ctx ends.
func (v *Virtual) Until(ctx context.Context, t time.Time) error {
	if _, err := v.stepper.Work(ctx, t); err != nil {
		return err
	}
	if t.After(v.o.Clock.Now()) {
		v.o.Clock.Set(t)
	}
	return nil
}

// Drain works until nothing is left to do before limit. It returns the time of the next work, or
// the zero time.
func (v *Virtual) Drain(ctx context.Context, limit time.Time) (next time.Time, err error) {
	return v.stepper.Work(ctx, limit)
}

// A virtualLedger counts checkpoints, and kills the node at one.
type virtualLedger struct {
	store.Ledger
	v *Virtual
}

// Commit implements [store.Ledger].
func (s virtualLedger) Commit(ctx context.Context, node int64, changes []model.Change) ([]error, error) {
	v := s.v
	crash := v.saved+1 == v.o.CrashAt
	if crash && !v.o.CrashAfter {
		v.saved++ // so that the crash happens once
		v.stepper.Kill()
	}
	if v.stepper.IsDying() {
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
		v.stepper.Kill()
		return nil, store.ErrFenced
	}
	return errs, nil
}
