package records

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"procaas/engine/checkpoint"
	"procaas/engine/core"
	"procaas/engine/model"
	"procaas/engine/planner"
	"procaas/engine/store"
)

// View returns the view of a record. If the checkpoint cannot be read, the view's Error says so.
func View(r store.RunRecord) checkpoint.RunView { return view(r, true) }

// Brief returns the view of a record for a list.
func Brief(r store.RunRecord) checkpoint.RunView { return view(r, false) }

// view returns the view of a record. For a list it omits payloads and shared states, because they
// can be large.
func view(r store.RunRecord, whole bool) checkpoint.RunView {
	v := checkpoint.RunView{
		ID: r.ID, Pipeline: r.Pipeline, Flow: r.Flow, Key: r.Key, Status: r.Status,
		Event: checkpoint.EventView{
			ID: r.Event.ID, Source: r.Event.Source, Type: r.Event.Type, Time: r.Event.Time, Key: r.Event.Key,
			Trace: [2]string{r.Event.TraceParent, r.Event.TraceState},
		},
		Bundle: r.Bundle, Generation: r.Generation, Blocked: r.Blocked, Blocks: r.Blocks, Accepted: r.Accepted,
		Started: model.TimeOrNil(r.Started), Finished: model.TimeOrNil(r.Ended), Due: model.TimeOrNil(r.Due),
		FailedPath: r.FailedPath, Error: r.Error, ErrorClass: r.ErrorClass, Reason: r.Reason,
		Handlers: []checkpoint.HandlerView{},
	}
	if r.Event.Labels != "" {
		v.Labels, _ = model.ParseLabels(r.Event.Labels) // checked when the event was accepted
	}
	if again := r.Event.Rerun; again != nil {
		v.RerunOf = again.Of
		v.RerunFrom = again.Stage
		v.RerunBy = again.By
		v.RerunReason = again.Reason
	}
	if whole {
		v.SharedState, v.Event.Payload = map[string]any{}, r.Event.Payload
	}
	if whole && r.Event.Payload == nil {
		v.Event.Payload = json.RawMessage(nil)
	}
	if r.Status == model.Parked {
		v.Reason, v.Error = r.Error, "" // it has not failed; it waits for this
	} else if r.Status == model.Waiting && r.ErrorClass == model.ClassKept && r.Bundle == "" {
		v.Reason, v.Error = r.Error, ""
	} else if !r.Status.Ended() {
		v.Error, v.ErrorClass = "", "" // it continues
	}
	if reason, ok := model.UndoReason(r.Move); !ok {
		v.Move = r.Move
	} else if !v.Status.Ended() {
		v.Cancelling = cmp.Or(reason, model.CancelReason)
	}
	if r.Damage != nil && v.Error == "" {
		v.Error, v.ErrorClass = r.Damage.Error(), model.ClassDamaged
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

// FitsStart returns why a run cannot begin with a plan from the checkpoint of its event, or nil.
func FitsStart(plan *planner.Plan, c *store.Claimed) error {
	if len(c.Event.Start) == 0 {
		return nil
	}
	return core.Fits(nil, plan, View(store.RunRecord{
		ID: c.ID, Event: c.Event, Flow: c.Flow, Key: c.Key, Status: model.Waiting, Pipeline: plan.Pipeline.ID, Checkpoint: c.Event.Start,
	}))
}

// RerunAs returns the last run that repeats a run, or empty. For the run of a failed task it is that of the task which
// does its work again.
func (o *Runs) RerunAs(ctx context.Context, run checkpoint.RunView) (last string, err error) {
	if task, ok := model.Superseder(run.Reason); ok && run.Status == model.Cancelled {
		last, err = o.Store.Inbox.EventRun(ctx, run.Event.Source, model.TaskEventID(task, 1))
	} else {
		last, err = o.Store.Inbox.LastEvent(ctx, model.RerunSource(run.ID))
	}
	if err != nil {
		return "", fmt.Errorf("reruns of run %s: %w", run.ID, err)
	}
	return last, nil
}
