package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"procaas/engine/canary"
	"procaas/engine/checkpoint"
	"procaas/engine/core"
	"procaas/engine/definitions"
	"procaas/engine/guard"
	"procaas/engine/intake"
	"procaas/engine/model"
	"procaas/engine/planner"
	"procaas/engine/store"
	"procaas/engine/tracing"
)

// A job is one run in this node's hands: it drives the pure core with time,
// calls and the store.
type job struct {
	n       *node
	claimed *store.Claimed
	version int64
	def     *definitions.Definition
	run     *core.Run
	pass    guard.Pass
	trace   *tracing.Run    // nil when nobody traces
	watch   *canary.Watch   // nil when no new version is tried
	held    map[string]bool // calls that the guard lets wait, by Task.Ref
	seen    *guard.Controls // that Ready has decided by
	again   bool            // ask Ready before waiting
	ends    bool            // all is done but the commit of its end; guarded by n.mu
	wake    chan struct{}
	log     *slog.Logger

	calls     context.Context // of the run's calls
	stopCalls context.CancelFunc
	underway  int
	ended     chan *ended
	last      time.Time // the latest time that the core has been told
	unsaved   time.Time // since when the core holds what only people would miss; zero: it does not

	once      sync.Once
	cancelled chan struct{} // closed: an operator wants the run ended
	gone      chan struct{} // closed: nobody waits for the ends of calls any more

	moving   atomic.Pointer[string] // the definition that an operator wants it to go on by; nil for none
	stopping atomic.Pointer[string] // why an operator wants it undone; nil for not at all
}

// An ended is a call that is over.
type ended struct {
	ref     string // of the task
	outcome core.Outcome
	end     guard.CallEnd
}

// saveAfter is how long a crash may make people miss that calls are in flight.
const saveAfter = 100 * time.Millisecond

// maxEnded bounds the calls of a run that have ended and wait to be told of.
const maxEnded = 1000

func newJob(n *node, c *store.Claimed) *job {
	j := &job{
		n: n, claimed: c, version: c.Version, cancelled: make(chan struct{}), gone: make(chan struct{}), wake: make(chan struct{}, 1),
		log:   lazyLog(n.log, func() []slog.Attr { return []slog.Attr{slog.String("run", c.ID), slog.String("key", c.Key)} }),
		trace: tracing.New(n.d.Tracer, c),
	}
	j.pass.Age = c.Accepted
	if c.Event.At.After(j.pass.Age) {
		j.pass.Age = c.Event.At
	}
	if reason, ok := model.UndoReason(c.Move); ok {
		j.stopping.Store(&reason)
	} else if c.Move != "" {
		j.moving.Store(&c.Move)
	}
	j.pass.Wake = func() {
		select {
		case j.wake <- struct{}{}:
		default:
		}
	}
	return j
}

// at returns the log for what happens at a path: a handler's, or the pipeline when
// it is empty. All that is logged of a run has the keys path, run and key.
func (j *job) at(path string) *slog.Logger {
	if path == "" {
		path = j.claimed.Pipeline // of the run's own goroutine: a commit may change it
	}
	return j.log.With("path", path)
}

// ofCall returns the log for what happens in a call.
func (j *job) ofCall(t *core.Attempt) *slog.Logger {
	return lazyLog(j.log, func() []slog.Attr {
		attrs := []slog.Attr{slog.String("path", t.Step.Path)}
		if t.Item > 0 {
			attrs = append(attrs, slog.Int("item", t.Item-1))
		}
		return append(attrs, slog.Int("attempt", t.Attempt))
	})
}

// cancel asks for the run's end. It may be called more than once.
func (j *job) cancel() { j.once.Do(func() { close(j.cancelled) }) }

// work continues with the run until it ends, is parked, or is lost to this node.
func (j *job) work() {
	defer close(j.gone)
	defer j.survive()
	j.calls, j.stopCalls = context.WithCancel(j.n.calls)
	defer j.stopCalls()
	defer func() { j.pass.Close(j.n.d.Clock.Now()) }()
	defer j.letGo()
	if !(opening{j}).begin() || j.n.isDraining() {
		return
	}
	for {
		var tasks []core.Attempt
		moves := j.moves()
		if moves && j.underway == 0 && !j.n.isDraining() {
			if j.putBack() {
				return
			}
			moves = false
		}
		if !moves && !j.n.isDraining() {
			tasks = j.ready()
		}
		if !j.goOn(tasks) || !j.wait() {
			return
		}
	}
}

// goOn saves what the core has decided, and begins calls. It is false when the run needs no more of this node. Calls
// beside a run begin even then.
func (j *job) goOn(tasks []core.Attempt) bool {
	saved := j.save()
	if !saved {
		tasks = slices.DeleteFunc(tasks, func(t core.Attempt) bool { return !t.Beside })
	}
	return j.start(tasks) && saved
}

// survive turns a panic of the core into the failure of the one run that caused
// it, so that it does not take the process, and each one that takes the run over.
func (j *job) survive() {
	if p := recover(); p != nil {
		j.at("").Error("run panicked", "panic", p, "stack", string(debug.Stack()))
		j.fail("", fmt.Errorf("internal error: %v", p))
	}
}

// save makes what the core has decided durable. It is false when the run needs
// no more of this node: it has ended, is parked, or is lost.
func (j *job) save() bool {
	status, next := j.run.Status(), j.run.Next()
	if status == model.Parked && !next.IsZero() && next.Sub(j.now()) <= guard.ShortHold {
		status = model.Running // not worth giving the run away
	}
	if status == model.Running && !j.mustSave() {
		return true
	}
	change := j.change()
	change.Version, change.Status, change.Due = j.version, status, time.Time{}
	if status == model.Parked {
		change.Due = next
	}
	change.Undoing = j.run.IsStopping()
	change.Emit = j.intakes(j.run.TakeEmits())
	j.count()
	j.unsaved = time.Time{}
	if status.Ended() {
		j.n.ends(j)
	}
	switch err := j.commit(change); {
	case errors.Is(err, store.ErrCancelled):
		return j.stop()
	case err != nil:
		return false
	}
	if change.Cause != "" && j.n.d.IsBusy(change.Cause) {
		select {
		case j.n.called <- struct{}{}:
		default:
		}
	}
	return status == model.Running
}

// rooms are for the records of one checkpoint.
var rooms = sync.Pool{New: func() any { return new([]checkpoint.Record) }}

// change returns what has changed of the run, with its checkpoint.
func (j *job) change() model.Change {
	room, _ := rooms.Get().(*[]checkpoint.Record)
	j.run.Room = *room
	c := j.run.Change()
	clear(j.run.Room)
	*room, j.run.Room = j.run.Room, nil
	rooms.Put(room)
	return c
}

// mustSave reports whether there is something to save now. What a crash may forget
// is worth no commit of its own, unless people would miss it: calls that take
// their time are to be seen.
func (j *job) mustSave() bool {
	if j.run.MustSave() || !j.run.Dirty() {
		return j.run.MustSave()
	}
	now := j.n.d.Clock.Now()
	if j.unsaved.IsZero() {
		j.unsaved = now
	}
	return now.Sub(j.unsaved) >= saveAfter
}

// commit writes one step of the run, and fails the run when the store refuses
// the step for itself.
func (j *job) commit(c model.Change) error {
	c.Alone = !j.claimed.Ordered
	err := j.n.steps.commit(c)
	switch {
	case err == nil:
		j.version++
		j.claimed.Checkpoint, j.claimed.Bundle, j.claimed.Pipeline = c.Checkpoint, c.Bundle, c.Pipeline
		if c.Progress && j.claimed.Losses > 0 {
			j.claimed.Losses = 0
			j.n.suspects.clear(j.claimed.ID)
		}
		if len(c.Emit) > 0 {
			j.n.nudge()
		}
		j.n.d.Watch.Saved(j.claimed.ID)
		if c.Status.Ended() {
			j.n.d.Watch.Ended(store.RunRecord{
				ID: c.Run, Status: c.Status, Pipeline: c.Pipeline, Bundle: c.Bundle, Outputs: j.run.Outputs(), Version: j.version,
				FailedPath: c.FailedPath, Error: c.Error, ErrorClass: c.ErrorClass, Reason: c.Reason,
			})
			j.n.d.Metrics.Runs.WithLabelValues(c.Pipeline, string(c.Status)).Inc()
		}
		if c.Status == model.Failed {
			j.at(c.FailedPath).Warn("run failed", "error", c.Error)
		}
		j.notice(c)
		j.trace.Saved(j.run, c, j.n.d.Clock.Now())
	case errors.Is(err, store.ErrStale):
		j.at("").Warn("run has moved on without this node, its progress here is dropped")
	case errors.Is(err, store.ErrCancelled), errors.Is(err, store.ErrFenced), j.n.ctx.Err() != nil:
	case c.Status == model.Failed:
		j.at("").Error("run cannot be saved as failed", "error", err)
	default:
		j.fail("", fmt.Errorf("save: %w", err))
	}
	return err
}

// fail ends the run with the checkpoint that was saved last.
func (j *job) fail(path string, err error) {
	_ = j.commit(model.Change{ // commit has logged what went wrong
		Run: j.claimed.ID, Version: j.version, Status: model.Failed, Bundle: j.claimed.Bundle, Undoing: true,
		Pipeline: j.claimed.Pipeline, Checkpoint: j.claimed.Checkpoint,
		FailedPath: path, Error: model.CleanText(err.Error()), ErrorClass: model.ClassOf(err),
	})
}

// start begins calls. It is false when the node may not start any more.
func (j *job) start(tasks []core.Attempt) bool {
	if len(tasks) == 0 {
		return true
	}
	if !j.n.lease.valid(j.calls) {
		return false
	}
	if j.ended == nil {
		j.ended = make(chan *ended, min(j.run.Plan().MostCalls, maxEnded))
	}
	if j.trace.Begin(j.run.Plan().Pipeline.ID, j.run.Began()) {
		j.log = j.log.With("trace_id", j.trace.Context.TraceID())
	}
	// Saving may have taken its time: a control that has come meanwhile counts, and so does a
	// deadline that has passed.
	now, c := j.n.d.Clock.Now(), j.n.d.Settings.Controls()
	for i := range tasks {
		t := &tasks[i]
		late := !t.Deadline.IsZero() && !t.Deadline.After(now)
		if late || c != j.seen && (c.Skips(t.Step, now) != nil || c.Holds(t.Step, now) != nil) {
			j.run.Withdraw(t.Ref(), now)
			j.pass.Leave(t.Ref(), now)
			j.again = true
			continue
		}
		if !t.Beside {
			j.underway++
			j.watch.Called(t.Step.Path)
		}
		j.n.makeCall(j, t)
	}
	return true
}

// wait waits until the core has something to decide. It is false when the run is
// not this node's any more.
func (j *job) wait() bool {
	if j.again {
		j.again = false
		return true
	}
	draining := j.n.draining
	if j.n.isDraining() {
		if j.underway == 0 {
			return false // it is given back as it was saved last
		}
		draining = nil
	}
	next := j.run.Next()
	if j.moves() {
		if j.underway == 0 {
			return true
		}
		next = time.Time{} // nothing is started any more
	}
	if j.underway == 0 && (next.IsZero() || draining == nil) {
		j.fail("", errors.New("internal error: the run waits for nothing"))
		return false
	}
	var due <-chan time.Time
	if delay, ok := j.delay(next); ok && draining != nil {
		due = time.After(delay)
	}
	select {
	case <-j.n.ctx.Done():
		return false
	case <-draining:
		return true
	case <-j.wake:
		return true
	case <-j.superseded():
		return true
	case <-j.cancelled:
		return j.stop()
	case <-due:
		return true
	case e := <-j.ended:
		j.finish(e)
		return true
	}
}

// superseded returns a channel that is closed when there are newer controls than
// those that Ready has decided by.
func (j *job) superseded() <-chan struct{} {
	if j.seen == nil || j.moves() || j.n.isDraining() { // which ask Ready no more
		return nil
	}
	return j.seen.Superseded
}

// delay returns the time until there is something to do though no call ends; false
// when there is nothing.
func (j *job) delay(next time.Time) (delay time.Duration, ok bool) {
	if !next.IsZero() {
		delay, ok = next.Sub(j.n.d.Clock.Now()), true
	}
	if ok && delay > guard.ShortHold && j.underway > 0 && strings.Contains(j.run.Cause(), guard.Mark) {
		delay = guard.ShortHold // nobody calls a run up that does not wait in the store
	}
	if _, listens := j.run.Awaits(); listens && (!ok || delay > listenEvery) {
		delay, ok = listenEvery, true
	}
	if !j.unsaved.IsZero() {
		if save := saveAfter - j.n.d.Clock.Now().Sub(j.unsaved); !ok || save < delay {
			delay, ok = save, true
		}
	}
	return delay, ok
}

// finish tells the core about a call that has ended and the others that have
// meanwhile, so that they ride in one checkpoint. Calls that were broken off are
// left out: nobody knows what became of them.
func (j *job) finish(e *ended) {
	for {
		j.underway--
		e.outcome.Ended = j.n.d.Clock.Now()
		e.outcome.Probe = j.pass.End(e.ref, e.end, e.outcome.Ended)
		if e.outcome.Err == nil || j.calls.Err() == nil {
			j.run.Finish(e.ref, e.outcome, j.liveAt(j.n.d.Clock.Latest())) // from when on it waits, if it does
		}
		select {
		case e = <-j.ended:
		default:
			return
		}
	}
}

// stop ends the run as an operator wants it. The next event of the key may start
// then, so calls in flight are broken off and waited for first. It is always
// false: the run is over.
func (j *job) stop() bool {
	j.stopCalls()
	for ; j.underway > 0; j.underway-- {
		select {
		case <-j.ended:
		case <-j.n.ctx.Done():
			return false
		}
	}
	j.run.Cancel(model.CancelReason, j.n.d.Clock.Now())
	change := j.change()
	change.Version, change.Status, change.Reason = j.version, model.Cancelled, model.CancelReason
	j.count()
	_ = j.commit(change) // commit has logged what went wrong
	return false
}

// count counts handlers that were left out, and those that only compute; calls
// count themselves. One that was left out while it waited gives its places back.
func (j *job) count() {
	for _, h := range j.run.TakeEnded() {
		for ref := range j.held {
			if model.IsRefOf(ref, h.Ref()) {
				j.hold(ref, false)
			}
		}
		j.pass.LeaveAll(h.Ref(), j.n.d.Clock.Now())
		j.trace.Note(h)
		seen := j.n.d.Stats.Path(h.Path)
		step := core.StepOf(j.run.Plan(), h)
		if by := model.LeftBy(h.Outcome, h.Reason); by != "" && (step == nil || !step.Handler.IsCritical()) {
			j.leftOut(h, step, by)
		}
		switch computes := step != nil && step.Computes(); {
		case h.Outcome == model.OutcomeSkipped:
			seen.Skipped.Inc()
		case h.Outcome == model.OutcomeSucceeded && computes:
			seen.Ended(nil, 0, time.Now())
		case h.Outcome == model.OutcomeFailed:
			if computes {
				seen.Ended(errors.New(h.Error), 0, time.Now())
			}
			j.gaveUp(h, step)
		}
	}
}

// gaveUp counts a handler that has failed for good. One that is critical fails the
// run, which is told then; of others it is logged as often as people can read.
func (j *job) gaveUp(h checkpoint.HandlerView, step *planner.Step) {
	seen := j.n.d.Stats.Path(h.Path)
	seen.GivenUp.Inc()
	if step == nil || step.Handler.IsCritical() {
		return
	}
	j.notify(model.NoticeGivenUp, h.Path, h.Error)
	if unsaid, ok := seen.Say(time.Now()); ok {
		j.at(h.Path).Warn("handler failed for good", "attempts", h.Attempts, "error", h.Error, "unlogged", unsaid)
	}
}

// intakes routes events that handlers emitted. They were routed once when they
// came; should a new definition have dropped their type since, the run's own
// one still knows it.
func (j *job) intakes(events []model.Event) []model.Intake {
	var out []model.Intake
	for _, ev := range events {
		in, err := intake.Route(j.n.d.Library.Present(), ev)
		if err != nil {
			in, err = intake.Route(j.def, ev)
		}
		if err != nil {
			j.at("").Error("emitted event is lost", "type", ev.Type, "error", err)
			continue
		}
		in.Dedup, in.From = true, nil
		out = append(out, in)
	}
	if len(out) > 0 && j.n.backlog.Load() {
		j.n.d.Turns.Queue(j.n.d.Library.Present().Bundle, out, j.n.d.Clock.Now())
	}
	return out
}
