package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"syscall"
	"time"

	"procaas/dsl"
)

// A Handler is one handler type, filled with the values of one call. It is
// made anew for each call, so it needs no locks and never sees expressions.
type Handler interface {
	// Handle does the work. A nil error is success; [Permanent] says that
	// repeating is useless, [After] when to repeat, and any other error is
	// repeated by the handler's policy.
	Handle(ctx context.Context, c *Call) (Result, error)
}

// A Call is what a handler may use besides its own fields.
type Call struct {
	Path      string // pipeline/stage/handler
	Run       string // its id, the same for all attempts
	Flow, Key string // the entity; a pipeline without a flow is a flow of its own
	Event     Event  // that began the run, also inside of a called pipeline
	Attempt   int    // 1 for the first

	// IdempotencyKey is the same for all attempts of this call, on any node
	// and after any restart.
	IdempotencyKey string

	// TraceParent and TraceState are the W3C trace context to send to those whom
	// the handler calls: that of this attempt, or of the event while nothing is
	// traced here; may be empty. Events of [Result].Emit get it by themselves.
	TraceParent, TraceState string

	Now     time.Time    // by the store's clock, which all nodes share; the latest that it may be, so that what waits from now on never waits too short
	Bundle  *dsl.Bundle  // for services
	Workers *http.Client // reaches the workers of the definition's clusters, and who knows them
	Node    int64        // that makes the call; it fences what is written to Documents

	// Documents keeps what is no run.
	Documents Documents

	// RunStatus tells how far a run is, of any pipeline; [ErrNotFound] when the history has
	// it no more. It is nil in tests of pipelines.
	RunStatus func(ctx context.Context, run string) (Status, error)

	// Memory holds what may be forgotten at any time.
	Memory *Memory

	HTTP     *http.Client                     // shared; its transport dials only what [Reach] allows
	Log      *slog.Logger                     // with the keys path, run, key and attempt
	Resolve  func(dsl.Secret) (string, error) // looks a secret up at the time of the call; what it gives is kept out of the result and the error
	Hide     func(text string) string         // takes out what Resolve has given; the result and the error need it only before they are cut short
	MaxReply int64                            // bound of a response body that sets none itself; bytes
}

// A Result is what a successful call gave.
type Result struct {
	// Response is what expressions read as sources.HANDLER.response: data as
	// in [Event.Payload].
	Response any

	// Status is what expressions read as sources.HANDLER.status; 0 for none,
	// which they read as null.
	Status int

	// Emit lists events to accept in the same transaction as this outcome.
	Emit []Event

	// Until parks the run: the handler counts as done at this time, and the
	// call is not repeated. At once when zero.
	Until time.Time
}

// Permanent wraps an error that repeating cannot mend.
func Permanent(err error) error { return &permanentError{err} }

type permanentError struct{ error }

func (e *permanentError) Unwrap() error { return e.error }

// IsPermanent tells whether err, or an error that it wraps, is [Permanent].
func IsPermanent(err error) bool {
	var p *permanentError
	return errors.As(err, &p)
}

// After wraps an error with the time to wait before the next attempt, as a
// Retry-After header tells it. It counts as an attempt.
func After(d time.Duration, err error) error { return &afterError{err, d} }

type afterError struct {
	error
	delay time.Duration
}

func (e *afterError) Unwrap() error { return e.error }

// RetryDelay gives the delay of an [After] error; ok is false for others.
func RetryDelay(err error) (d time.Duration, ok bool) {
	var a *afterError
	if errors.As(err, &a) {
		return a.delay, true
	}
	return 0, false
}

// A StatusError is an HTTP reply that was not expected. Its class for retry is
// the status itself and 4xx or 5xx.
type StatusError struct {
	Status  int    // of HTTP
	Method  string // of the request
	URL     string // of the request
	Excerpt string // the beginning of the body, for people; secrets removed
	Body    any    // data as in [Event.Payload] of a body in JSON that is not too long; null otherwise
}

// Error implements error: 503 from POST http://host/path: excerpt.
func (e *StatusError) Error() string {
	text := fmt.Sprintf("%d from %s %s", e.Status, e.Method, e.URL)
	if e.Excerpt != "" {
		text += ": " + e.Excerpt
	}
	return text
}

// ClassOf gives the class of an error for retry and fallback: timeout,
// connection, the status of a [StatusError] such as 503, schema for data that does
// not fit its schema, or other.
func ClassOf(err error) string {
	var status *StatusError
	var timeout interface{ Timeout() bool }
	var schema *dsl.ContractError
	var kept *keptError
	switch {
	case errors.As(err, &kept):
		return kept.class
	case errors.As(err, &status):
		return strconv.Itoa(status.Status)
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "timeout"
	case isConnection(err):
		return "connection"
	case errors.As(err, &schema):
		return "schema"
	}
	return "other"
}

// isConnection tells whether err says that a peer could not be reached or hung
// up. [net.Error] would be too wide: it takes in every [url.Error].
func isConnection(err error) bool {
	var op *net.OpError
	var dns *net.DNSError
	if errors.As(err, &op) || errors.As(err, &dns) {
		return true
	}
	for _, known := range []error{
		io.EOF, io.ErrUnexpectedEOF, net.ErrClosed,
		syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EPIPE,
	} {
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}

// InClass tells whether an error belongs to one of the classes, which may be
// groups of statuses, such as 5xx, and any.
func InClass(err error, classes []string) bool {
	class := ClassOf(err)
	return slices.ContainsFunc(classes, func(c string) bool { return c == "any" || IsOfClass(class, c) })
}

// IsOfClass tells whether a class of [ClassOf] is wanted, or belongs to a group
// that is: 4xx, 5xx, or status for all statuses.
func IsOfClass(class, wanted string) bool {
	isStatus := class != "" && '0' <= class[0] && class[0] <= '9'
	return class == wanted || isStatus && (wanted == "status" || wanted == class[:1]+"xx")
}
