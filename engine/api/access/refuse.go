package access

import (
	"context"
	"errors"
	"maps"
	"net/http"

	"procaas/engine/api/problem"
	"procaas/engine/api/rest"
	"procaas/engine/clock"
)

// Refuse writes a problem. It logs unexpected errors, including what the caller must not see. It
// writes even if the caller seems to have gone: one that has closed only its own half still reads,
// and net/http would send 200.
func (d *Checker) Refuse(w http.ResponseWriter, r *http.Request, err error) {
	p := problem.Of(err)
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		p = problem.OfRead(err)
	}
	switch {
	// metrics count these
	case errors.As(err, new(*problem.Problem)), errors.Is(err, clock.ErrTooLong), p.Code == problem.Overloaded:
	case errors.Is(r.Context().Err(), context.Canceled):
		p = problem.New(problem.ClientLeft, "the caller closed the connection, or its half of it, before the answer; "+
			"it is unknown whether the call took effect, so repeat it with the same ids").With("Connection", "close")
	default:
		d.log.Error("request failed", "method", r.Method, "url_path", r.URL.Path, "code", p.Code, "error", err)
	}
	d.noteRefusal(r, p)
	maps.Copy(w.Header(), p.Header)
	rest.WriteAs(w, p.Status, rest.MediaProblem, p)
}

// Serve makes a handler from a function that may return an error.
func (d *Checker) Serve(f func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := f(w, r); err != nil {
			d.Refuse(w, r, err)
		}
	}
}
