package transport

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"procaas/engine/api/access"
	"procaas/engine/api/problem"
	"procaas/engine/store"
)

// A Middleware handles every request before its route.
type Middleware struct {
	Access  *access.Checker
	Log     *slog.Logger
	Healthy func(ctx context.Context) error // returns why the node cannot work

	// Quickly answers what needs no route; see [rest.Operation].
	Quickly func(next http.Handler) http.Handler
}

// Wrap puts the middleware in front of the routes. Each one wraps those before it, so a request
// meets the last one first. So the log sees every reply, also after panics.
func (f *Middleware) Wrap(h http.Handler) http.Handler {
	for _, wrap := range []func(http.Handler) http.Handler{
		f.refuseLost, f.refuseCrossOrigin, f.refuseChunked, f.Quickly, f.withHeaders, f.recovered, f.logged,
	} {
		h = wrap(h)
	}
	return h
}

// refuseLost refuses all writes to a store that has lost what it acknowledged. Data based on it
// would be lost or wrong when the right store is back.
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

// refuseCrossOrigin keeps pages of other sites from writing through a visitor's browser, which may
// reach more than the site itself.
func (f *Middleware) refuseCrossOrigin(next http.Handler) http.Handler {
	p := http.NewCrossOriginProtection()
	p.SetDenyHandler(f.Access.Serve(func(http.ResponseWriter, *http.Request) error {
		return problem.New(problem.CrossOrigin, "a browser sent this request for a page of another site; send it from the same site or "+
			"without a browser")
	}))
	return p.Handler(next)
}

// refuseChunked requires that every body announces its length. Requests with both a length and
// chunks are a way of smuggling, and net/http hides the length of such a request: only the chunks
// are visible here.
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

// Header values that all replies share: do not change them in place.
var (
	noSniff = []string{"nosniff"}
	noStore = []string{"no-store"}
	onlyTLS = []string{"max-age=31536000"} // a year
)

// withHeaders sets the headers of all replies. No cache may keep them, because callers with other
// tokens may not see them, and no browser may take JSON for a page. Over TLS, browsers are told never to come without it again.
func (f *Middleware) withHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h["X-Content-Type-Options"], h["Cache-Control"] = noSniff, noStore
		if r.TLS != nil {
			h["Strict-Transport-Security"] = onlyTLS
		}
		next.ServeHTTP(w, r)
	})
}

// recovered turns a panic into a reply.
func (f *Middleware) recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(p) // a handler's way to cut a connection
			}
			f.Log.Error("request panicked", "method", r.Method, "url_path", r.URL.Path, "panic", p, "stack", string(debug.Stack()))
			f.Access.Refuse(w, r, problem.New(problem.Internal, "the request met a defect of the program; it is logged"))
		}()
		next.ServeHTTP(w, r)
	})
}

// logged logs each request in one line at debug, without query and headers, which may be
// confidential.
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

// A StatusWriter remembers the reply's status.
type StatusWriter struct {
	http.ResponseWriter
	Wrote  bool // a reply was sent
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
