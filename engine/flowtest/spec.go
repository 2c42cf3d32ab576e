package flowtest

import (
	"embed"
	"reflect"
	"sync"
	"time"

	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/spec"
	"procaas/dsl/tree"
)

// The structs of these files are the format of *.test.yaml: as with the language,
// their comments are its reference and their tags its constraints.

//go:embed spec.go spec_expect.go
var specFiles embed.FS

// Spec describes a file of tests.
var Spec = sync.OnceValue(func() *spec.Spec {
	return spec.OfFile(reflect.TypeFor[File](), spec.Read(specFiles))
})

// A File holds tests of pipelines, which run in virtual time, without a network. A run that fails
// must be expected, else the test fails.
//
// Triggers fire only where events say so. Tests have no queue: mock a handler with queue.put, and
// hand the task in as an event. Mocks reply only what you write. If a service may leave a member
// out or send null, write a test with that reply too.
//
//	mocks:
//	  get-order: {reply: {order: {id: o-1, user-id: u-1, price: 400}}}
//	  notify-user: {status: 202}
//	tests:
//	  - name: the user is told, sooner or later
//	    events: {type: new-order-created, payload: {order-id: o-1}}
//	    mocks:
//	      notify-user: [{error: timeout}, {status: 202}]
//	    expect:
//	      status: succeeded
//	      handlers:
//	        notify-user: {outcome: succeeded, attempts: 2}
//	      calls:
//	        - {handler: notify-user, body: {to: u-1}}
type File struct {
	spec.Places

	// Pipelines lists the files and directories with the pipelines, as seen from
	// this file. When it is left out, it is the directory of this file.
	Pipelines spec.Names `yaml:"pipelines"`

	// Stubs lists files of stub services, as seen from this file. They answer the
	// requests that no mock answers.
	Stubs spec.Names `yaml:"stubs"`

	// Configs are live settings for all tests of the file, instead of those that
	// the pipelines begin with.
	Configs *expr.Value `yaml:"configs" kind:"map" expr:"no"`

	// Secrets are the values of !secret NAME in the tests of the file.
	Secrets map[string]string `yaml:"secrets"`

	// Mocks answer calls in all tests of the file, as those of a test do, which
	// come first.
	Mocks map[string][]*Answer `yaml:"mocks" one:"true"`

	// Tests are the tests.
	Tests []*Test `yaml:"tests" required:"true"`
}

// A Test hands events in and says what must come of them.
type Test struct {
	Span diag.Span `yaml:"-"`

	// Name says what holds, such as: an order is offered to a driver.
	Name string `yaml:"name" required:"true"`

	// Start is when the test begins by the virtual clock, which stops unless
	// something waits; 2026-01-01T00:00:00Z when it is left out.
	Start time.Time `yaml:"start"`

	// Configs are live settings, in addition to those of the file.
	Configs *expr.Value `yaml:"configs" kind:"map" expr:"no"`

	// Secrets are values of !secret NAME, in addition to those of the file.
	Secrets map[string]string `yaml:"secrets"`

	// Entities are what is known of keys before the first event.
	Entities []*Entity `yaml:"entities" one:"true"`

	// Controls are switches, limits and rollouts that operators have set, by path:
	// pipeline, pipeline/stage or pipeline/stage/handler.
	Controls map[string]*Control `yaml:"controls" words:"on,off,hold"`

	// Mocks say how calls of handlers are answered, by path. A path may leave out
	// the pipeline, or the pipeline and the stage; the longest one that fits a
	// handler counts. Several answers are given one after the other, the last one
	// to all further calls. A call that repeats another one with its
	// Idempotency-Key gets the same answer when that was a success. Requests that
	// have no mock go to the stub services, and fail the test when there are none.
	// The mock of a handler that calls a pipeline replaces the whole call: its
	// reply are the outputs, request its inputs, its failure is final, and nothing
	// of that pipeline runs.
	Mocks map[string][]*Answer `yaml:"mocks" one:"true"`

	// Events are handed in, in order.
	Events []*Event `yaml:"events" one:"true" required:"true"`

	// Changes are what happens in addition to events while the runs go on.
	Changes []*Change `yaml:"changes" one:"true"`

	// Until is when the test ends. Without it, it ends when nothing is left to do,
	// which must be within a year.
	Until time.Duration `yaml:"until" min:"1ms"`

	// Expect says what must have come of it.
	Expect *Expect `yaml:"expect"`
}

// An Event is handed in as POST /v1/events does.
type Event struct {
	Span        diag.Span `yaml:"-"`
	spec.Places `yaml:"-"`

	// At is when it is handed in, since the test began. An event without it comes
	// at once after the one before.
	At time.Duration `yaml:"at" min:"0s"`

	// Type is the type of the event.
	Type string `yaml:"type"`

	// Trigger fires a trigger, instead of type: its event is handed in when its schedule says so
	// next, by the clock of the test. The same trigger fires again at its next time.
	Trigger string `yaml:"trigger"`

	// Payload is what the event tells.
	Payload *expr.Value `yaml:"payload" expr:"no"`

	// Key names the entity, for flows without a key expression.
	Key string `yaml:"key"`

	// ID is the id of the event; the same id is the same event.
	ID string `yaml:"id"`

	// Source is who sends it.
	Source string `yaml:"source" default:"test"`

	// Delay is for how long the event is not due yet.
	Delay time.Duration `yaml:"delay" min:"0s"`

	// Priority orders events that are due; higher first.
	Priority int `yaml:"priority"`

	// Expect says what must have come of the run of this event.
	Expect *Expect `yaml:"expect"`

	fires *tree.Trigger // of Trigger, when the test has been checked; nil without one
}

// A Change is what happens while runs go on.
type Change struct {
	Span diag.Span `yaml:"-"`

	// At is when, since the test began.
	At time.Duration `yaml:"at" required:"true" min:"0s"`

	// Configs are set.
	Configs *expr.Value `yaml:"configs" kind:"map" expr:"no"`

	// Controls are set, by path; on takes the control of a path away.
	Controls map[string]*Control `yaml:"controls" words:"on,off,hold"`

	// Retry retries all runs that have failed, or wait for an operator.
	Retry bool `yaml:"retry"`

	// Cancel cancels all runs that have not ended, for this reason.
	Cancel string `yaml:"cancel"`

	// Crash lets the node die, and another one go on.
	Crash bool `yaml:"crash"`
}

// An Entity is what is known of a key.
type Entity struct {
	Span        diag.Span `yaml:"-"`
	spec.Places `yaml:"-"`

	// Flow is the flow; it may be left out when there is only one.
	Flow string `yaml:"flow"`

	// Key names the entity.
	Key string `yaml:"key" required:"true"`

	// State is the state of its automaton.
	State string `yaml:"state"`

	// SharedState is what the flow keeps between events, as far as it differs from
	// the first values.
	SharedState *expr.Value `yaml:"shared-state" kind:"map" expr:"no"`
}

// A Control is what an operator has set on a path. Off leaves out what is below,
// hold parks runs before it.
type Control struct {
	Span diag.Span `yaml:"-"`
	Key  expr.Key  `yaml:"-"`

	// Word is one word; empty when there is a mapping.
	Word string `yaml:"-"`

	// Switch is on, off or hold.
	Switch string `yaml:"switch" enum:"on,off,hold" default:"on"`

	// Force lets off leave out critical handlers.
	Force bool `yaml:"force"`

	// RateLimit bounds the calls, such as 10/s.
	RateLimit string `yaml:"rate-limit"`

	// Over says what happens to calls over the limit.
	Over string `yaml:"over" enum:"wait,skip"`

	// Rollout lets a handler run in this percentage of the runs.
	Rollout *float64 `yaml:"rollout" min:"0" max:"100"`
}

// An Answer is how a call is answered. That of a request is an HTTP reply, which
// the handler reads as it would read a real one. That of another handler is its
// response. Expressions read request (method, path, query, headers, body. Of
// other handlers its fields) and calls, the number of calls of the handler, this
// one included.
type Answer struct {
	Span        diag.Span `yaml:"-"`
	spec.Places `yaml:"-"`
	Key         expr.Key `yaml:"-"`

	// When must be true for the answer to be given; the next one is looked at
	// otherwise. The answer is given once, unless it is the last one or times says more:
	// write times: any for each call that fits.
	When *expr.Value `yaml:"when" kind:"bool"`

	// Reply is the body of the reply: text is sent as it is when headers name a
	// content type, anything else as JSON.
	Reply *expr.Value `yaml:"reply"`

	// Status is the status of the reply.
	Status int `yaml:"status" default:"200" min:"100" max:"599"`

	// Headers are the headers of the reply.
	Headers *expr.Value `yaml:"headers" kind:"map"`

	// Latency is how long the answer takes, by the virtual clock.
	Latency time.Duration `yaml:"latency" min:"0s"`

	// Error lets the call fail without a reply: timeout is no answer until the
	// time of the call is over, connection a refused connection, credentials a
	// call that has none for its service, certificate a service whose certificate
	// cannot be trusted, and any other text an error that says so.
	Error string `yaml:"error"`

	// Permanent says of an error that repeating is useless.
	Permanent bool `yaml:"permanent"`

	// Crash lets the node die before the answer arrives. What the call was to do
	// is done; another node repeats it.
	Crash bool `yaml:"crash"`

	// Times is how many calls get this answer before the next one counts: a number, or any for all
	// calls that fit. It also counts for an answer with when. The last answer has no limit.
	Times string `yaml:"times" default:"1" pattern:"times"`
}
