package core

import (
	"errors"
	"fmt"
	"time"

	"procaas/dsl/datum"
	"procaas/engine/checkpoint"
	"procaas/engine/model"
	"procaas/engine/planner"
)

// ErrUnreadable reports that a checkpoint is damaged. One that does not fit the plan can be read.
var ErrUnreadable = errors.New("the checkpoint cannot be read")

// Resume continues a run from its checkpoint, or begins it if there is none. Ready returns handlers
// that were in flight again, with the same key and the next attempt's number, unless their
// on-unknown says otherwise.
//
// If s.Generation is higher than the checkpoint's, an operator has retried the run. Then the
// critical handlers that failed start afresh, and handlers that wait for a decision about a call
// repeat it. All other outcomes stay. Names of the flow that the run has not written are read from
// s.Shared.
//
// The error is [ErrUnreadable], or says why the checkpoint does not fit the plan. A plan may differ from the run's first
// one in stages that the run has not reached.
func Resume(p *planner.Plan, s Start, data []byte) (*Run, error) {
	if len(data) == 0 {
		return Begin(p, s), nil
	}
	c, err := checkpoint.Read(data)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	r := newRun(p, s, nil)
	if r.status.Ended() {
		return nil, fmt.Errorf("resume run %s: %s", s.ID, r.failure)
	}
	if err := r.restore(c); err != nil {
		return nil, fmt.Errorf("resume run %s: %w", s.ID, err)
	}
	if s.Generation > c.Generation {
		r.redrive()
	}
	r.whole.extent.weighed = r.whole.extent.event + r.weight()
	return r, nil
}

// restore takes over a checkpoint.
func (r *Run) restore(c checkpoint.Run) error {
	if c.Pipeline != r.plan.Pipeline.ID {
		return fmt.Errorf("its checkpoint is of pipeline %s, not of %s", c.Pipeline, r.plan.Pipeline.ID)
	}
	if c.Stage < 0 || c.Stage > r.plan.Regular() {
		return fmt.Errorf("it is in stage %d, but pipeline %s has only %d: the definition has changed", c.Stage+1, c.Pipeline,
			r.plan.Regular())
	}
	if c.Closing != "" && (!c.Closing.Ended() || r.plan.Final == nil) {
		return fmt.Errorf("it is in finally, which pipeline %s does not have: the definition has changed", c.Pipeline)
	}
	r.begins(c.Began)
	// The clocks of deadlines go on from where they were: a crash gives no more time, and takes none.
	r.stage, r.clock, r.stageClock = c.Stage, c.Clock, c.StageClock
	r.failedPath = c.FailedPath
	r.failure = c.Failure
	r.class = c.Class
	r.reason = c.Reason
	r.stopping = c.Stopping
	r.makesUp = c.MakesUp
	r.undoing = c.Undoing
	r.closing = c.Closing
	r.outputs = c.Outputs
	if r.within == "" {
		r.whole.extent.parts, r.whole.extent.looped = c.Parts, c.Looped
		r.whole.stood, r.whole.paused, r.whole.recording.RunRecording = c.Stood, c.Paused, c.Recording
	}
	for _, ref := range c.Redone {
		r.whole.redone.add(ref)
	}
	if c.Ended != "" {
		if !c.Ended.Ended() {
			return fmt.Errorf("its checkpoint has no such end as %q", c.Ended)
		}
		r.status = c.Ended
	}
	if err := r.scope.restore(c, r.start.Generation > c.Generation); err != nil {
		return err
	}
	for _, saved := range c.Handlers {
		if err := r.restoreRecord(saved); err != nil {
			return err
		}
	}
	r.scope.closes(r)
	return r.checkPassed()
}

func (r *Run) restoreRecord(saved checkpoint.Record) error {
	s := r.plan.ByPath[saved.Path]
	if s == nil {
		return fmt.Errorf("its checkpoint names the handler %s, which the pipeline does not have: the definition has changed", saved.Path)
	}
	if s.Stage > r.stage && r.makesUp == "" && (r.closing == "" || !s.Final) {
		return fmt.Errorf("its checkpoint has the handler %s of a stage that it has not reached: the definition has changed", saved.Path)
	}
	rec := &r.records[s.Position]
	if rec.reached() {
		return fmt.Errorf("its checkpoint names the handler %s twice", saved.Path)
	}
	if err := rec.restore(saved); err != nil {
		return fmt.Errorf("its checkpoint of the handler %s: %w", saved.Path, err)
	}
	r.undoable = max(r.undoable, rec.done)
	if saved.Undo != nil {
		if s.Undo == nil {
			return fmt.Errorf("its checkpoint has a compensation of the handler %s, which has none: the definition has changed", saved.Path)
		}
		rec.undo = &record{}
		if err := rec.undo.restore(*saved.Undo); err != nil {
			return fmt.Errorf("its checkpoint of the compensation of %s: %w", saved.Path, err)
		}
	}
	if err := r.revive(s, saved); err != nil {
		return fmt.Errorf("its checkpoint of the handler %s: %w", saved.Path, err)
	}
	if rec.each != nil && s.Handler.ForEach == nil && !rec.decided() {
		return fmt.Errorf("its checkpoint has items of the handler %s, which has no for-each: the definition has changed", saved.Path)
	}
	if rec.decided() {
		r.scope.publish(s.Handler.ID, rec)
		return nil
	}
	// Its call was in flight when the node died: the checkpoint has the attempt, and no outcome.
	r.visit(s, func(u unit) {
		if u.rec.inFlight() {
			r.lose(u)
		}
	})
	return nil
}

// revive restores the runs inside the calls of a handler or of its items.
func (r *Run) revive(s *planner.Step, saved checkpoint.Record) error {
	if err := r.reviveUnit(r.unit(s), saved.Call); err != nil || saved.Each == nil {
		return err
	}
	for _, item := range saved.Each.Of {
		if err := r.reviveUnit(r.itemOf(s, item.Item-1), item.Call); err != nil {
			return fmt.Errorf("item %d: %w", item.Item-1, err)
		}
	}
	return nil
}

func (r *Run) reviveUnit(u unit, saved *checkpoint.Run) error {
	if saved == nil {
		return nil
	}
	if u.Loops && u.item == 0 {
		return errors.New("it is a stage that is repeated, and has an element that is not of its list")
	}
	if u.Callee == nil {
		return fmt.Errorf("it is inside of a call of pipeline %s, which the handler does not make: the definition has changed", saved.Pipeline)
	}
	u.rec.sub = r.inside(u)
	if u.Loops {
		if err := u.rec.sub.restore(*saved); err != nil {
			return fmt.Errorf("element %d: %w", u.item-1, err)
		}
		return nil
	}
	data, err := datum.ParseJSON(saved.Inputs)
	if err != nil {
		return fmt.Errorf("inputs: %w", err)
	}
	inputs, ok := data.(map[string]any)
	if !ok {
		return fmt.Errorf("inputs: want a mapping, have %s", model.KindOf(data))
	}
	u.rec.sub.scope.origin, u.rec.sub.rawInputs = inputs, saved.Inputs
	if err := u.rec.sub.restore(*saved); err != nil {
		return fmt.Errorf("call of %s: %w", saved.Pipeline, err)
	}
	return nil
}

// lose handles an attempt whose outcome is unknown. Without an on-unknown, the call is repeated with
// the same key, and the service must recognize it.
func (r *Run) lose(u unit) {
	rec := u.rec
	rec.unknown = u.Handler.Verification() != nil
	if u.Handler.Parks() {
		rec.outcome, rec.reason = model.OutcomeUnknown, fmt.Sprintf(unknownReason, rec.attempts)
		rec.due = time.Time{}
		r.touch()
	}
}

// checkPassed checks that all handlers of earlier stages are decided or detached, so the run never
// goes back.
func (r *Run) checkPassed() error {
	for _, s := range r.plan.Steps {
		if s.Stage < r.stage && !s.Handler.Detached && !r.records[s.Position].decided() {
			return fmt.Errorf("it has left the stage of the handler %s, which its checkpoint does not know: the definition has changed", s.Path)
		}
	}
	return nil
}

// redrive restarts a run that has failed or waits for an operator. It restarts only critical
// handlers, because only these fail a run. Other handlers stay decided, because later ones depend
// on them. If the last attempt of a handler has an unknown outcome, the handler verifies it before
// another attempt.
func (r *Run) redrive() {
	if r.status.Ended() && r.status != model.Failed {
		return
	}
	if r.redriveFinally() {
		return
	}
	if r.undoing {
		r.redriveUndo()
		return
	}
	r.status = model.Running
	r.failedPath = ""
	r.failure = ""
	r.class = ""
	r.clock, r.stageClock = time.Time{}, time.Time{} // an operator's retry gets the full time again
	r.whole.extent.parts = 0                         // the remaining parts get the full bound again
	r.touch()
	r.redriveSteps(r.plan.Steps)
	r.republish(r.plan.Steps)
}

// republish lets expressions read the handlers that are decided, and none that starts afresh.
func (r *Run) republish(steps []*planner.Step) {
	for _, s := range steps {
		delete(r.scope.sources, s.Handler.ID)
	}
	for _, s := range steps {
		if rec := &r.records[s.Position]; rec.decided() {
			r.scope.publish(s.Handler.ID, rec)
		}
	}
}

// redriveSteps restarts the critical ones that failed.
func (r *Run) redriveSteps(steps []*planner.Step) {
	for _, s := range steps {
		rec := &r.records[s.Position]
		failed := rec.outcome == model.OutcomeFailed && s.Handler.IsCritical()
		if rec.each != nil && (failed || !rec.decided()) {
			rec.redriveItems()
			continue
		}
		rec.redrive(failed)
	}
}

// redrive restarts a failed handler or item, and lets it decide about a call again.
func (r *record) redrive(failed bool) {
	r.clock = time.Time{}
	switch {
	case r.outcome == model.OutcomeUnknown, failed && r.unknown:
		*r = record{attempts: r.attempts, started: r.started, unknown: r.unknown}
	case failed:
		if r.sub != nil && r.sub.status == model.Cancelled {
			r.sub.forgetUndone() // the call starts again
			r.sub = nil
		}
		*r = record{sub: r.sub}
		if r.sub != nil {
			r.attempts, r.started = 1, r.sub.began
			r.sub.redrive()
		}
	case r.sub != nil:
		r.sub.redrive()
	}
}

// redriveItems restarts the failed items. Succeeded ones stay, and so do those that a rule of on-error has left out.
func (r *record) redriveItems() {
	each := r.each
	*r = record{each: each, started: r.started, trail: r.trail}
	each.succeeded, each.failed = 0, 0
	for i := range each.of {
		each.of[i].redrive(each.of[i].fails())
	}
}
