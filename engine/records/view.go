package records

import (
	"cmp"
	"encoding/json"

	"procaas/engine/checkpoint"
	"procaas/engine/model"
	"procaas/engine/store"
)

// View makes a record readable. A checkpoint that cannot be read is told in the
// view's Error, never lost.
func View(r store.RunRecord) checkpoint.RunView { return view(r, true) }

// Brief makes a record readable for a list.
func Brief(r store.RunRecord) checkpoint.RunView { return view(r, false) }

// view makes a record readable; not the whole of it for a list, which has neither the payloads
// of events nor shared states: they can be large.
func view(r store.RunRecord, whole bool) checkpoint.RunView {
	v := checkpoint.RunView{
		ID: r.ID, Pipeline: r.Pipeline, Flow: r.Flow, Key: r.Key, Status: r.Status,
		Event: checkpoint.EventView{
			ID: r.Event.ID, Source: r.Event.Source, Type: r.Event.Type, Time: r.Event.Time, Key: r.Event.Key,
			Trace: [2]string{r.Event.TraceParent, r.Event.TraceState},
		},
		Bundle: r.Bundle, Generation: r.Generation, Blocked: r.Blocked, Accepted: r.Accepted,
		Started: model.TimeOrNil(r.Started), Finished: model.TimeOrNil(r.Ended), Due: model.TimeOrNil(r.Due),
		FailedPath: r.FailedPath, Error: r.Error, ErrorClass: r.ErrorClass, Reason: r.Reason,
		Handlers: []checkpoint.HandlerView{},
	}
	if whole {
		v.SharedState, v.Event.Payload = map[string]any{}, r.Event.Payload
	}
	if whole && r.Event.Payload == nil {
		v.Event.Payload = json.RawMessage(nil)
	}
	if r.Status == model.Parked {
		v.Reason, v.Error = r.Error, "" // it has not failed, and waits for this
	} else if !r.Status.Ended() {
		v.Error, v.ErrorClass = "", "" // it goes on
	}
	if reason, ok := model.UndoReason(r.Move); !ok {
		v.Move = r.Move
	} else if !v.Status.Ended() {
		v.Cancelling = cmp.Or(reason, model.CancelReason)
	}
	read, data := v.ReadCheckpoint, r.Checkpoint
	if data == nil {
		read, data = v.ReadOutputs, r.Outputs
	}
	if len(data) == 0 {
		return v
	}
	if err := read(data); err != nil {
		if v.Error != "" {
			v.Error += "; "
		}
		v.Error += err.Error()
	}
	return v
}
