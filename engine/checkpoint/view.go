package checkpoint

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"procaas/dsl/datum"
	"procaas/engine/model"
)

// A RunView is a run in the form for people and programs.
type RunView struct {
	ID          string         `json:"id"`
	Pipeline    string         `json:"pipeline"`
	Flow        string         `json:"flow"`
	Key         string         `json:"key"`
	Status      model.Status   `json:"status" enum:"waiting,running,parked,succeeded,failed,cancelled,ignored"`
	Event       EventView      `json:"event"`
	SharedState map[string]any `json:"shared_state,omitzero" doc:"The shared state so far, including that of the flow."`
	// Outputs is the result of a succeeded run whose pipeline declares outputs. Nil in lists.
	Outputs  map[string]any `json:"outputs,omitzero"`
	Stage    int            `json:"stage" doc:"The number of its current stage, from 1; 0 before it begins."`
	Handlers []HandlerView  `json:"handlers" doc:"The outcome of each handler, in the order of the pipeline."`
	// NotUndone is what the run has done and could not undo.
	NotUndone []NotUndone `json:"not_undone,omitempty" doc:"The compensations that have failed for good. A retry repeats only these."`
	Bundle    string      `json:"bundle,omitempty" doc:"The hash of the definition that the run began with."`
	// the definition that it moves to after its calls in flight have ended
	Move string `json:"migrates_to,omitempty"`
	// why an operator has cancelled it: it undoes what it has done, then ends
	Cancelling  string            `json:"cancelling,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	RerunOf     string            `json:"rerun_of,omitempty"`   // the run that it repeats
	RerunFrom   string            `json:"rerun_from,omitempty"` // the stage where it began; empty for the first
	RerunBy     string            `json:"rerun_by,omitempty"`   // the operator who ordered it
	RerunReason string            `json:"rerun_reason,omitempty"`
	RerunAs     string            `json:"rerun_as,omitempty"` // the last run that repeats this one; empty in lists
	Generation  int               `json:"generation" doc:"How often an operator has retried the run."`
	Blocked     bool              `json:"blocked" doc:"true if the run waits for an earlier run of its key."`
	Blocks      bool              `json:"blocks,omitempty" doc:"true if later runs of the key wait until somebody retries or cancels this one. Absent otherwise."`
	Accepted    time.Time         `json:"accepted" doc:"When the event was stored."`
	Started     *time.Time        `json:"started"`
	Finished    *time.Time        `json:"finished"`
	Due         *time.Time        `json:"due,omitempty" doc:"When a parked or scheduled run continues."`
	FailedPath  string            `json:"failed_handler" doc:"The path of the handler that failed the run."`
	Error       string            `json:"error"`
	ErrorClass  string            `json:"error_class" doc:"The class of the error that failed the run: timeout, deadline, connection, credentials, certificate, schema, a status such as 503, or other. quarantined: it is parked because nodes died of it. damaged: its data in the store cannot be read."`
	Reason      string            `json:"reason" doc:"The reason why the run was ignored or cancelled."`
}

// An EventView is the event of a run.
type EventView struct {
	ID      string    `json:"id"`
	Source  string    `json:"source"`
	Type    string    `json:"type"`
	Time    time.Time `json:"time"`
	Key     string    `json:"key,omitempty"`
	Trace   [2]string `json:"-"`                // traceparent and tracestate of the sender; may be empty
	Payload any       `json:"payload,omitzero"` // nil in lists; otherwise null is a JSON null

	Origin string `json:"origin,omitempty" doc:"Which message of a subscription, or delivery of a webhook, the event was, for people. Absent for others, and in lists."`
}

// A NotUndone is a handler whose compensation has failed for good.
type NotUndone struct {
	Handler string `json:"handler" doc:"The path of the handler, after those of the calls around it."`
	Error   string `json:"error" doc:"Why its compensation failed."`
}

// A HandlerView is the outcome of one handler in a run.
type HandlerView struct {
	Path string `json:"path" doc:"pipeline/stage/handler."`
	// the handler that called its pipeline, with the index of the item in brackets
	Within   string     `json:"within,omitempty"`
	Items    *ItemsView `json:"items,omitempty"`                                                 // of a for-each
	Outcome  string     `json:"outcome" enum:"succeeded,failed,skipped,running,waiting,unknown"` // succeeded failed skipped running waiting unknown
	Attempts int        `json:"attempts"`
	Started  *time.Time `json:"started"`
	Finished *time.Time `json:"finished"`
	Due      *time.Time `json:"due,omitempty" doc:"When a waiting handler continues; absent if unknown."`
	Error    string     `json:"error"`
	Reason   string     `json:"reason" doc:"The reason why the handler was skipped, or what it waits for."`
}

// RepeatsStage reports whether the view is of a stage that is repeated for each element of a list.
// Its path is that of the stage. The views of its handlers follow, within it.
func (h HandlerView) RepeatsStage() bool {
	return strings.Count(h.Path, "/") == 1
}

// Stage returns the path of the run's stage that has the handler, also inside calls.
func (h HandlerView) Stage() string {
	outer, _, _ := strings.Cut(h.Ref(), model.IntoCall)
	parts := strings.SplitN(model.PathOf(outer), "/", 3)
	return strings.Join(parts[:min(2, len(parts))], "/")
}

// ReadCheckpoint adds the data of a checkpoint.
func (v *RunView) ReadCheckpoint(data []byte) error {
	c, err := Read(data)
	if err != nil {
		return err
	}
	v.Stage = c.Stage + 1
	if c.Stopping != "" && !v.Status.Ended() {
		v.Cancelling = c.Stopping
	}
	for _, s := range c.Shared {
		if v.SharedState == nil {
			break // omit it
		}
		value, err := datum.ParseJSON(s.Raw)
		if err != nil {
			return fmt.Errorf("read checkpoint: shared state %s: %w", s.Name, err)
		}
		v.SharedState[s.Name] = value
	}
	if err := v.ReadOutputs(c.Outputs); err != nil {
		return err
	}
	for _, h := range c.Handlers {
		v.add(h, "")
	}
	v.order()
	return nil
}

// ReadOutputs adds the result, unless the view is for a list. A run that makes up for a handler
// keeps its earlier result.
func (v *RunView) ReadOutputs(raw []byte) error {
	if len(raw) == 0 || v.SharedState == nil || v.Status != model.Succeeded {
		return nil
	}
	value, err := datum.ParseJSON(raw)
	if err != nil {
		return fmt.Errorf("read checkpoint: outputs: %w", err)
	}
	v.Outputs, _ = value.(map[string]any)
	return nil
}

// order corrects times to the order of events. Times of the run come from the store. Times of
// handlers are only as exact as the node knows the store's clock.
func (v *RunView) order() {
	within := func(t, from, to *time.Time) *time.Time {
		switch {
		case t == nil:
			return nil
		case from != nil && t.Before(*from):
			return from
		case to != nil && t.After(*to):
			return to
		}
		return t
	}
	for i := range v.Handlers {
		h := &v.Handlers[i]
		h.Started = within(h.Started, v.Started, v.Finished)
		h.Finished = within(h.Finished, v.Started, v.Finished)
		h.Finished = within(h.Finished, h.Started, nil)
	}
}

// add adds a handler, and below it the handlers of the pipeline that it calls.
func (v *RunView) add(h Record, within string) {
	if h.Outcome == "" {
		h.Outcome = OutcomeOf(v.Status, h)
	}
	if v.Status == model.Parked && v.Reason == "" {
		v.Reason = h.standstill()
	}
	one := h.View()
	one.Within = within
	v.Handlers = append(v.Handlers, one)
	if h.Undo != nil {
		undo := *h.Undo
		if undo.Outcome == "" {
			undo.Outcome = OutcomeOf(v.Status, undo)
		}
		view := undo.View()
		view.Within = within
		v.Handlers = append(v.Handlers, view)
		if undo.Outcome == model.OutcomeFailed {
			v.NotUndone = append(v.NotUndone, NotUndone{one.Ref(), undo.Error})
		}
	}
	v.inside(h, one.Ref())
	if h.Each != nil {
		for _, item := range h.Each.Of {
			v.inside(item, model.RefOf(one.Ref(), item.Item))
		}
	}
}

// inside adds the handlers of a call.
func (v *RunView) inside(h Record, ref string) {
	handlers := h.Trail
	if h.Call != nil {
		handlers = h.Call.Handlers
	}
	for _, inner := range handlers {
		v.add(inner, ref)
	}
}

// standstill returns what an operator has to decide about a handler, or empty.
func (h Record) standstill() string {
	if h.Outcome == model.OutcomeUnknown {
		return h.Path + ": " + h.Reason
	}
	if h.Each != nil {
		for _, item := range h.Each.Of {
			if item.Outcome == model.OutcomeUnknown {
				return model.RefOf(h.Path, item.Item) + ": " + item.Reason
			}
		}
	}
	return ""
}

// OutcomeOf returns the outcome to show for a handler without one.
func OutcomeOf(run model.Status, h Record) string {
	switch {
	case run.Ended():
		return model.OutcomeUnknown
	case run == model.Running && (h.Attempts > 0 && h.Due.IsZero() || h.Each.running()):
		return model.OutcomeRunning
	}
	return model.OutcomeWaiting
}

// View returns the view of a record.
func (h Record) View() HandlerView {
	v := HandlerView{
		Items: h.Each.counts(), Path: h.Path, Outcome: h.Outcome, Attempts: h.Attempts,
		Started: model.TimeOrNil(h.Started), Finished: model.TimeOrNil(h.Finished), Error: h.Error, Reason: h.Reason,
	}
	if h.Outcome == model.OutcomeWaiting {
		v.Due = model.TimeOrNil(h.Due)
	}
	return v
}

// An EntityView is a key of a flow in the form for people and programs.
type EntityView struct {
	Flow        string         `json:"flow"`
	Key         string         `json:"key"`
	State       string         `json:"state" doc:"The state of the automaton; empty if the flow has none."`
	SharedState map[string]any `json:"shared_state"`
	Blocked     bool           `json:"blocked" doc:"true if later events of the key wait until somebody retries or cancels a run, which blocked_by names."`
	BlockedBy   string         `json:"blocked_by,omitempty"`
	Waiting     int            `json:"waiting" doc:"The number of unfinished runs."`
	Runs        []RunView      `json:"runs" doc:"The latest runs, newest first."`
}

// Ref returns the name of the handler or item in its run.
func (h HandlerView) Ref() string {
	if h.Within == "" {
		return h.Path
	}
	return h.Within + model.IntoCall + h.Path
}

// InsideOf returns a handler whose call of a pipeline continues, or would after an operator's
// retry. It is empty for none.
func (v *RunView) InsideOf() string {
	for _, h := range v.Handlers {
		if h.Within == "" {
			continue
		}
		head, _, _ := strings.Cut(h.Within, model.IntoCall)
		at := slices.IndexFunc(v.Handlers, func(o HandlerView) bool { return o.Within == "" && o.Path == model.PathOf(head) })
		if at < 0 {
			continue
		}
		switch o := v.Handlers[at].Outcome; {
		case o == model.OutcomeSucceeded, o == model.OutcomeSkipped, o == model.OutcomeFailed && v.Status != model.Failed:
		default:
			return model.PathOf(head)
		}
	}
	return ""
}
