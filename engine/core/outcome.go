package core

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"procaas/engine/model"
	"procaas/engine/planner"
)

// This file decides handlers: it takes their results, sets the shared state and evaluates
// expressions.

// take takes the outcome of a call: the response, the time when the handler counts as done, and the
// completed events.
func (r *decisions) take(u unit, o Outcome, live Live) ([]model.Event, error) {
	if o.Err != nil {
		return nil, o.Err
	}
	until := o.Result.Until
	raw, err := r.encode(u.Step, o.Result.Response, until.After(live.Now))
	if err != nil {
		return nil, err
	}
	if until.Year() > 9999 {
		return nil, model.Permanent(errors.New("wait: want a time before the year 10000, have a later one"))
	}
	if l := limitOf(&r.progress, u); l.cuts(until) && until.After(live.Now) {
		return nil, l.error(u, "leaves no time to wait until "+until.UTC().Format(time.RFC3339), nil)
	}
	events, err := r.completeAll(u, o.Result.Emit, live)
	if err != nil {
		return nil, err
	}
	if err := r.extent.grow(dataWeight(raw)); err != nil {
		return nil, model.Permanent(err)
	}
	rec := u.rec
	rec.response, rec.raw, rec.status = o.Result.Response, raw, o.Result.Status
	if until.After(live.Now) {
		rec.outcome, rec.err = model.OutcomeWaiting, ""
		rec.due = after(until, 0)
	}
	return events, nil
}

// encode encodes a response as JSON. A response that checkpoints keep has the size bound of the
// shared state. Checkpoints keep it if others read it, or while a wait lasts.
func (r *decisions) encode(s *planner.Step, response any, waits bool) (json.RawMessage, error) {
	raw, err := model.EncodeData(response)
	if err != nil {
		return nil, model.Permanent(fmt.Errorf("response: %w", err))
	}
	if limit := int(r.plan.Pipeline.MaxState); (s.Keeps || waits) && len(raw) > limit {
		return nil, model.Permanent(fmt.Errorf("response of %d bytes has to be kept, and max-state is %d", len(raw), limit))
	}
	return raw, nil
}

// succeed applies the result of a successful call and decides the handler.
func (r *decisions) succeed(s *planner.Step, live Live) {
	rec := &r.records[s.Position]
	rec.outcome = model.OutcomeSucceeded
	r.scope.publish(s.Handler.ID, rec) // its own result reads it
	if _, err := r.scope.assign(rec, s.Handler.Result, live); err != nil {
		r.giveUp(s, err, live)
		return
	}
	rec.err, rec.reason = "", rec.each.without()
	r.decide(s, live)
}

// giveUp decides that a handler has failed for good. If it is critical, the run fails as soon as no
// call is in flight.
func (r *decisions) giveUp(s *planner.Step, err error, live Live) {
	rec := &r.records[s.Position]
	rec.outcome, rec.err, rec.reason = model.OutcomeFailed, model.CleanText(err.Error()), ""
	rec.response, rec.raw, rec.status = nil, nil, statusOf(err)
	r.decide(s, live)
	if !s.Handler.IsCritical() {
		r.standIn(s, live)
		return
	}
	if r.failedPath == "" {
		r.failedPath, r.class = s.Path, model.ClassOf(err)
		if s.Loops {
			r.failedPath = cmp.Or(rec.failedElement(), s.Path)
		}
		r.failure = s.Path + ": " + rec.err
		if rec.attempts > 0 && rec.each == nil && s.Callee == nil {
			r.failure = fmt.Sprintf("%s: attempt %d: %s", s.Path, rec.attempts, rec.err)
		}
	}
}

// skip decides that a handler is skipped.
func (r *decisions) skip(s *planner.Step, reason string, live Live) {
	rec := &r.records[s.Position]
	rec.outcome, rec.reason = model.OutcomeSkipped, reason
	r.decide(s, live)
}

// standIn sets the fallback result of a handler that is off or has failed. If the fallback result
// cannot be computed, the run continues as if there were none, and the error is kept for people.
func (r *decisions) standIn(s *planner.Step, live Live) {
	if !s.StandsIn() {
		return
	}
	if _, err := r.scope.assign(&r.records[s.Position], s.Handler.Fallback.Result, live); err != nil {
		rec := &r.records[s.Position]
		text := "fallback: " + err.Error()
		if rec.err != "" {
			text = rec.err + "; " + text
		}
		rec.err = model.CleanText(text)
		r.ended[len(r.ended)-1].Error = rec.err
	}
}

// decide completes the record of a handler.
func (r *decisions) decide(s *planner.Step, live Live) {
	r.further = true
	rec := &r.records[s.Position]
	rec.finished = model.Stamp(live.Now)
	rec.due = time.Time{}
	rec.body, rec.bodySize, rec.ready = nil, 0, false
	// A handler that failed the run continues when an operator retries it.
	goesOn := rec.outcome == model.OutcomeFailed && s.Handler.IsCritical()
	if r.within != "" && !goesOn {
		// Forgetting the calls in here also forgets what they have undone. It is done again when
		// the call around this run restarts.
		for sub := range rec.calls() {
			sub.forgetUndone()
		}
	}
	if rec.each != nil {
		rec.sum()
		rec.forgetItems(goesOn)
	}
	if !s.Keeps {
		rec.response, rec.raw = nil, nil
	}
	r.touch()
	r.scope.publish(s.Handler.ID, rec)
	if s.Undo != nil && rec.outcome == model.OutcomeSucceeded {
		r.undoable++
		rec.done = r.undoable
	}
	if !goesOn {
		rec.sub = nil
	}
	if s.Loops {
		return // its handlers are reported one by one
	}
	r.tell(unitOf(s, rec))
}

// tell adds a notice for people about a handler.
func (r *progress) tell(u unit) {
	ended := u.rec.save(u.Path).View()
	ended.Within = strings.TrimSuffix(r.within, model.IntoCall)
	r.ended = append(r.ended, ended)
}

// after returns the time a while from now, rounded up. Rounding down would make it too early.
func after(now time.Time, wait time.Duration) time.Time {
	return model.Stamp(now.Add(wait + time.Millisecond - 1))
}
