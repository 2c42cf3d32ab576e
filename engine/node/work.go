package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"procaas/engine/budget"
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

// A job is one run that this node drives. It gives the pure core time, calls and the store.
type job struct {
	n       *node
	claimed *store.Claimed
	version int64
	came    time.Time  // when the node took the run
	lane    model.Lane // as reported to the turns
	mem     *budget.Holder
	def     *definitions.Definition
	run     *core.Run
	pass    guard.Pass
	trace   *tracing.Run    // nil if the node does not trace
	watch   *canary.Watch   // nil if no new version is on trial
	held    map[string]bool // calls that the guard makes wait, by Attempt.Ref
	seen    *guard.Controls // the controls that Ready has used last
	rules   core.Live       // without what changes between two uses
	again   bool            // ask Ready before waiting
	ends    bool            // only the commit of its end is missing; guarded by n.mu
	log     *slog.Logger

	drive      drive
	begun      bool // the first round has been made
	cancelling bool // no more calls start, and the run ends with those in flight

	calls     context.Context // of the run's calls
	stopCalls context.CancelFunc
	underway  int
	last      time.Time // the latest time that the core has seen
	unsaved   time.Time // since when the core has a change that only people would miss; zero: none

	cancelled atomic.Bool            // an operator has cancelled the run
	moving    atomic.Pointer[string] // the definition that an operator moves it to; nil for none
	stopping  atomic.Pointer[string] // why an operator wants it undone; nil for none
}

// An ended is a call that has ended.
type ended struct {
	ref     string // of the task
	outcome core.Outcome
	end     guard.CallEnd
	mem     *budget.Holder // of the reply, until the run has it
}

const (
	// saveAfter is the longest time an in-flight call stays invisible to people after a crash.
	saveAfter = 100 * time.Millisecond

	// A checkpoint has the outcomes of all elements. So while they end, a run whose checkpoint is larger than
	// lightCheckpoint writes at most so many bytes a second.
	lightCheckpoint  = 16 << 10
	checkpointVolume = 4 << 20
)

func newJob(n *node, c *store.Claimed) *job {
	j := &job{
		n: n, claimed: c, version: c.Version, came: time.Now(), drive: drive{turn: turn{taken: true}},
		log:   lazyLog(n.log, func() []slog.Attr { return []slog.Attr{slog.String("run", c.ID), slog.String("key", c.Key)} }),
		trace: tracing.New(n.d.Tracer, c),
	}
	j.calls, j.stopCalls = context.WithCancel(n.calls)
	j.pass.Age = c.Accepted
	if c.Event.At.After(j.pass.Age) {
		j.pass.Age = c.Event.At
	}
	if reason, ok := model.UndoReason(c.Move); ok {
		j.stopping.Store(&reason)
	} else if c.Move != "" {
		j.moving.Store(&c.Move)
	}
	j.drive.job = j
	j.holdMemory()
	j.rules = j.liveRules()
	j.pass.Wake = j.drive.news
	return j
}

// at returns the log for a path: a handler's, or the pipeline if it is empty. All log records of a
// run have the keys path, run and key.
func (j *job) at(path string) *slog.Logger {
	if path == "" {
		path = j.claimed.Pipeline // only the run's own goroutine may read it, because a commit may change it
	}
	return j.log.With("path", path)
}

// ofCall returns the log for a call.
func (j *job) ofCall(t *core.Attempt) *slog.Logger {
	return lazyLog(j.log, func() []slog.Attr {
		attrs := []slog.Attr{slog.String("path", t.Step.Path)}
		if t.Item > 0 {
			attrs = append(attrs, slog.Int("item", t.Item-1))
		}
		return append(attrs, slog.Int("attempt", t.Attempt))
	})
}

// cancel asks the run to end. It may be called several times.
func (j *job) cancel() {
	j.cancelled.Store(true)
	j.drive.news()
}

// goOn saves what the core has decided, and starts calls. It returns false if this node is done
// with the run. Calls beside the run start even then.
func (j *job) goOn(tasks []core.Attempt) bool {
	saved := j.save()
	if !saved || j.cancelling {
		tasks = slices.DeleteFunc(tasks, func(t core.Attempt) bool { return !t.Beside })
	}
	return j.start(tasks) && saved
}

// save saves what the core has decided. It returns false if this node is done with the run: it has
// ended, is parked, or is lost.
func (j *job) save() bool {
	status, next := j.run.Status(), j.run.Next()
	if status == model.Parked && !next.IsZero() && next.Sub(j.now()) <= guard.ShortHold {
		status = model.Running // too short a wait to release the run
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

// rooms has memory for the records of checkpoints.
var rooms = sync.Pool{New: func() any { return new([]checkpoint.Record) }}

// change returns the change of the run since the last save, with its checkpoint.
func (j *job) change() model.Change {
	room, _ := rooms.Get().(*[]checkpoint.Record)
	j.run.Room = *room
	c := j.run.Change()
	clear(j.run.Room)
	*room, j.run.Room = j.run.Room, nil
	rooms.Put(room)
	return c
}

// mustSave reports whether to save now. A change that a crash may forget needs no commit of its
// own, unless people would miss it: they must see calls that take long.
func (j *job) mustSave() bool {
	if j.run.MustSave() || !j.run.Dirty() {
		return j.run.MustSave()
	}
	now := j.n.d.Clock.Now()
	if j.unsaved.IsZero() {
		j.unsaved = now
	}
	return now.Sub(j.unsaved) >= j.patience()
}

// patience returns how long a change may wait to be saved that is not needed before the next calls start.
func (j *job) patience() time.Duration {
	size := len(j.claimed.Checkpoint)
	switch {
	case !j.run.Costs():
		return saveAfter
	case size <= lightCheckpoint || j.n.isDraining():
		return 0
	}
	return time.Duration(size) * time.Second / checkpointVolume
}

// commit writes one step of the run. If the store refuses this step, the run fails.
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
			if t := j.n.d.Library.Shadow(); j.run != nil && t.Shadows(c.Run) {
				j.n.d.Shadow(t, c.Pipeline, c.Run)
			}
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

// fail fails the run with the checkpoint that was saved last.
func (j *job) fail(path string, err error) { j.failAs(path, err, model.ClassOf(err)) }

// failAs is fail with a class of the error.
func (j *job) failAs(path string, err error, class string) {
	_ = j.commit(model.Change{ // commit has logged what went wrong
		Run: j.claimed.ID, Version: j.version, Status: model.Failed, Bundle: j.claimed.Bundle, Undoing: true,
		Pipeline: j.claimed.Pipeline, Checkpoint: j.claimed.Checkpoint,
		FailedPath: path, Error: model.CleanText(err.Error()), ErrorClass: class,
	})
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
	// Saving may have taken a while, so newer controls and passed deadlines count.
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

// delay returns the time until there is something to do even if no call ends. ok is false if there
// is nothing.
func (j *job) delay(next time.Time) (delay time.Duration, ok bool) {
	if !next.IsZero() {
		delay, ok = next.Sub(j.n.d.Clock.Now()), true
	}
	if ok && delay > guard.ShortHold && j.underway > 0 && strings.Contains(j.run.Cause(), guard.Mark) {
		delay = guard.ShortHold // nothing wakes a run that does not wait in the store
	}
	if _, listens := j.run.Awaits(); listens && (!ok || delay > listenEvery) {
		delay, ok = listenEvery, true
	}
	if !j.unsaved.IsZero() {
		if save := j.patience() - j.n.d.Clock.Now().Sub(j.unsaved); !ok || save < delay {
			delay, ok = save, true
		}
	}
	return delay, ok
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
			e.mem.Close()
			continue
		}
		e.outcome.Ended = j.n.d.Clock.Now()
		e.outcome.Probe = j.pass.End(e.ref, e.end, e.outcome.Ended)
		if e.outcome.Err == nil || j.calls.Err() == nil {
			j.run.Finish(e.ref, e.outcome, j.liveAt(j.n.d.Clock.Latest())) // if it waits, from this time on
		}
		e.mem.Close() // what the run keeps of it counts for the run from now on
		j.weigh()
	}
}

// stop ends the run because an operator has cancelled it. The next event of the key may start then,
// so it interrupts the calls in flight, and the run ends with the last of them. It returns false if
// the run is over.
func (j *job) stop() (more bool) {
	j.cancelling = true
	j.stopCalls()
	if j.underway > 0 {
		return true
	}
	j.run.Cancel(model.CancelReason, j.n.d.Clock.Now())
	change := j.change()
	change.Version, change.Status, change.Reason = j.version, model.Cancelled, model.CancelReason
	j.count()
	_ = j.commit(change) // commit has logged what went wrong
	return false
}

// count counts handlers that were left out and those that only compute. Calls count themselves. A
// handler that was left out while it waited returns its places in the guard.
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

// gaveUp counts a handler that has failed for good. A critical one fails the run, which is reported
// then. For others, it logs at most as often as people can read.
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

// intakes routes events that handlers emitted. They were routed once when they were emitted. If a
// new definition has dropped their type since, the run's own definition still knows it.
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
