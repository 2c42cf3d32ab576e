package api

import (
	"net/http"
	"net/http/pprof"
	"strings"

	"github.com/go-chi/chi/v5"

	"procaas/engine/api/rest"
	"procaas/engine/api/transport"
	"procaas/engine/credentials"
)

// A Part is what one address of a server serves. Health is on all addresses.
type Part int

// These are the parts.
const (
	Whole   Part = iota // everything
	Public              // what submitters and workers call, and no other caller
	Metrics             // metrics and health
)

// serves reports whether a part has the route of a request. What no operation is, such as a page, only the whole has.
func (s *server) serves(p Part, r *http.Request) bool {
	if p == Whole {
		return true
	}
	method, path := r.Method, r.URL.RawPath
	if method == http.MethodHead {
		method = http.MethodGet
	}
	if path == "" {
		path = r.URL.Path
	}
	route := chi.NewRouteContext()
	if !s.router.Match(route, method, path) {
		return false
	}
	o := s.routes[method+" "+route.RoutePattern()]
	switch {
	case o == nil:
		return false
	case o.ID == "health" || o.ID == "ready":
		return true
	case p == Metrics:
		return o.ID == "metrics"
	}
	return o.Need.Role == credentials.RoleSubmitter || o.Need.Role == credentials.RoleWorker
}

// only serves a part, and refuses what others have like what does not exist: a caller from outside learns nothing.
func (s *server) only(p Part, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.serves(p, r) {
			next.ServeHTTP(w, r)
			return
		}
		s.access.Serve(s.unknownPath)(w, r)
	})
}

// addProfiles serves profiles of the process to admins. They last as long as the caller wants.
func (s *server) addProfiles() {
	lasts := &rest.Operation{Lasts: func(*http.Request) bool { return true }}
	s.router.Handle("/debug/pprof/*", transport.Within(s.Memory, lasts.Time, s.access.Serve(func(w http.ResponseWriter, r *http.Request) error {
		r, err := s.access.Admit(r, rest.Rules)
		if err != nil {
			return err
		}
		s.access.NoteUse(r, "profile")
		switch strings.TrimPrefix(r.URL.Path, "/debug/pprof/") {
		case "cmdline":
			pprof.Cmdline(w, r)
		case "profile":
			pprof.Profile(w, r)
		case "symbol":
			pprof.Symbol(w, r)
		case "trace":
			pprof.Trace(w, r)
		default:
			pprof.Index(w, r)
		}
		return nil
	})))
}
