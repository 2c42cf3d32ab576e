package core

import (
	"errors"
	"fmt"
	"maps"
	"strconv"

	"procaas/engine/model"
	"procaas/engine/planner"
)

// This file verifies an attempt that was in flight when its node died.

// ask makes the task of a verification. Its key differs from that of the handler's call, because a
// service that remembers answers by key would return that call's answer.
func (r *Run) ask(u unit, live Live) (Attempt, bool) {
	rec := u.rec
	body, err := u.Handler.Verification().Body.Share(r.scope.envOf(u, live))
	if err != nil {
		r.giveUpUnit(u, fmt.Errorf("verify: %w", err), live)
		return Attempt{}, false
	}
	rec.asking = true // its end is an answer, and not the outcome of an attempt
	rec.reason = fmt.Sprintf("attempt %d was under way when its node died; asking how it ended", rec.attempts)
	key := model.Digest(r.start.identity(), r.within+u.ref(), "verify", strconv.Itoa(rec.attempts))
	return r.launch(u, Attempt{Type: u.Verify, Verify: true, Body: body, IdempotencyKey: key}, live), true
}

// answered takes the outcome of a verification. The handler succeeds with it, or repeats its call,
// or the verification itself has failed.
func (r *Run) answered(u unit, o Outcome, live Live) {
	rec := u.rec
	rec.asking = false
	done, err := r.done(u, o, live)
	switch {
	case err != nil:
		r.unanswered(u, fmt.Errorf("verify: %w", err), live)
	case done:
		rec.unknown = false
		r.succeeded(u, live)
	default:
		rec.unknown = false
		rec.asked = 0
		rec.delay = 0
		rec.err = ""
		rec.reason = ""
	}
}

// unanswered retries a failed verification, or gives the handler up. The outcome stays unknown, so
// that an operator's retry verifies first.
func (r *Run) unanswered(u unit, err error, live Live) {
	rec := u.rec
	rec.asked++
	rec.err = model.CleanText(err.Error())
	if delay, ok := rec.repeat(u, r.start.ID+r.within, rec.asked, err); ok {
		rec.due = after(live.Now, delay)
		return
	}
	r.giveUpUnit(u, err, live)
}

// done returns the result of a verification. If it is true, its answer becomes the handler's own.
func (r *Run) done(u unit, o Outcome, live Live) (bool, error) {
	if o.Err != nil {
		return false, o.Err
	}
	if len(o.Result.Emit) > 0 || !o.Result.Until.IsZero() || o.Result.Again != "" {
		return false, model.Permanent(errors.New("want an answer, have events or a wait"))
	}
	raw, err := r.encode(u, o.Result.Response, false)
	if err != nil {
		return false, err
	}
	answer := &source{response: o.Result.Response, status: o.Result.Status, outcome: model.OutcomeUnknown}
	env, sources := r.scope.envOf(u, live), maps.Clone(r.scope.sources)
	sources[u.Handler.ID] = answer
	env[planner.SourcesRoot] = sources
	v, err := u.Handler.Verification().Done.Share(env)
	if err != nil {
		return false, model.Permanent(err)
	}
	done, ok := v.(bool)
	if !ok {
		return false, model.Permanent(fmt.Errorf("done: want true or false, have %s", model.KindOf(v)))
	}
	if done {
		rec := u.rec
		rec.response, rec.raw, rec.status = o.Result.Response, raw, o.Result.Status
	}
	return done, nil
}
