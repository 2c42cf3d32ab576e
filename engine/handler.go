package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"syscall"
	"time"

	"procaas/dsl/datum"
	"procaas/dsl/tree"
	"procaas/engine/model"
	"procaas/engine/outbound"
	"procaas/engine/store"
)

// A Handler is one handler type with the values of one call. Each call makes a new one, so it needs
// no locks. It never sees expressions.
type Handler interface {
	// Handle does the work. A nil error means success. [model.Permanent] marks an error that a
	// retry cannot mend, and [model.After] says when to retry. The handler's policy decides about
	// all other errors.
	Handle(ctx context.Context, c *Call) (model.Result, error)
}

// A Call is what a handler may use in addition to its own fields.
type Call struct {
	Path      string      // pipeline/stage/handler
	Run       string      // id of the run, the same for all attempts
	Flow, Key string      // the entity; a pipeline without a flow is a flow of its own
	Event     model.Event // the event that began the run, also inside a called pipeline
	Attempt   int         // 1 for the first
	Again     string      // what the handler asked for when it was called before, see [model.Result].Again

	Timeout  time.Duration // of the handler; the context enforces it. 0 for none
	TimeLeft time.Duration // until the deadline, which the context enforces too. 0 for none

	// IdempotencyKey is the same for all attempts of this call, on every node and after every
	// restart.
	IdempotencyKey string

	// TraceParent and TraceState are the W3C trace context for the services that the handler calls.
	// It is that of this attempt, or of the event when the node does not trace. Both may be empty.
	// The engine adds the context to events in [model.Result].Emit.
	TraceParent, TraceState string

	// Now is the time by the store's clock, which all nodes share. It is the latest possible time,
	// so a wait that starts now is never too short.
	Now    time.Time
	Bundle *tree.Bundle // has the services
	Node   int64        // the node that makes the call, a fencing token for writes to Documents

	// Documents stores data of handler types that is not part of a run.
	Documents store.Documents

	// RunStatus returns the status of a run of any pipeline. The error is [store.ErrNotFound] when
	// the history no longer has the run. RunStatus is nil in tests of pipelines.
	RunStatus func(ctx context.Context, run string) (model.Status, error)

	// Memory keeps data that may be forgotten at any time.
	Memory *Memory

	HTTP *http.Client // shared; its transport dials only what [outbound.Reach] allows

	// Secured are the clients for requests that name a service with tls, by its id. Nil in tests of pipelines.
	Secured map[string]*http.Client

	Log *slog.Logger // with the keys path, run, key and attempt
	// Resolve looks up a secret at the time of the call. The engine keeps the secret out of the
	// result and the error.
	Resolve func(datum.Secret) (string, error)
	// Authorization returns the header Authorization for requests to a service, or "" for none. refused is the
	// one that the service has just answered with 401, or "" at first: then it returns another one, or "". The engine keeps
	// it out of the result and the error. Authorization is nil in tests of pipelines, which need no credentials.
	Authorization func(ctx context.Context, s *tree.Service, refused string) (string, error)
	// Hide removes the secrets that Resolve returned. A handler needs it only for a result or an
	// error that it shortens.
	Hide     func(text string) string
	MaxReply int64 // bound of a response body in bytes, unless the handler sets its own

	// Reserve sets the bytes of memory that the reply of the call takes, and waits until the node has as
	// many. The time of the call is stopped meanwhile. With most, the number is the most that a reply
	// may take that is not read yet: if the run may never have as many, it gets what it may have. Reserve
	// is nil if there is no bound.
	Reserve func(ctx context.Context, bytes int, most bool) error

	// Sent counts bytes that the call sends, for its costs. Sent is nil in tests of pipelines.
	Sent func(bytes int64)
}

// ErrNoNode reports that a handler needs connections which only a node has. In a test of pipelines, a mock must answer its call.
var ErrNoNode = errors.New("no node runs here")

// WithoutNode returns the error of a handler that a command calls which connects to no peers, such as "databases". It wraps
// [ErrNoNode], and no retry can mend it.
func WithoutNode(peers string) error {
	return model.Permanent(fmt.Errorf("%w, and only a node connects to %s: use procaas dev or serve and submit the event, "+
		"or write a test with a mock for procaas test", ErrNoNode, peers))
}

// Classify adds the class of a network error to an error of a handler. See [model.ClassOf].
func Classify(err error) error {
	if err == nil {
		return nil
	}
	var refused *outbound.CertificateError
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return model.WithClass("timeout", err)
	case errors.As(err, &refused):
		if refused.Ours {
			return model.WithClass(model.ClassCredentials, err)
		}
		return model.WithClass(model.ClassCertificate, err)
	case isConnection(err):
		return model.WithClass("connection", err)
	}
	return err
}

// isConnection reports whether err means that a peer could not be reached or hung up. [net.Error]
// would be too wide: every [url.Error] is one.
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
