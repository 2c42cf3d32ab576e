package node

import (
	"errors"
	"strings"
	"time"

	"procaas/engine/checkpoint"
	"procaas/engine/core"
	"procaas/engine/model"
	"procaas/engine/planner"
	"procaas/engine/stats"
)

// notify sends a notice about a run, if there is a receiver.
func (j *job) notify(kind model.NoticeKind, path, text string) {
	tell := j.n.d.Notify
	if tell == nil {
		return
	}
	n := model.Notice{
		Kind: kind, Path: path, Error: text, Time: j.n.d.Clock.Now(),
		Run: j.claimed.ID, Flow: j.claimed.Flow, Key: j.claimed.Key,
	}
	def := j.def
	if def == nil { // it has not begun
		def = j.n.d.Library.Present()
	}
	if n.Path == "" {
		n.Path = j.claimed.Pipeline
	}
	if plan := def.ByID[model.PipelineOf(n.Path)]; plan != nil {
		n.Owner = plan.Pipeline.Owner
		// The path of a failed run may be that of its pipeline.
		s := plan.Step(n.Path)
		if model.IsUndo(n.Path) {
			s = plan.Step(strings.TrimSuffix(n.Path, model.UndoPath))
		}
		if s != nil {
			n.Owner, n.Critical = s.Owner, s.Handler.IsCritical()
		}
	} else if flow := def.Bundle.Flow(n.Path); flow != nil {
		n.Owner = flow.Owner
	}
	tell(n)
}

// leftOut counts a handler that the run continues without. It also sends a notice about a handler
// that had to wait too long, as for a failed one, because nothing else would report it.
func (j *job) leftOut(h checkpoint.HandlerView, step *planner.Step, by string) {
	j.n.d.Stats.LeftOut(h.Path, by)
	if by == model.LeftByWait && step != nil {
		j.n.d.Stats.Path(h.Path).Waited(time.Now())
		j.notify(model.NoticeGivenUp, h.Path, h.Reason)
	}
}

// notice sends the notices that follow from a saved step.
func (j *job) notice(c model.Change) {
	// A run that is parked until a time continues without an operator.
	waits := c.Status == model.Parked && c.Due.IsZero()
	if ok := c.Status == model.Succeeded; ok || waits && c.Error != "" || c.Status == model.Failed {
		j.n.d.Degrader.Tally(j.watch.Over(c.Pipeline, ok, j.n.d.Clock.Now())...)
	}
	switch {
	case c.Status == model.Failed:
		j.notify(model.NoticeRunFailed, c.FailedPath, c.Error)
		if j.claimed.Ordered && j.claimed.Block {
			j.notify(model.NoticeKeyBlocked, c.FailedPath, c.Error)
		}
	case waits:
		path, why := "", c.Error
		if j.run != nil {
			path, why = j.run.Stuck()
		}
		j.notify(model.NoticeRunParked, path, why)
		if j.claimed.Ordered {
			j.notify(model.NoticeKeyBlocked, path, why)
		}
	}
}

// count counts handlers that were left out, those that only compute or call a pipeline, and those that failed although
// none of their attempts did. Other attempts are counted when they end. A handler that was left out while it waited
// returns its places in the guard.
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
		took, whole := wholeTime(h, step)
		switch {
		case h.Outcome == model.OutcomeSkipped:
			seen.Skipped.Inc()
		case h.Outcome == model.OutcomeSucceeded && whole:
			seen.Ended(nil, took, time.Now(), j.trace.Exported())
		case h.Outcome == model.OutcomeFailed:
			if whole || h.Attempts == 0 || h.Items != nil && h.Items.Failed == 0 {
				seen.Ended(errors.New(h.Error), took, time.Now(), j.trace.Exported())
			}
			j.gaveUp(h, step)
		}
	}
}

// wholeTime reports whether a handler makes no attempts of its own, so that all of it counts as one, and its duration.
func wholeTime(h checkpoint.HandlerView, step *planner.Step) (took time.Duration, whole bool) {
	switch {
	case step == nil:
		return stats.Unmeasured, false
	case step.Callee != nil && h.Started != nil && h.Finished != nil:
		return h.Finished.Sub(*h.Started), true
	case step.Computes():
		return 0, true
	}
	return stats.Unmeasured, step.Callee != nil
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
