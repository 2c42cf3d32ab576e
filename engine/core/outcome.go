package core

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"procaas/engine/model"
)

// This file takes the outcomes of attempts: it checks the result, and decides whether to retry.
//
// Nothing of an outcome counts before all of it is checked. Otherwise a handler could fail although
// its events are already on their way.

// take takes the outcome of a call: the response, the time when the handler counts as done, and the
// completed events. After an error the record is as it was.
func (r *Run) take(u unit, o Outcome, live Live) ([]model.Event, error) {
	if o.Err != nil {
		return nil, o.Err
	}
	until := o.Result.Until
	if o.Result.Again != "" {
		u.rec.outcome, u.rec.err = model.OutcomeWaiting, ""
		u.rec.lookup, u.rec.due = o.Result.Again, after(until, 0)
		return nil, nil
	}
	raw, err := r.encode(u, o.Result.Response, until.After(live.Now))
	if err != nil {
		return nil, err
	}
	if until.Year() > 9999 {
		return nil, model.Permanent(errors.New("wait: want a time before the year 10000, have a later one"))
	}
	if l := r.limitOf(u); l.cuts(until) && until.After(live.Now) {
		return nil, l.error(u, "leaves no time to wait until "+until.UTC().Format(time.RFC3339), nil)
	}
	events, err := r.completeAll(u, o.Result.Emit, live)
	if err != nil {
		return nil, err
	}
	if err := r.whole.extent.grow(weightOf(o.Result.Response, raw)); err != nil {
		return nil, model.Permanent(err)
	}
	rec := u.rec
	rec.lookup = ""
	rec.response, rec.raw, rec.status = o.Result.Response, raw, o.Result.Status
	if until.After(live.Now) {
		rec.outcome, rec.err = model.OutcomeWaiting, ""
		rec.due = after(until, 0)
	}
	return events, nil
}

// encode encodes a response as JSON if the run keeps it, and returns nil for any other. Checkpoints
// keep it if others read it, or while a wait lasts. Then it has the size bound of the shared state.
func (r *Run) encode(u unit, response any, waits bool) (json.RawMessage, error) {
	saved, gathered := u.Keeps || waits, u.item > 0 && u.Gathers
	if !saved && !gathered {
		if err := model.CheckData(response); err != nil {
			return nil, model.Permanent(fmt.Errorf("response: %w", err))
		}
		return nil, nil
	}
	raw, err := model.EncodeData(response)
	if err != nil {
		return nil, model.Permanent(fmt.Errorf("response: %w", err))
	}
	if limit := int(r.plan.Pipeline.MaxState); saved && len(raw) > limit {
		return nil, model.Permanent(fmt.Errorf("response of %d bytes has to be kept, and max-state is %d", len(raw), limit))
	}
	return raw, nil
}

// An Outcome is how a task ended.
type Outcome struct {
	Result model.Result // when Err is nil
	Err    error        // without the handler's path, which the run adds

	// Probe says that the call tested whether its service is back. Its failure does not count
	// against the attempts of a critical handler.
	Probe bool

	// Ended is when the task ended, by the clock of Ready. Zero means [Live].Now, which may be
	// later.
	Ended time.Time
}

// attempted handles the end of an attempt.
func (r *Run) attempted(u unit, o Outcome, live Live) {
	if u.rec.looks() {
		u.rec.outcome = ""
	}
	events, err := r.take(u, o, live)
	switch {
	case err != nil:
		r.failed(u, err, o.Probe, live)
	case u.rec.outcome != model.OutcomeWaiting:
		r.succeeded(u, live)
	}
	if o.Err == nil && (err != nil || u.rec.outcome == model.OutcomeFailed) {
		r.whole.refused = u.rec.err
	}
	if u.rec.outcome != model.OutcomeFailed { // its result may have failed to compute: then nothing of it counts
		r.emit(u.rec, events)
	}
}

// failed handles the end of an attempt without success. A retry that its deadline leaves no time
// for is none.
func (r *Run) failed(u unit, err error, probe bool, live Live) {
	again := r.repeats(u, err, probe, live)
	if late := r.late(u, err, again, live); late != nil {
		u.rec.err = model.CleanText(late.Error())
		again, err = false, late
	}
	switch {
	case again:
	case u.item > 0:
		r.settleItem(u, err, live)
	default:
		r.settle(u.Step, err, live)
	}
}

// repeats counts a failed attempt and reports whether to retry. If so, it sets the time of the
// retry. A probe of a service that is down does not count against a critical handler, whose
// attempts are for its own failures.
func (r *Run) repeats(u unit, err error, probe bool, live Live) bool {
	rec := u.rec
	rec.err = model.CleanText(err.Error())
	if probe && u.Handler.IsCritical() {
		if delay, ok := rec.again(u, r.start.ID+r.within, err); ok {
			rec.due = after(live.Now, delay)
			return true
		}
	}
	rec.failures++
	if u.item == 0 && !u.Undoes {
		rec.tryFails(model.Stamp(live.Now))
	}
	delay, ok := rec.repeat(u, r.start.ID+r.within, rec.failures, err)
	if ok {
		rec.due = after(live.Now, delay)
	}
	return ok
}

// succeeded handles the successful end of an attempt or of a wait.
func (r *Run) succeeded(u unit, live Live) {
	if u.item > 0 {
		r.itemSucceeded(u)
		return
	}
	r.succeed(u.Step, live)
}
