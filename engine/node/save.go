package node

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"procaas/engine/core"
	"procaas/engine/guard"
	"procaas/engine/intake"
	"procaas/engine/model"
	"procaas/engine/stats"
	"procaas/engine/store"
)

const (
	// saveAfter is the longest time an in-flight call stays invisible to people after a crash.
	saveAfter = 100 * time.Millisecond

	// A checkpoint has the outcomes of all elements. So while they end, a run whose checkpoint is larger than
	// lightCheckpoint writes at most so many bytes a second.
	lightCheckpoint  = 16 << 10
	checkpointVolume = 4 << 20
)

// This file writes the steps of a run. The order is always the same: the core decides, the store has
// the change, and only then do calls start. A node that dies in between has started nothing that the
// store does not know, so the next one repeats calls with the same keys, and skips none.

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
	change := j.run.Change()
	change.Version, change.Status, change.Due = j.version, status, time.Time{}
	if status == model.Parked {
		change.Due = next
	}
	change.Undoing = j.run.IsStopping()
	change.Emit = j.intakes(j.run.TakeEmits()) // in the same transaction, so that no crash parts them
	j.count()
	j.unsaved = time.Time{}
	if status.Ended() {
		j.n.ends(j) // before the commit: who hears of this end may send the next event at once
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
	c.Flow, c.Key, c.Alone = j.claimed.Flow, j.claimed.Key, !j.claimed.Ordered
	c.Emit = append(c.Emit, j.notifications(c)...)
	err := j.n.steps.commit(c)
	switch {
	case err == nil:
		j.saved(c)
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

// saved notes what the store has of the run now, and tells those who want to know.
func (j *job) saved(c model.Change) {
	j.version++
	j.claimed.Checkpoint, j.claimed.Bundle, j.claimed.Pipeline = c.Checkpoint, c.Bundle, c.Pipeline
	if c.Progress && j.claimed.Losses > 0 {
		j.claimed.Losses = 0
		j.n.suspects.clear(j.claimed.ID)
	}
	if len(c.Emit) > 0 {
		j.n.nudge()
	}
	j.took(c)
	j.n.d.Watch.Saved(j.claimed.ID)
	if c.Status.Ended() {
		j.n.d.Watch.Ended(store.RunRecord{
			ID: c.Run, Status: c.Status, Pipeline: c.Pipeline, Bundle: c.Bundle, Outputs: j.run.Outputs(), Version: j.version,
			FailedPath: c.FailedPath, Error: c.Error, ErrorClass: c.ErrorClass, Reason: c.Reason,
		})
		failed := c.Status == model.Failed || c.Status == model.Cancelled && c.FailedPath != "" // undone after an error
		j.n.d.Stats.Left(c.Pipeline, len(c.Checkpoint), j.n.d.Clock.Now())
		j.n.d.Stats.RunEnded(c.Pipeline, c.Status, failed, j.n.d.Clock.Now().Sub(j.claimed.Accepted), time.Now())
		if t := j.n.d.Library.Shadow(); j.run != nil && t.Shadows(c.Run) {
			j.n.d.Shadow(t, c.Pipeline, c.Run)
		}
	}
	if c.Status == model.Failed && model.IsUndo(c.FailedPath) {
		j.n.d.Metrics.NotUndone.Inc()
	}
	if c.Status == model.Failed {
		j.at(c.FailedPath).Warn("run failed", "error", c.Error)
	}
	j.notice(c)
	j.trace.Saved(j.run, c, j.n.d.Clock.Now())
}

// took counts how long the stages took that the run has completed since its last commit, and the run itself. A stage counts
// with the commit that leaves it, so a crash repeats no count. Of a run that gave up, complete stages count, and finally.
func (j *job) took(c model.Change) {
	if j.run == nil || j.run.MakesUp() {
		return
	}
	now := j.n.d.Clock.Now()
	plan := j.run.Plan()
	for ; j.complete < j.run.Stage(); j.complete++ {
		j.tookStage(j.complete, now)
	}
	if c.Status.Ended() && c.Status != model.Succeeded && plan.Final != nil {
		j.tookStage(len(plan.Stages)-1, now) // a run that gave up has not completed the stages before it
	}
	if c.Status == model.Succeeded && j.claimed.Event.Rerun == nil { // a rerun may have begun at a later stage
		whole := now.Sub(j.pass.Age)
		j.n.d.Stats.Took(stats.Took{
			Pipeline: plan.Pipeline.ID, Accepted: whole, Begun: now.Sub(j.run.Began()), Target: plan.Pipeline.Target, Trace: j.trace.Exported(),
		}, now)
		slow := stats.SlowRun{
			Run: j.claimed.ID, Pipeline: plan.Pipeline.ID, Key: j.claimed.Key, Ended: now.UTC().Truncate(time.Millisecond),
			TargetMS: plan.Pipeline.Target.Milliseconds(), TookMS: whole.Milliseconds(), TurnMS: max(0, j.run.Began().Sub(j.pass.Age).Milliseconds()),
		}
		var most time.Duration
		slow.Handler, most, slow.Attempts = j.run.Costliest()
		slow.HandlerMS = most.Milliseconds()
		j.n.d.Stats.Slow(slow, now)
	}
}

// tookStage counts how long a stage took, if it did anything.
func (j *job) tookStage(n int, now time.Time) {
	from, to, ok := j.run.StageTook(n)
	if !ok {
		return
	}
	plan := j.run.Plan()
	stage := plan.Stages[n]
	j.n.d.Stats.Took(stats.Took{
		Pipeline: plan.Pipeline.ID, Stage: stage.ID, Accepted: to.Sub(j.pass.Age), Begun: to.Sub(from), Target: stage.Declared.Target,
		Trace: j.trace.Exported(),
	}, now)
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
		in.Dedup, in.From, in.Keep = true, nil, false
		out = append(out, in)
	}
	j.queue(out)
	return out
}

// queue assigns turns to the runs of emitted events, if runs wait.
func (j *job) queue(runs []model.Intake) {
	if len(runs) > 0 && j.n.backlog.Load() {
		j.n.d.Turns.Queue(j.n.d.Library.Present().Bundle, runs, j.n.d.Clock.Now())
	}
}
