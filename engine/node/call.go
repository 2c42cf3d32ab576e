package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"procaas/engine/budget"
	"procaas/engine/clock"
	"procaas/engine/core"
	"procaas/engine/definitions"
	"procaas/engine/guard"
	"procaas/engine/intake"
	"procaas/engine/model"
	"procaas/engine/store"
	"procaas/engine/tracing"
)

// A Call is one attempt of a handler.
type Call struct {
	*core.Attempt
	Run        *store.Claimed
	Definition *definitions.Definition // of the run
	Node       int64                   // number of the node
	TimeLeft   time.Duration           // until the deadline; 0 for none
	Now        time.Time               // the latest possible time at the store, and not before a time that the run has seen
	Log        *slog.Logger

	TraceParent, TraceState string // of the attempt, or of the event if the node does not trace

	// Reserve and Sent are those of the handler's call.
	Reserve func(ctx context.Context, bytes int, most bool) error
	Sent    func(bytes int64)
}

// call makes one attempt of a handler, or a verification.
func (j *job) call(calls context.Context, t *core.Attempt) *ended {
	ctx, left := calls, j.timeLeft(t)
	if left > 0 && (t.Timeout == 0 || left < t.Timeout) {
		t.Timeout = left
	}
	if t.Timeout > 0 {
		limited, cancel := clock.WithTimeout(ctx, t.Timeout)
		defer cancel()
		ctx = limited
	}
	seen := j.n.d.Stats.Path(t.Step.Path)
	seen.Underway.Add(1)
	defer seen.Underway.Add(-1)
	mem := j.mem.Part(budget.Replies)
	if t.Beside {
		mem = j.n.d.Memory.Hold(budget.Runs) // it may outlive the run, so it counts like one
	}
	span := tracing.Attempt{Parent: j.claimed.Event.TraceParent, State: j.claimed.Event.TraceState}
	if j.trace != nil {
		ctx, span = j.trace.Attempt(ctx, t)
	}
	c := &counted{Call: Call{
		Attempt: t, Run: j.claimed, Definition: j.def, Node: j.n.number, TimeLeft: left,
		Now:         since(j.n.d.Clock.Latest(), t.Begun),
		TraceParent: span.Parent, TraceState: span.State, Reserve: reserving(calls, mem),
	}}
	c.log = lazyHandler{j.log.Handler(), (*attemptLog)(t)}
	c.Log, c.Sent = slog.New(&c.log), c.count
	trace := j.trace.Exported()
	began := time.Now()
	result, err := j.n.d.Call(ctx, &c.Call)
	if err == nil {
		err = j.checkResult(ctx, t, result, &span)
	}
	now := time.Now()
	span.End(result, err, err != nil && calls.Err() != nil)
	if err != nil {
		if calls.Err() != nil {
			return &ended{ref: t.Ref(), outcome: core.Outcome{Err: err}, end: guard.CallEnd{Verdict: guard.CallMute}, mem: mem} // interrupted
		}
		c.Log.Debug("attempt failed", "error", err)
	}
	e := &ended{ref: t.Ref(), outcome: core.Outcome{Result: result, Err: err}, end: guard.EndOf(t.Step, err, now.Sub(began)), mem: mem}
	e.at, e.took, e.trace = now, now.Sub(began), trace
	j.n.d.Stats.Called(t.Step.Path, e.took, c.sent.Load(), int64(mem.Has()), j.n.d.Clock.Now())
	if !t.Verify { // a verification says nothing about the handler's own calls
		switch {
		case t.Beside:
			seen.Ended(err, e.took, now, e.trace) // the run does not hear of it
		case result.Again == "":
			e.handler = seen
		}
		if j.def.Counted[t.Step] && !j.isOnTrial() {
			j.n.d.Degrader.Count(t.Step, err, e.took, j.n.d.Clock.Now())
		}
	}
	if j.watch != nil && t.Attempt == 1 && t.Item <= 1 && !t.Verify {
		j.n.d.Degrader.Tally(j.watch.Tried(t.Step.Path, err == nil, j.n.d.Clock.Now()))
	}
	return e
}

// A counted call counts what it sends.
type counted struct {
	Call
	log  lazyHandler // of Call.Log
	sent atomic.Int64
}

func (c *counted) count(bytes int64) { c.sent.Add(bytes) }

// An attemptLog has the attributes of log records of a call.
type attemptLog core.Attempt

func (t *attemptLog) attrs() []slog.Attr {
	attrs := []slog.Attr{slog.String("path", t.Step.Path)}
	if t.Item > 0 {
		attrs = append(attrs, slog.Int("item", t.Item-1))
	}
	return append(attrs, slog.Int("attempt", t.Attempt))
}

// isOnTrial reports whether the run has a version that a share of the keys tries. Its calls say
// nothing about the handlers of the current version.
func (j *job) isOnTrial() bool {
	t := j.n.d.Library.Trial()
	return t != nil && t.Percent < 100 && t.New == j.def.Bundle.Hash
}

// timeLeft returns the time until the deadline of an attempt, which is more than 0 when the attempt
// begins. It returns 0 if there is no deadline.
func (j *job) timeLeft(t *core.Attempt) time.Duration {
	if t.Deadline.IsZero() {
		return 0
	}
	return max(t.Deadline.Sub(j.n.d.Clock.Now()), 1)
}

// checkResult checks a result against the declared schemas of the handler. Otherwise a response
// that expressions were not checked against would fail later, or not at all.
func (j *job) checkResult(ctx context.Context, t *core.Attempt, result model.Result, span *tracing.Attempt) error {
	if !t.Verify && result.Again == "" {
		if err := t.Step.Handler.CheckResponse(ctx, result.Status, result.Response); err != nil {
			return err
		}
	}
	return j.checkEmits(ctx, result.Emit, span)
}

// checkEmits refuses events that no pipeline serves, and events whose payload does not match the
// schema of their type. It adds the trace context of the attempt to the others.
func (j *job) checkEmits(ctx context.Context, events []model.Event, span *tracing.Attempt) error {
	d := j.n.d.Library.Present()
	for i, ev := range events {
		if ev.TraceParent == "" {
			events[i].TraceParent, events[i].TraceState = span.Parent, span.State
		}
		if _, err := intake.Route(d, ev); err != nil && j.def == j.n.d.Library.Tried() {
			d = j.def // its own version may serve types that the current one does not know
		}
		if _, err := intake.Route(d, ev); err != nil {
			return model.Permanent(fmt.Errorf("emitted event %s: %w", ev.Type, err))
		}
		if err := d.Bundle.Event(ev.Type).Contract().CheckContext(ctx, ev.Payload); err != nil {
			return model.Permanent(fmt.Errorf("emitted event %s: %w", ev.Type, err))
		}
	}
	return nil
}

// An ended is a call that has ended.
type ended struct {
	ref     string // of the task
	outcome core.Outcome
	end     guard.CallEnd
	mem     *budget.Holder // of the reply, until the run has it

	// For the figures of the handler.

	handler interface { // its statistics; nil for what is no attempt of its own
		Ended(err error, took time.Duration, now time.Time, trace string)
	}
	at    time.Time
	took  time.Duration
	trace string // id; empty if none is exported
}

// counts counts the attempt in the figures of its handler, when the run has taken its outcome or refused it.
func (e *ended) counts(refused string) {
	if e.handler == nil {
		return
	}
	err := e.outcome.Err
	if err == nil && refused != "" {
		err = errors.New(refused)
	}
	e.handler.Ended(err, e.took, e.at, e.trace)
}

// start starts calls. It returns false if the node may start none.
func (j *job) start(tasks []core.Attempt) bool {
	if len(tasks) == 0 {
		return true
	}
	if !j.n.lease.valid(j.calls) {
		return false
	}
	if j.trace.Begin(j.run.Plan().Pipeline.ID, j.run.Began()) {
		j.log = j.log.With("trace_id", j.trace.Context.TraceID())
	}
	// Saving may have taken a while, so newer controls and passed deadlines count. An operator who
	// switches a handler off must not see it called after the answer.
	now, c := j.n.d.Clock.Now(), j.n.d.Settings.Controls()
	for i := range tasks {
		t := &tasks[i]
		late := !t.Deadline.IsZero() && !t.Deadline.After(now)
		off := c != j.seen && (c.Skips(t.Step, now) != nil || c.Holds(t.Step, now) != nil)
		if late || off || !j.pass.Begin(t.Ref()) {
			j.run.Withdraw(t.Ref(), now)
			j.pass.Leave(t.Ref(), now)
			j.again = true
			continue
		}
		if !t.Beside {
			j.underway++
			j.watch.Called(t.Step.Path)
		}
		j.n.caller.startCall(j, t)
	}
	return true
}

// finish tells the core about ended calls, so that one checkpoint has all of them. Interrupted
// calls are left out, because their outcome is unknown.
func (j *job) finish(list []*ended) {
	if len(list) == 0 {
		return
	}
	defer j.computes()()
	for _, e := range list {
		j.underway--
		if j.cancelling {
			e.counts("")
			e.mem.Close()
			continue
		}
		e.outcome.Ended = j.n.d.Clock.Now()
		e.outcome.Probe = j.pass.End(e.ref, e.end, e.outcome.Ended)
		if e.outcome.Err == nil || j.calls.Err() == nil {
			j.run.Finish(e.ref, e.outcome, j.liveAt(j.n.d.Clock.Latest())) // if it waits, from this time on
			e.counts(j.run.Refused())
		}
		e.mem.Close() // what the run keeps of it counts for the run from now on
		j.weigh()
	}
}
