package model

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"procaas/dsl/contracts"
)

// A Result is the result of a successful call.
type Result struct {
	// Response is what expressions read as sources.HANDLER.response. It is data as in
	// [Event.Payload]. The run keeps it without a copy, so nobody may change it afterwards.
	Response any

	// Status is what expressions read as sources.HANDLER.status. 0 means none, which they read as
	// null.
	Status int

	// Emit lists events to accept in the same transaction as this outcome.
	Emit []Event

	// Until parks the run. The handler is done at this time, and the call is not repeated. Zero
	// means at once.
	Until time.Time

	// Again parks the run until something outside has happened. The handler is called again at Until,
	// or as soon as [store.Runs].WakeRun names the run, and gets this text. That still is the same
	// attempt. Nothing else of the result counts then. Empty means that the handler is done.
	Again string
}

// Permanent wraps an error that a retry cannot mend.
func Permanent(err error) error { return &permanentError{err} }

type permanentError struct{ error }

func (e *permanentError) Unwrap() error { return e.error }

func (e *permanentError) Permanent() bool { return true }

// IsPermanent reports whether err, or an error that it wraps, is [Permanent] or has a method
// Permanent that says so.
func IsPermanent(err error) bool {
	var p interface{ Permanent() bool }
	return errors.As(err, &p) && p.Permanent()
}

// After wraps an error of a handler type that knows when it makes sense to try again. There is
// another attempt after exactly this time, plus the deviation of the policy, for every class of
// the error. The failed attempt counts.
func After(d time.Duration, err error) error { return &afterError{error: err, delay: d} }

// AfterAtLeast wraps an error with the time that a service asked to wait, like a Retry-After
// header, up to a day. The policy decides whether there is another attempt, and its own delay may
// be longer.
func AfterAtLeast(d time.Duration, err error) error {
	return &afterError{error: err, delay: min(max(d, 0), maxAsked), asked: true}
}

// maxAsked is the longest delay that a service may ask for.
const maxAsked = 24 * time.Hour

type afterError struct {
	error
	delay time.Duration
	asked bool // by a service
}

// IsAsked reports whether the delay of an error is that of [AfterAtLeast].
func IsAsked(err error) bool {
	a, ok := errors.AsType[*afterError](err)
	return ok && a.asked
}

// RetryDelay returns the delay of an error of [After] or [AfterAtLeast]. ok is false for other errors.
func RetryDelay(err error) (d time.Duration, ok bool) {
	if a, ok := errors.AsType[*afterError](err); ok {
		return a.delay, true
	}
	return 0, false
}

// A StatusError is an unexpected HTTP reply. Its class for retries is the status itself and 4xx or
// 5xx.
type StatusError struct {
	Status  int    // of HTTP
	Method  string // of the request
	URL     string // of the request
	Excerpt string // beginning of the body, for people; secrets removed
	Body    any    // JSON body, as data as in [Event.Payload]; nil if it is not JSON or too long
}

// Error returns a text such as: 503 from POST http://host/path: excerpt.
func (e *StatusError) Error() string {
	text := fmt.Sprintf("%d from %s %s", e.Status, e.Method, e.URL)
	if e.Excerpt != "" {
		text += ": " + e.Excerpt
	}
	return text
}

// WithClass sets a class of an error that only the caller of the handler knows, such as connection.
// It keeps the text and wraps err. [ClassOf] finds the class.
func WithClass(class string, err error) error { return &classError{err, class} }

type classError struct {
	error
	class string
}

func (e *classError) Unwrap() error { return e.error }

// ClassDeadline is the class of the error of a handler that had no time left.
const ClassDeadline = "deadline"

// ClassCredentials is the class of the error of a call that has no credentials for its service.
const ClassCredentials = "credentials"

// ClassCertificate is the class of the error of a call whose service has a certificate that the node does not trust.
const ClassCertificate = "certificate"

// ClassOf returns the class of an error for retry and fallback: timeout, the status of a
// [StatusError] such as 503, schema for data that does not match its schema, the class of
// [WithClass], deadline, or other.
func ClassOf(err error) string {
	var status *StatusError
	var timeout interface{ Timeout() bool }
	var told *classError
	var schema *contracts.Error
	var kept *KeptError
	switch {
	case errors.As(err, &kept):
		return kept.Class
	case errors.As(err, &status):
		return strconv.Itoa(status.Status)
	case errors.As(err, &timeout) && timeout.Timeout():
		return "timeout"
	case errors.As(err, &told):
		return told.class
	case errors.As(err, &schema):
		return "schema"
	}
	return "other"
}

// InClass reports whether an error belongs to one of the classes. They may be groups such as 5xx
// and any.
func InClass(err error, classes []string) bool {
	class := ClassOf(err)
	return slices.ContainsFunc(classes, func(c string) bool { return c == "any" || IsOfClass(class, c) })
}

// IsOfClass reports whether a class of [ClassOf] equals wanted or belongs to its group: 4xx, 5xx,
// or status for all statuses.
func IsOfClass(class, wanted string) bool {
	isStatus := class != "" && '0' <= class[0] && class[0] <= '9'
	return class == wanted || isStatus && (wanted == "status" || wanted == class[:1]+"xx")
}

// A KeptError is the error of an item from its checkpoint.
type KeptError struct {
	Text     string
	Class    string
	Status   int
	Failures int
}

// Error implements error.
func (e *KeptError) Error() string { return e.Text }

func (e *afterError) Unwrap() error { return e.error }

// These are the outcomes of a handler.
const (
	OutcomeSucceeded = "succeeded"
	OutcomeFailed    = "failed"
	OutcomeSkipped   = "skipped"
	OutcomeRunning   = "running" // an attempt is in flight
	OutcomeWaiting   = "waiting" // for a time: its own, or that of the retry
	OutcomeUnknown   = "unknown" // an attempt was in flight when the run or its node ended
)
