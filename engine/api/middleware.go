package api

import (
	"errors"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"procaas/engine"
	"procaas/engine/api/ui"
)

// requestTime bounds the work for one request, from when its body has come. It is shorter
// than the server's write timeout, so that a store that hangs is a reply and not a cut
// connection.
const requestTime = 8 * time.Second

// withDeadline ends the work for a request, unless the call waits for news.
func (s *server) withDeadline(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == ui.LivePath || lasting(r) { // they last, and have deadlines of their own
			next.ServeHTTP(w, r)
			return
		}
		most := requestTime
		if r.URL.Path == claimPath { // it may wait, and moves the server's own deadlines then
			most += maxClaimWait
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
func (s *server) refuseLost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			if err := s.engine.Healthy(r.Context()); errors.Is(err, engine.ErrStoreLost) {
				s.refuse(w, r, problemOf(err))
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// refuseCrossOrigin keeps pages of other sites from writing with the help of a
// visitor's browser, which may reach what the site itself may not.
func (s *server) refuseCrossOrigin(next http.Handler) http.Handler {
	p := http.NewCrossOriginProtection()
	p.SetDenyHandler(s.serve(func(http.ResponseWriter, *http.Request) error {
		return refuse(codeCrossOrigin, "a browser sent this request for a page of another site; send it from the same site or without a browser")
	}))
	return p.Handler(next)
}

// refuseChunked wants every body announced by its length. A request with both
// a length and chunks is what smuggling is made of, and net/http hides the
// length of such a request: only the chunks can be seen here.
func (s *server) refuseChunked(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TransferEncoding) == 0 {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Connection", "close")
		s.refuse(w, r, refuse(codeLengthRequired, "the body comes in chunks; send it with a Content-Length"))
	})
}

// Values of headers that all replies share: nobody may change them in place.
var (
	noSniff  = []string{"nosniff"}
	noStore  = []string{"no-store"}
	typeJSON = []string{mediaJSON}
)

// withHeaders sets what all replies have: no cache keeps them, since they hold what callers
// with other tokens may not see, and no browser takes JSON for a page.
func (s *server) withHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h["X-Content-Type-Options"], h["Cache-Control"] = noSniff, noStore
		next.ServeHTTP(w, r)
	})
}

// recovered turns a panic into a reply, so that one bad request is one bad
// request.
func (s *server) recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if p == http.ErrAbortHandler {
				panic(p) // how a handler cuts a connection on purpose
			}
			s.log.Error("request panicked", "method", r.Method, "url_path", r.URL.Path, "panic", p, "stack", string(debug.Stack()))
			s.refuse(w, r, refuse(codeInternal, "the request met a defect of the program; it is logged"))
		}()
		next.ServeHTTP(w, r)
	})
}

// logged writes one line for each request, at debug. Neither query nor headers
// are in it: they may hold what should not be kept.
func (s *server) logged(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.log.Enabled(r.Context(), slog.LevelDebug) {
			next.ServeHTTP(w, r)
			return
		}
		start, seen := time.Now(), &statusWriter{ResponseWriter: w, status: http.StatusOK}
		next.ServeHTTP(seen, r)
		s.log.Debug("request", "method", r.Method, "url_path", r.URL.Path,
			"status", seen.status, "bytes", seen.bytes, "seconds", time.Since(start).Seconds())
	})
}

// A statusWriter remembers what was replied.
type statusWriter struct {
	http.ResponseWriter
	status int
	bytes  int
	wrote  bool
}

// WriteHeader implements [http.ResponseWriter].
func (w *statusWriter) WriteHeader(status int) {
	if !w.wrote && (status >= http.StatusOK || status == http.StatusSwitchingProtocols) { // others only announce one
		w.status, w.wrote = status, true
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements [http.ResponseWriter].
func (w *statusWriter) Write(p []byte) (int, error) {
	w.wrote = true
	n, err := w.ResponseWriter.Write(p)
	w.bytes += n
	return n, err
}

// Unwrap lets an [http.ResponseController] reach the connection.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// unknownPath is served where no route is.
func (s *server) unknownPath(_ http.ResponseWriter, r *http.Request) error {
	return refuse(codeUnknownPath, "there is nothing at %s; /openapi.json lists all calls", r.URL.Path)
}

// unknownMethod is served where there are routes, but none of that method. The router knows
// them by the path as it was sent, in which keys may hold escaped slashes.
func (s *server) unknownMethod(_ http.ResponseWriter, r *http.Request) error {
	path := r.URL.RawPath
	if path == "" {
		path = r.URL.Path
	}
	var allowed []string
	for _, m := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		if !s.router.Match(chi.NewRouteContext(), m, path) {
			continue
		}
		allowed = append(allowed, m)
		if m == http.MethodGet {
			allowed = append(allowed, http.MethodHead)
		}
	}
	if len(allowed) == 0 {
		return s.unknownPath(nil, r)
	}
	list := strings.Join(allowed, ", ")
	return refuse(codeUnknownMethod, "%s takes %s, not %s", r.URL.Path, list, r.Method).with("Allow", list)
}
