package transport

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync/atomic"
	"time"

	"procaas/engine/api/access"
	"procaas/engine/api/problem"
	"procaas/engine/api/queues"
	"procaas/engine/api/rest"
	"procaas/engine/store"
)

// A Middleware is what every request meets before a route does.
type Middleware struct {
	Access  *access.Checker
	Log     *slog.Logger
	Healthy func(ctx context.Context) error // tells why the node cannot work
	MaxBody int64                           // of a request, in bytes

	// Quickly answers what needs no route; see [shards.Group.Quickly].
	Quickly func(next http.Handler) http.Handler

	bodies atomic.Int64 // bytes of requests under way
}

// Wrap puts it before the routes. Each of the list wraps those before it, so a request
// meets the last one first: the log sees every reply, also those to panics, and a body is counted
// only when nothing else has refused the request.
func (f *Middleware) Wrap(h http.Handler) http.Handler {
	for _, wrap := range []func(http.Handler) http.Handler{
		f.boundBodies, f.refuseLost, f.withDeadline, f.refuseCrossOrigin, f.refuseChunked, f.Quickly, f.withHeaders, f.recovered, f.logged,
	} {
		h = wrap(h)
	}
	return h
}

// withDeadline ends the work for a request, unless the call waits for news.
func (f *Middleware) withDeadline(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if rest.Lasts(r) { // it has deadlines of its own
			next.ServeHTTP(w, r)
			return
		}
		most := rest.RequestTime
		if r.URL.Path == queues.ClaimPath { // it may wait, and moves the server's own deadlines then
			most += queues.MaxClaimWait
		}
		if rest.Waits(r) { // so may this
			most += rest.MaxWait
		}
		ctx, cancel := newWorkTime(r.Context(), most)
		defer cancel()
		r = r.WithContext(ctx)
		if r.ContentLength != 0 && r.Body != nil {
			r.Body = ctx.outside(r.Body)
		}
		next.ServeHTTP(w, r)
	})
}

// refuseLost keeps everybody from writing to a store that has lost what it acknowledged, by
// whichever call: what is built on it would be lost, or wrong, when the right one is back.
func (f *Middleware) refuseLost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			if err := f.Healthy(r.Context()); errors.Is(err, store.ErrLost) {
				f.Access.Refuse(w, r, problem.Of(err))
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// refuseCrossOrigin keeps pages of other sites from writing with the help of a
// visitor's browser, which may reach what the site itself may not.
func (f *Middleware) refuseCrossOrigin(next http.Handler) http.Handler {
	p := http.NewCrossOriginProtection()
	p.SetDenyHandler(f.Access.Serve(func(http.ResponseWriter, *http.Request) error {
		return problem.New(problem.CrossOrigin, "a browser sent this request for a page of another site; send it from the same site or "+
			"without a browser")
	}))
	return p.Handler(next)
}

// refuseChunked wants every body announced by its length. A request with both
// a length and chunks is what smuggling is made of, and net/http hides the
// length of such a request: only the chunks can be seen here.
func (f *Middleware) refuseChunked(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TransferEncoding) == 0 {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Connection", "close")
		f.Access.Refuse(w, r, problem.New(problem.LengthRequired, "the body comes in chunks; send it with a Content-Length"))
	})
}

// Values of headers that all replies share: nobody may change them in place.
var (
	noSniff = []string{"nosniff"}
	noStore = []string{"no-store"}
)

// withHeaders sets what all replies have: no cache keeps them, since they hold what callers
// with other tokens may not see, and no browser takes JSON for a page.
func (f *Middleware) withHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h["X-Content-Type-Options"], h["Cache-Control"] = noSniff, noStore
		next.ServeHTTP(w, r)
	})
}

// recovered turns a panic into a reply, so that one bad request is one bad
// request.
func (f *Middleware) recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(p) // how a handler cuts a connection on purpose
			}
			f.Log.Error("request panicked", "method", r.Method, "url_path", r.URL.Path, "panic", p, "stack", string(debug.Stack()))
			f.Access.Refuse(w, r, problem.New(problem.Internal, "the request met a defect of the program; it is logged"))
		}()
		next.ServeHTTP(w, r)
	})
}

// logged writes one line for each request, at debug. Neither query nor headers
// are in it: they may hold what should not be kept.
func (f *Middleware) logged(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !f.Log.Enabled(r.Context(), slog.LevelDebug) {
			next.ServeHTTP(w, r)
			return
		}
		start, seen := time.Now(), &StatusWriter{ResponseWriter: w, status: http.StatusOK}
		next.ServeHTTP(seen, r)
		f.Log.Debug("request", "method", r.Method, "url_path", r.URL.Path,
			"status", seen.status, "bytes", seen.bytes, "seconds", time.Since(start).Seconds())
	})
}

// A StatusWriter remembers what was replied.
type StatusWriter struct {
	http.ResponseWriter
	Wrote  bool // anything was replied
	status int
	bytes  int
}

// WriteHeader implements [http.ResponseWriter].
func (w *StatusWriter) WriteHeader(status int) {
	if !w.Wrote && (status >= http.StatusOK || status == http.StatusSwitchingProtocols) { // others only announce one
		w.status, w.Wrote = status, true
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements [http.ResponseWriter].
func (w *StatusWriter) Write(p []byte) (int, error) {
	w.Wrote = true
	n, err := w.ResponseWriter.Write(p)
	w.bytes += n
	return n, err
}

// Unwrap lets an [http.ResponseController] reach the connection.
func (w *StatusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
