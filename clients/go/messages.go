// Code generated from schemas/openapi.json by TestMessagesOfClients. DO NOT EDIT.

package procaas

import (
	"encoding/json"
	"time"
)

// An Event starts a run.
type Event struct {
	// When the event is due. The default is now.
	At time.Time `json:"at,omitzero"`

	// How long the event may wait beyond that without harm: text such as 90s, or seconds.
	DelayTolerance Duration `json:"delay_tolerance,omitempty"`

	// Unique within source: the same id again is a duplicate. The default is an id that the engine makes.
	ID string `json:"id,omitempty"`

	// The entity, for flows without a key expression. Other flows compute the key, and the reply has it if it differs.
	Key string `json:"key,omitempty"`

	// What to find the run by: up to 8 names of up to 40 letters, digits and ._/- with values of up to 100 bytes.
	Labels map[string]string `json:"labels,omitempty"`

	// What happened: any JSON value. Whole numbers of 64 bits stay exact.
	Payload any `json:"payload,omitempty"`

	// Higher goes first among events that are due.
	Priority int `json:"priority,omitempty"`

	// The sender.
	Source string `json:"source,omitempty"`

	// The type, which chooses the pipeline.
	Type string `json:"type"`
}

// A RunEvent is the event of a run.
type RunEvent struct {
	ID  string `json:"id"`
	Key string `json:"key,omitempty"`

	// Which message of a subscription, or delivery of a webhook, the event was, for people. Absent for others, and in lists.
	Origin  string          `json:"origin,omitempty"`
	Payload json.RawMessage `json:"payload,omitempty"`
	Source  string          `json:"source"`
	Time    time.Time       `json:"time"`
	Type    string          `json:"type"`
}

// A Fault is an error with its location.
type Fault struct {
	// In a refused array of events: the reason for the event at this location.
	Code string `json:"code,omitempty"`

	// The location: a JSON pointer into the body, or query/NAME, path/NAME or header/NAME.
	Location string `json:"location"`

	// What is wrong, for people.
	Message string `json:"message"`
}

// A RunHandler is the outcome of a handler in a run.
type RunHandler struct {
	Attempts int `json:"attempts"`

	// When a waiting handler continues; absent if unknown.
	Due      time.Time  `json:"due,omitzero"`
	Error    string     `json:"error"`
	Finished *time.Time `json:"finished"`
	Items    *RunItems  `json:"items,omitempty"`
	Outcome  string     `json:"outcome"`

	// pipeline/stage/handler.
	Path string `json:"path"`

	// The reason why the handler was skipped, or what it waits for.
	Reason  string     `json:"reason"`
	Started *time.Time `json:"started"`
	Within  string     `json:"within,omitempty"`
}

// An ItemError is the error of one element.
type ItemError struct {
	Error string `json:"error"`
	Item  int    `json:"item"`
}

// A RunItems counts the elements of a loop.
type RunItems struct {
	Errors    []ItemError `json:"errors,omitempty"`
	Failed    int         `json:"failed"`
	Running   int         `json:"running"`
	Succeeded int         `json:"succeeded"`
	Total     int         `json:"total"`
	Waiting   int         `json:"waiting"`
}

// A NotUndone is a compensation that has failed.
type NotUndone struct {
	// Why its compensation failed.
	Error string `json:"error"`

	// The path of the handler, after those of the calls around it.
	Handler string `json:"handler"`
}

// A ProblemDetails is the body of an error.
type ProblemDetails struct {
	// The kind of problem, for programs. Codes are stable.
	Code string `json:"code"`

	// The found and expected values and the remedy, for people.
	Detail string `json:"detail"`

	// The errors with their locations, if known.
	Errors []Fault `json:"errors,omitempty"`

	// The HTTP status.
	Status int `json:"status"`

	// The kind of problem, for people.
	Title string `json:"title"`

	// A name of the kind of problem, made from the code.
	Type string `json:"type"`
}

// A QueuedTask is a task as a worker gets it.
type QueuedTask struct {
	// The number of this attempt, from 1. For a dead letter, that of the last one.
	Attempt int `json:"attempt"`

	// The end of its tolerance.
	Deadline time.Time `json:"deadline"`

	// When it is due.
	Due time.Time `json:"due"`

	// When it was completed, cancelled or failed for good; absent before.
	Ended time.Time `json:"ended,omitzero"`

	// The error of the last failed attempt.
	Error string `json:"error,omitempty"`

	// Its 64-bit number, as text, because not every JSON parser keeps such numbers exact.
	ID string `json:"id"`

	// The entity that it is about; absent for none.
	Key string `json:"key,omitempty"`

	// The content. Completed tasks no longer have it. A list omits payloads over 16 KiB: read the task by its id.
	Payload json.RawMessage `json:"payload,omitempty"`

	// Higher goes first among due tasks. The default is 0.
	Priority int `json:"priority"`

	// The receipt of this attempt, which the worker passes in later calls.
	Receipt string `json:"receipt,omitempty"`

	// scheduled: it is not due yet. ready: workers can take it. waiting: its key is at its limit. starting: a worker holds it and has not started. running: a worker works on it. failed: it is a dead letter.
	State string `json:"state"`

	// The longest time of one attempt in seconds; absent if the worker decides.
	Timeout float64 `json:"timeout,omitempty"`

	// The kind of work: the id of a pipeline with a queue section, or any other name.
	Type string `json:"type"`

	// Its name among the unfinished tasks of its type; absent for none.
	Unique string `json:"unique,omitempty"`

	// The time by which its worker must report.
	Until time.Time `json:"until,omitzero"`

	// The name of the worker that took it, for people.
	Worker string `json:"worker,omitempty"`
}

// A Receipt says which run an event has started.
type Receipt struct {
	// true if the event was accepted before. run is the earlier run.
	Duplicate bool `json:"duplicate"`

	// The event's id.
	Event string `json:"event"`

	// The key of the run. It is only present if the event names another key than the flow computes.
	Key string `json:"key,omitempty"`

	// The id of its run.
	Run string `json:"run"`

	// true if it is not known yet whether the state of the key will allow the event. This happens in a flow with states and otherwise: reject, if earlier events of the key are due or the event is due later. If the state then does not allow it, the run ends as ignored. If absent, the state allows the event.
	Undecided bool `json:"undecided,omitempty"`
}

// A ReceiptItem is the outcome of one event of several.
type ReceiptItem struct {
	// true if the event was accepted before; absent if it is refused.
	Duplicate bool `json:"duplicate,omitempty"`

	// The reason why the event is refused; absent if it is accepted.
	Error *ProblemDetails `json:"error,omitempty"`

	// The event's id.
	Event string `json:"event,omitempty"`

	// The key of the run. It is only present if the event names another key than the flow computes.
	Key string `json:"key,omitempty"`

	// The id of its run; absent if the event is refused.
	Run string `json:"run,omitempty"`

	// As in a single receipt.
	Undecided bool `json:"undecided,omitempty"`
}

// A Result says how the run of an event has ended.
type Result struct {
	// true if the event was accepted before. run is the earlier run.
	Duplicate bool `json:"duplicate"`

	// Why the run has failed, for people.
	Error string `json:"error,omitempty"`

	// The class of the error: timeout, connection, a status such as 503, schema, other.
	ErrorClass string `json:"error_class,omitempty"`

	// The event's id.
	Event string `json:"event"`

	// Of a run that has failed: the path of the handler, or of the pipeline.
	FailedHandler string `json:"failed_handler,omitempty"`

	// The key of the run. It is only present if the event names another key than the flow computes.
	Key string `json:"key,omitempty"`

	// What the outputs of its pipeline came to. Absent when the pipeline declares none, or the run has not succeeded.
	Outputs json.RawMessage `json:"outputs,omitempty"`

	// Why the run was cancelled or ignored.
	Reason string `json:"reason,omitempty"`

	// The id of its run.
	Run string `json:"run"`

	// How the run has ended. Absent for a caller who has not waited.
	Status string `json:"status,omitempty"`

	// true if it is not known yet whether the state of the key will allow the event. This happens in a flow with states and otherwise: reject, if earlier events of the key are due or the event is due later. If the state then does not allow it, the run ends as ignored. If absent, the state allows the event.
	Undecided bool `json:"undecided,omitempty"`
}

// A Run is a run as it is now.
type Run struct {
	// When the event was stored.
	Accepted time.Time `json:"accepted"`

	// true if the run waits for an earlier run of its key.
	Blocked bool `json:"blocked"`

	// true if later runs of the key wait until somebody retries or cancels this one. Absent otherwise.
	Blocks bool `json:"blocks,omitempty"`

	// The hash of the definition that the run began with.
	Bundle     string `json:"bundle,omitempty"`
	Cancelling string `json:"cancelling,omitempty"`

	// When a parked or scheduled run continues.
	Due   time.Time `json:"due,omitzero"`
	Error string    `json:"error"`

	// The class of the error that failed the run: timeout, deadline, connection, credentials, certificate, schema, a status such as 503, or other. quarantined: it is parked because nodes died of it. damaged: its data in the store cannot be read.
	ErrorClass string   `json:"error_class"`
	Event      RunEvent `json:"event"`

	// The path of the handler that failed the run.
	FailedHandler string     `json:"failed_handler"`
	Finished      *time.Time `json:"finished"`
	Flow          string     `json:"flow"`

	// How often an operator has retried the run.
	Generation int `json:"generation"`

	// The outcome of each handler, in the order of the pipeline.
	Handlers   []RunHandler      `json:"handlers"`
	ID         string            `json:"id"`
	Key        string            `json:"key"`
	Labels     map[string]string `json:"labels,omitempty"`
	MigratesTo string            `json:"migrates_to,omitempty"`

	// The compensations that have failed for good. A retry repeats only these.
	NotUndone []NotUndone     `json:"not_undone,omitempty"`
	Outputs   json.RawMessage `json:"outputs,omitempty"`
	Pipeline  string          `json:"pipeline"`

	// The reason why the run was ignored or cancelled.
	Reason      string `json:"reason"`
	RerunAs     string `json:"rerun_as,omitempty"`
	RerunBy     string `json:"rerun_by,omitempty"`
	RerunFrom   string `json:"rerun_from,omitempty"`
	RerunOf     string `json:"rerun_of,omitempty"`
	RerunReason string `json:"rerun_reason,omitempty"`

	// The shared state so far, including that of the flow.
	SharedState json.RawMessage `json:"shared_state,omitempty"`

	// The number of its current stage, from 1; 0 before it begins.
	Stage   int        `json:"stage"`
	Started *time.Time `json:"started"`
	Status  string     `json:"status"`
}

// A Task is work for a queue.
type Task struct {
	// When the task is due. Not together with delay.
	At time.Time `json:"at,omitzero"`

	// The delay until the task is due: text such as 90s, or seconds. Not together with at.
	Delay Duration `json:"delay,omitempty"`

	// How long the task may wait beyond its time without harm: text such as 90s, or seconds.
	DelayTolerance Duration `json:"delay_tolerance,omitempty"`

	// The entity that the task is about. Events of one key run one at a time, in order. For tasks, the queue section of their type or its workers decide.
	Key string `json:"key,omitempty"`

	// What happens to the task if another one has its unique name. The default is keep.
	OnDuplicate string `json:"on_duplicate,omitempty"`

	// The content: any JSON value.
	Payload any `json:"payload,omitempty"`

	// Higher goes first among tasks that are due.
	Priority int `json:"priority,omitempty"`

	// For tasks only: the longest time of one attempt.
	Timeout Duration `json:"timeout,omitempty"`

	// For tasks only: its name among the unfinished tasks of its type.
	Unique string `json:"unique,omitempty"`
}

// A TaskReceipt is the outcome of putting a task.
type TaskReceipt struct {
	// The reason why the task was refused.
	Error string `json:"error,omitempty"`

	// The id of the task in the queue.
	ID string `json:"id,omitempty"`

	// added; or, if another task has its unique name: kept (the other one stays), merged, replaced or follows. For refused, error has the reason.
	Outcome string `json:"outcome"`

	// The task was accepted, but may wait for ever, because no worker asks for its type: check the spelling. For an array, the reply as a whole has the warning.
	Warning string `json:"warning,omitempty"`
}
