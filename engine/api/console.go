package api

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"

	"procaas/engine/api/ui"
)

// newConsole makes the pages for people.
func (s *server) newConsole() *ui.Console {
	o := ui.Options{
		Engine: s.engine, Log: s.log, Version: s.version, Numbers: s.numbers, Play: s.play, Caller: granted,
		SignIn: s.signIn, SignOut: func(w http.ResponseWriter, r *http.Request) { setToken(w, r, "") },
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
	if c, err := r.Cookie(tokenCookie); err == nil && r.Header.Get("Authorization") == "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+c.Value)
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
	s.console.ServeHTTP(w, admitted)
	return nil
}

// tokenCookie keeps the token of who has signed in. Scripts cannot read it, and
// browsers send it to no other site, nor for pages of one.
const tokenCookie = "procaas_token"

// setToken keeps a token in the browser for 12 hours, or takes it away when it is empty.
func setToken(w http.ResponseWriter, r *http.Request, token string) {
	c := &http.Cookie{
		Name: tokenCookie, Value: token, Path: "/", HttpOnly: true, Secure: encrypted(r), SameSite: http.SameSiteStrictMode,
		MaxAge: int((12 * time.Hour).Seconds()),
	}
	if token == "" {
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

// signIn checks a token and keeps it in a cookie.
func (s *server) signIn(w http.ResponseWriter, r *http.Request, token string) error {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token)
	if token == "" || (&http.Cookie{Name: tokenCookie, Value: token}).Valid() != nil {
		return errToken
	}
	_, err := s.admit(r, views)
	var p *Problem
	switch {
	case errors.As(err, &p) && p.Status == http.StatusUnauthorized:
		return errToken
	case err != nil:
		return err
	}
	setToken(w, r, token)
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
