package api

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"net/url"
	"strings"

	dto "github.com/prometheus/client_model/go"

	"procaas/engine"
	"procaas/engine/api/ui"
)

// newConsole makes the pages for people.
func (s *server) newConsole() *ui.Console {
	o := ui.Options{
		Engine: s.engine, Log: s.log, Version: s.version, Numbers: s.numbers, Play: s.play, Caller: granted,
		SignIn: s.signIn, SignOut: s.signOut,
	}
	if s.tasks != nil {
		o.Tasks = s.tasks
	}
	if s.shards != nil {
		o.Shards = s.shards
	}
	if s.inbox != nil {
		o.Inbox = s.inbox
	}
	if clusters, ok := s.engine.(ui.Clusters); ok {
		o.Clusters = clusters
	}
	if transfers, ok := s.engine.(ui.Transfers); ok {
		o.Transfers = transfers
	}
	return ui.New(o)
}

// serveConsole lets people in by the cookie of the sign-in page, or sends them there.
func (s *server) serveConsole(w http.ResponseWriter, r *http.Request) error {
	if ui.Public(r.URL.Path) {
		s.console.ServeHTTP(w, r)
		return nil
	}
	if c, err := r.Cookie(sessionCookie); err == nil && r.Header.Get("Authorization") == "" {
		r = r.WithContext(context.WithValue(r.Context(), sessionKey{}, c.Value))
	}
	admitted, err := s.admit(r, views)
	var p *Problem
	if errors.As(err, &p) && p.Status == http.StatusUnauthorized {
		next := "/" // after a form, or the live stream, there is no page to go back to
		if r.Method == http.MethodGet && r.URL.Path != ui.LivePath {
			next = r.URL.RequestURI()
		}
		http.Redirect(w, r, ui.SignInPage+"?next="+url.QueryEscape(next), http.StatusSeeOther)
		return nil
	}
	if err != nil {
		return err
	}
	if r.URL.Path == ui.LivePath {
		var release func()
		admitted, release = s.whileAdmitted(admitted, views)
		defer release()
	}
	s.console.ServeHTTP(w, admitted)
	return nil
}

// sessionCookie keeps the session of who has signed in, which is no token: it opens the
// console alone, and ends. Scripts cannot read it, and browsers send it to no other site,
// nor for pages of one.
const sessionCookie = "procaas_session"

// setSession keeps a session in the browser, or takes it away when it is empty.
func setSession(w http.ResponseWriter, r *http.Request, session string) {
	c := &http.Cookie{
		Name: sessionCookie, Value: session, Path: "/", HttpOnly: true, Secure: encrypted(r), SameSite: http.SameSiteStrictMode,
		MaxAge: int(engine.SessionTime.Seconds()),
	}
	if session == "" {
		c.MaxAge = -1
	}
	http.SetCookie(w, c)
}

// encrypted tells whether the browser came over TLS, also by a proxy that ends it. Whoever
// claims that falsely gets a cookie which its browser sends less often, and nothing else.
func encrypted(r *http.Request) bool {
	return r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https")
}

// errToken refuses what cannot be a token.
var errToken = errors.New("This is no token of this server, or it has expired.") //nolint:staticcheck // shown to people as it is

// signIn checks a token and opens a session for its bearer.
func (s *server) signIn(w http.ResponseWriter, r *http.Request, token string) error {
	if token == "" || strings.ContainsFunc(token, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return errToken
	}
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token)
	admitted, err := s.admit(r, views)
	var p *Problem
	switch {
	case errors.As(err, &p) && p.Status == http.StatusUnauthorized:
		return errToken
	case err != nil:
		return err
	}
	session, err := s.engine.OpenSession(r.Context(), granted(admitted).Name, sha256.Sum256([]byte(token)))
	if err != nil {
		return err
	}
	setSession(w, r, session)
	return nil
}

// signOut ends the session, so that nobody can use it who has kept the cookie. The browser
// forgets it in any case.
func (s *server) signOut(w http.ResponseWriter, r *http.Request) error {
	setSession(w, r, "")
	if c, err := r.Cookie(sessionCookie); err == nil {
		return s.engine.CloseSession(r.Context(), c.Value)
	}
	return nil
}

// numbers reads what the console shows of the metrics.
func (s *server) numbers() ui.Numbers {
	n := ui.Numbers{Runs: map[string]float64{}}
	families, err := s.metrics.Gather()
	if err != nil {
		s.log.Debug("metrics cannot be read as a whole", "error", err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			switch f.GetName() {
			case "procaas_events_accepted_total":
				n.Accepted += m.GetCounter().GetValue()
			case "procaas_runs_total":
				n.Runs[label(m, "status")] += m.GetCounter().GetValue()
			case "procaas_inbox_waiting":
				n.Waiting = m.GetGauge().GetValue()
			case "procaas_inbox_oldest_seconds":
				n.Oldest = m.GetGauge().GetValue()
			}
		}
	}
	return n
}

// label gives the value of a label of a metric; empty when it has none of that name.
func label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}
