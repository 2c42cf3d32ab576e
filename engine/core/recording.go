package core

import (
	"errors"
	"time"

	"procaas/engine/checkpoint"
	"procaas/engine/model"
)

// This file records how calls end, so that the run can be replayed by another definition.

// recordStart notes when a call begins.
func (r *progress) recordStart(u unit, live Live) {
	if r.recording == nil {
		return
	}
	if r.launched == nil {
		r.launched = map[string]time.Time{}
	}
	r.launched[r.within+u.ref()] = live.Now
}

// record saves the outcome of a call.
func (r *progress) record(u unit, o Outcome, live Live) {
	if r.recording == nil {
		return
	}
	ref, end := r.within+u.ref(), live.Now
	if !o.Ended.IsZero() {
		end = o.Ended
	}
	c := checkpoint.RecordedCall{
		Ref: ref, Attempt: u.rec.attempts, Verify: u.rec.asking, Took: max(0, end.Sub(r.launched[ref])),
		Status: o.Result.Status, Probe: o.Probe,
	}
	delete(r.launched, ref)
	if o.Err != nil {
		c.Error, c.Class, c.Permanent = model.CleanText(o.Err.Error()), model.ClassOf(o.Err), model.IsPermanent(o.Err)
		c.After, _ = model.RetryDelay(o.Err)
		c.Response = errorBody(o.Err)
	} else if raw, err := model.EncodeData(o.Result.Response); err == nil { // otherwise the run fails because of it
		c.Response = raw
	}
	r.recording.Call(c)
}

// errorBody encodes the body of an unexpected reply, or returns nil if it has none.
func errorBody(err error) []byte {
	var status *model.StatusError
	if !errors.As(err, &status) || status.Body == nil {
		return nil
	}
	raw, err := model.EncodeData(status.Body)
	if err != nil {
		return nil
	}
	return raw
}
