package flowtest

import (
	"time"

	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/spec"
)

// An Expect says what must hold at the end. Below an event it is about the run of
// that event. As expect of a test it is about the run of its event, when there is
// only one, and about all runs where a field says so.
//
// Mappings are compared by the names that are given, lists element by element,
// and an expression must be true for what is there, which it reads as value.
type Expect struct {
	Span        diag.Span `yaml:"-"`
	Key         expr.Key  `yaml:"-"`
	spec.Places `yaml:"-"`

	// Refused says that the event is not taken in: a code such as event_rejected,
	// or a part of the message.
	Refused string `yaml:"refused"`

	// Status is the status of the run.
	Status string `yaml:"status" enum:"succeeded,failed,cancelled,ignored,parked,waiting,running"`

	// Pipeline is the pipeline that served the event.
	Pipeline string `yaml:"pipeline"`

	// Failed is the path of the handler that failed the run.
	Failed string `yaml:"failed"`

	// Error is a part of the error that failed the run.
	Error string `yaml:"error"`

	// Reason is a part of the reason for which the run was ignored or cancelled.
	Reason string `yaml:"reason"`

	// SharedState is the shared state of the run.
	SharedState *expr.Value `yaml:"shared-state" kind:"map"`

	// Outputs is the result of the run.
	Outputs *expr.Value `yaml:"outputs" kind:"map"`

	// State is the state of the entity after all runs.
	State string `yaml:"state"`

	// Transitions lists the states that the entity was in, the first one included.
	Transitions []string `yaml:"transitions"`

	// Handlers says what became of handlers, by path, which may be shortened as in
	// mocks. absent is a handler that was not reached.
	Handlers map[string]*ExpectedHandler `yaml:"handlers" words:"succeeded,failed,skipped,waiting,running,unknown,absent"`

	// Calls lists calls that were made, in any order; calls that are not listed are
	// not looked at. As expect of a test, it is about the calls of all runs.
	Calls []*ExpectedCall `yaml:"calls" one:"true"`

	// Order lists handlers whose calls were made in this order: each was called
	// after the one before had ended.
	Order []string `yaml:"order"`

	// Emits lists events that handlers have emitted, in any order. As expect of a
	// test, it is about those of all runs.
	Emits []*ExpectedEmit `yaml:"emits" one:"true"`

	// Elapsed is the virtual time from the event to the end of the run; as expect of
	// a test, from the beginning to the end of all runs.
	Elapsed time.Duration `yaml:"elapsed" min:"0s"`

	// Within is the longest that the same time may be: below an event that of its run; as
	// expect of a test that of all runs, even if the test has only one event.
	Within time.Duration `yaml:"within" min:"0s"`

	// NotBefore is the shortest that the same time may be: below an event that of its run;
	// as expect of a test that of all runs, even if the test has only one event.
	NotBefore time.Duration `yaml:"not-before" min:"0s"`

	// Runs says what became of the runs of pipelines, such as those of emitted
	// events, in the order in which they were accepted. Only in expect of a test.
	Runs map[string][]*Expect `yaml:"runs" one:"true"`

	// Entities says how entities are at the end. Only in expect of a test.
	Entities []*ExpectedEntity `yaml:"entities" one:"true"`

	// WhenOff says what holds instead when --chaos leaves a handler out, by its path:
	// what is said here replaces the same field above. Without it, all that may
	// depend on the handler is not looked at: its calls, its outcome, the names that
	// it fills, and the same of the handlers that read them.
	WhenOff map[string]*Expect `yaml:"when-off"`
}

// An ExpectedHandler is the expected outcome of a handler.
type ExpectedHandler struct {
	Span        diag.Span `yaml:"-"`
	spec.Places `yaml:"-"`
	Key         expr.Key `yaml:"-"`

	// Word is the outcome alone; empty when there is a mapping.
	Word string `yaml:"-"`

	// Outcome is what became of it.
	Outcome string `yaml:"outcome" enum:"succeeded,failed,skipped,waiting,running,unknown,absent"`

	// Attempts is the number of attempts.
	Attempts *int `yaml:"attempts" min:"0"`

	// Reason is a part of why it was skipped or waits.
	Reason string `yaml:"reason"`

	// Error is a part of its last error.
	Error string `yaml:"error"`
}

// An ExpectedCall is a call that must have been made.
type ExpectedCall struct {
	Span        diag.Span `yaml:"-"`
	spec.Places `yaml:"-"`

	// Handler is the path of the handler, which may be shortened as in mocks.
	Handler string `yaml:"handler" required:"true"`

	// Method is the HTTP method of a request.
	Method string `yaml:"method"`

	// URL is a part of where a request went.
	URL string `yaml:"url"`

	// Query are parameters of the URL.
	Query *expr.Value `yaml:"query" kind:"map"`

	// Headers are headers of a request; their names may be written in any case.
	Headers *expr.Value `yaml:"headers" kind:"map"`

	// Body is the body of a request.
	Body *expr.Value `yaml:"body"`

	// Fields are the fields of the handler, such as the type and the payload of an
	// emit.
	Fields *expr.Value `yaml:"fields" kind:"map"`

	// At is when the call began, since the test did.
	At *time.Duration `yaml:"at" min:"0s"`

	// Times is how many calls are like this; at least one when it is left out.
	Times *int `yaml:"times" min:"0"`
}

// An ExpectedEmit is an event that must have been emitted.
type ExpectedEmit struct {
	Span        diag.Span `yaml:"-"`
	spec.Places `yaml:"-"`

	// Type is the type of the event.
	Type string `yaml:"type" required:"true"`

	// Key is the key of the event, also if its flow computes it.
	Key string `yaml:"key"`

	// Payload is what the event tells.
	Payload *expr.Value `yaml:"payload"`

	// Delay is for how long it was not due yet.
	Delay *time.Duration `yaml:"delay" min:"0s"`

	// Times is how many such events there were; at least one when it is left out.
	Times *int `yaml:"times" min:"0"`
}

// An ExpectedEntity is how an entity must be at the end.
type ExpectedEntity struct {
	Span        diag.Span `yaml:"-"`
	spec.Places `yaml:"-"`

	// Flow is the flow; it may be left out when there is only one.
	Flow string `yaml:"flow"`

	// Key names the entity.
	Key string `yaml:"key" required:"true"`

	// State is its state.
	State string `yaml:"state"`

	// Transitions lists the states that it was in, the first one included.
	Transitions []string `yaml:"transitions"`

	// SharedState is what is kept for its next event.
	SharedState *expr.Value `yaml:"shared-state" kind:"map"`

	// Blocked says whether a failed run keeps its events from going on.
	Blocked *bool `yaml:"blocked"`
}
