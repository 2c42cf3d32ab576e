package api

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"

	"github.com/go-chi/chi/v5"

	"procaas/engine/api/access"
	"procaas/engine/api/intake"
	"procaas/engine/api/problem"
	"procaas/engine/api/rest"
	"procaas/engine/api/ui"
	"procaas/engine/credentials"
)

// newConsole makes the pages for people.
func (s *server) newConsole() *ui.Console {
	o := ui.Options{
		Engine: s.Engine.Console, Log: s.Log, Version: s.Version, Dev: s.Dev, Play: s.Play, Caller: rest.Granted,
		Documents: s.Documents, TraceURL: s.TraceURL, SignIn: s.access.SignIn, SignOut: s.access.SignOut, Entrances: s.access.Entrances, Submit: s.submit,
		NoteRefusal: s.access.NoteRefusal, Pages: s.Pages, Files: s.Files,
	}
	return ui.New(o)
}

// serveConsole admits people by the cookie of the sign-in page, or redirects them there.
func (s *server) serveConsole(w http.ResponseWriter, r *http.Request) error {
	if ui.Public(r.URL.Path) {
		s.console.ServeHTTP(w, r)
		return nil
	}
	r = access.WithSession(r)
	path := r.URL.Path
	admitted, err := s.access.AdmitToConsole(r, path == "/" || path == ui.SubmitPage || path == ui.SignOutPage)
	var p *problem.Problem
	if errors.As(err, &p) && p.Status == http.StatusUnauthorized {
		next := "/" // there is no page to go back to after a form
		if r.Method == http.MethodGet {
			next = r.URL.RequestURI()
		}
		http.Redirect(w, r, ui.SignInPage+"?next="+url.QueryEscape(next), http.StatusSeeOther)
		return nil
	}
	if err != nil {
		return err
	}
	if path == "/" && !rest.Granted(admitted).Has(credentials.RoleViewer) {
		http.Redirect(w, r, ui.SubmitPage, http.StatusSeeOther)
		return nil
	}
	if admitted.ContentLength != 0 {
		admitted.Body = rest.Counted(admitted)
	}
	s.access.NoteUse(admitted, "page")
	s.tabs.ServeHTTP(w, admitted)
	return nil
}

// submit submits an event from a form through the route for all events, so that the same checks and
// counts apply.
func (s *server) submit(r *http.Request, event []byte) (status int, reply []byte) {
	r = r.Clone(intake.FromConsole(context.WithValue(r.Context(), chi.RouteCtxKey, chi.NewRouteContext())))
	r.Method, r.URL, r.RequestURI = http.MethodPost, &url.URL{Path: "/v1/events"}, "/v1/events"
	r.Header.Set("Content-Type", rest.MediaJSON)
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(event)), int64(len(event))
	a := answer{header: http.Header{}, status: http.StatusOK}
	s.router.ServeHTTP(&a, r)
	return a.status, a.body.Bytes()
}

// An answer records the reply of a route.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header                  { return a.header }
func (a *answer) WriteHeader(status int)               { a.status = status }
func (a *answer) Write(data []byte) (n int, err error) { return a.body.Write(data) }
