package engine

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"syscall"
	"time"

	"procaas/dsl/datum"
	"procaas/dsl/tree"
	"procaas/engine/model"
	"procaas/engine/store"
)

// A Handler is one handler type, filled with the values of one call. It is
// made anew for each call, so it needs no locks and never sees expressions.
type Handler interface {
	// Handle does the work. A nil error is success; [model.Permanent] says that
	// repeating is useless, [model.After] when to repeat, and any other error is
	// repeated by the handler's policy.
	Handle(ctx context.Context, c *Call) (model.Result, error)
}

// A Call is what a handler may use besides its own fields.
type Call struct {
	Path      string      // pipeline/stage/handler
	Run       string      // its id, the same for all attempts
	Flow, Key string      // the entity; a pipeline without a flow is a flow of its own
	Event     model.Event // that began the run, also inside of a called pipeline
	Attempt   int         // 1 for the first

	Timeout  time.Duration // of the handler, which the context keeps; 0 when it has none
	TimeLeft time.Duration // until the deadline, which the context keeps, too; 0 when there is none

	// IdempotencyKey is the same for all attempts of this call, on any node
	// and after any restart.
	IdempotencyKey string

	// TraceParent and TraceState are the W3C trace context to send to those whom
	// the handler calls: that of this attempt, or of the event while nothing is
	// traced here; may be empty. Events of [model.Result].Emit get it by themselves.
	TraceParent, TraceState string

	Now     time.Time    // by the store's clock, which all nodes share; the latest that it may be, so that what waits from now on never waits too short
	Bundle  *tree.Bundle // for services
	Workers *http.Client // reaches the workers of the definition's clusters, and who knows them
	Node    int64        // that makes the call; it fences what is written to Documents

	// Documents stores data of handler types that is not part of a run.
	Documents store.Documents

	// RunStatus tells how far a run is, of any pipeline; [store.ErrNotFound] when the history has
	// it no more. It is nil in tests of pipelines.
	RunStatus func(ctx context.Context, run string) (model.Status, error)

	// Memory holds what may be forgotten at any time.
	Memory *Memory

	HTTP     *http.Client                       // shared; its transport dials only what [outbound.Reach] allows
	Log      *slog.Logger                       // with the keys path, run, key and attempt
	Resolve  func(datum.Secret) (string, error) // looks a secret up at the time of the call; what it gives is kept out of the result and the error
	Hide     func(text string) string           // takes out what Resolve has given; the result and the error need it only before they are cut short
	MaxReply int64                              // bound of a response body that sets none itself; bytes
}

// Classify gives what a handler has returned the class that only the network tells; see
// [model.ClassOf].
func Classify(err error) error {
	switch {
	case err == nil:
	case errors.Is(err, context.DeadlineExceeded):
		return model.WithClass("timeout", err)
	case isConnection(err):
		return model.WithClass("connection", err)
	}
	return err
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
