package core

import (
	"errors"
	"time"

	"procaas/engine/checkpoint"
	"procaas/engine/model"
)

// This file records how calls end, so that the run can be replayed by another definition.

// A recording collects the calls of a run. It ignores them if the run is not recorded.
type recording struct {
	*checkpoint.RunRecording                      // nil for a run that is not recorded
	launched                 map[string]time.Time // when the calls in flight began, by ref
}

// begins notes when a call begins.
func (r *recording) begins(ref string, live Live) {
	if r.RunRecording == nil {
		return
	}
	if r.launched == nil {
		r.launched = map[string]time.Time{}
	}
	r.launched[ref] = live.Now
}

// ends saves the outcome of a unit's call.
func (r *recording) ends(ref string, u unit, o Outcome, live Live) {
	if r.RunRecording == nil {
		return
	}
	end := live.Now
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
	r.Call(c)
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
