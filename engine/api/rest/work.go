package rest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"procaas/engine/budget"
	"procaas/engine/credentials"
)

// A Work is the work for one request, and the context of that request. It bounds the time, without the
// time in which the body comes. It also has what the server knows of the request, so that this needs no
// contexts of its own.
type Work struct {
	context.Context // of the connection

	bounded context.Context         // a child of it, which ends when the work takes too long; the same without a bound
	cancel  context.CancelCauseFunc // of bounded; nil without a bound
	timer   *time.Timer             // nil without a bound
	most    time.Duration           // 0 for no bound

	body    io.ReadCloser     // of the request, as it was
	request *http.Request     // the request with this context
	memory  *budget.Holder    // what the request holds; nil for no bound
	grant   credentials.Grant // of the caller, once it is admitted
	granted bool
}

// Begin begins the work for a request, which may take a time, or any time if that is 0. The request may hold memory
// until it ends: the bodies of all requests must fit into memory, however many clients there are. The caller serves
// the returned request, and then calls End.
func Begin(r *http.Request, most time.Duration, m *budget.Memory) (*Work, *http.Request) {
	w := &Work{Context: r.Context(), bounded: r.Context(), most: most}
	if most > 0 {
		w.bounded, w.cancel = context.WithCancelCause(w.Context)
		w.timer = time.AfterFunc(most, func() { w.cancel(context.DeadlineExceeded) })
	}
	w.request = r.WithContext(w)
	if r.ContentLength != 0 {
		w.memory = m.Hold(budget.Requests)
		if most > 0 && r.Body != nil {
			w.body, w.request.Body = r.Body, (*arrival)(w)
		}
	}
	return w, w.request
}

// End ends the work.
func (w *Work) End() {
	if w.timer != nil {
		w.timer.Stop()
		w.cancel(context.Canceled)
	}
	w.memory.Close()
}

// Done implements [context.Context].
func (w *Work) Done() <-chan struct{} { return w.bounded.Done() }

// Err implements [context.Context].
func (w *Work) Err() error {
	if err := w.bounded.Err(); err == nil || !errors.Is(context.Cause(w.bounded), context.DeadlineExceeded) {
		return err
	}
	return context.DeadlineExceeded
}

// AfterFunc lets contexts below this one end with it, as [context.AfterFunc] has it.
func (w *Work) AfterFunc(f func()) func() bool { return context.AfterFunc(w.bounded, f) }

// These find what a [Work] knows in a context.
type (
	grantKey  struct{}
	memoryKey struct{}
)

// Value implements [context.Context].
func (w *Work) Value(key any) any {
	switch key.(type) {
	case grantKey:
		if w.granted {
			return &w.grant
		}
	case memoryKey:
		if w.memory != nil {
			return w.memory
		}
	}
	return w.Context.Value(key)
}

// WithGrant returns the request with its caller's grant.
func WithGrant(r *http.Request, g credentials.Grant) *http.Request {
	if w, ok := r.Context().(*Work); ok && w.request == r && !w.granted {
		w.grant, w.granted = g, true
		return r
	}
	own := g
	return r.WithContext(context.WithValue(r.Context(), grantKey{}, &own))
}

// Granted returns the grant of a request's caller. It is the zero one, which allows nothing, if the
// call needs none.
func Granted(r *http.Request) credentials.Grant {
	if g, ok := r.Context().Value(grantKey{}).(*credentials.Grant); ok {
		return *g
	}
	return credentials.Grant{}
}

// An arrival is the body of a request. The time of the work stands still while the body comes.
type arrival Work

// Read implements [io.Reader].
func (a *arrival) Read(p []byte) (int, error) {
	a.timer.Stop()
	n, err := a.body.Read(p)
	a.timer.Reset(a.most)
	return n, err
}

// Close implements [io.Closer].
func (a *arrival) Close() error { return a.body.Close() }
