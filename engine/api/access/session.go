package access

import (
	"context"
	"crypto/sha256"
	"errors"
	"net"
	"net/http"
	"strings"

	"procaas/engine/api/problem"
	"procaas/engine/api/rest"
	"procaas/engine/credentials"
)

// sessionCookie begins the name of the cookie with the session of a signed-in browser, not the
// token. It opens only the console, and ends. Scripts cannot read it, and browsers do not send it to
// or from other sites.
const sessionCookie = "procaas_session"

// cookieName returns the name of the cookie for the server as the browser calls it. Browsers send
// cookies to all ports of a host, so the port is in the name: servers beside each other, such as two
// of a developer, do not get or replace each other's sessions. With TLS, the prefix keeps other
// hosts of the domain from setting it.
func cookieName(r *http.Request) string {
	name := sessionCookie
	if _, port, err := net.SplitHostPort(r.Host); err == nil && !strings.ContainsFunc(port, func(c rune) bool { return c < '0' || c > '9' }) {
		name += "_" + port
	}
	if encrypted(r) {
		name = "__Host-" + name
	}
	return name
}

// setSession sets the session in the browser, or removes it if it is empty.
func setSession(w http.ResponseWriter, r *http.Request, session string) {
	c := &http.Cookie{
		Name: cookieName(r), Value: session, Path: "/", HttpOnly: true, Secure: encrypted(r), SameSite: http.SameSiteStrictMode,
		MaxAge: int(credentials.SessionTime.Seconds()),
	}
	if session == "" {
		c.MaxAge = -1
	}
	http.SetCookie(w, c)
}

// encrypted reports whether the browser uses TLS, also through a proxy. A false claim only
// restricts when the browser sends the cookie.
func encrypted(r *http.Request) bool {
	return r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https")
}

// errToken refuses an invalid token.
var errToken = errors.New("This is no token of this server, or it has expired.") //nolint:staticcheck // shown to people as it is

// SignIn checks a token and opens a session for its bearer.
func (d *Checker) SignIn(w http.ResponseWriter, r *http.Request, token string) error {
	if token == "" || strings.ContainsFunc(token, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return errToken
	}
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token)
	admitted, err := d.AdmitToConsole(r, true)
	var p *problem.Problem
	switch {
	case errors.As(err, &p) && p.Status == http.StatusUnauthorized:
		d.noteRefusal(r, p)
		return errToken
	case p != nil:
		d.noteRefusal(r, p)
		return err
	case err != nil:
		return err
	}
	session, err := d.access.OpenSession(r.Context(), rest.Granted(admitted).Name, sha256.Sum256([]byte(token)))
	if err != nil {
		return err
	}
	setSession(w, r, session)
	return nil
}

// AdmitToConsole admits callers who may view it, and to the page of events also those who may only
// submit.
func (d *Checker) AdmitToConsole(r *http.Request, events bool) (*http.Request, error) {
	admitted, err := d.Admit(r, rest.Views)
	if p := (*problem.Problem)(nil); events && errors.As(err, &p) && p.Status == http.StatusForbidden {
		return d.Admit(r, rest.Submits)
	}
	return admitted, err
}

// SignOut ends the session, so that a kept cookie is useless. The browser removes it in any case.
func (d *Checker) SignOut(w http.ResponseWriter, r *http.Request) error {
	setSession(w, r, "")
	if c, err := r.Cookie(cookieName(r)); err == nil {
		return d.access.CloseSession(r.Context(), c.Value)
	}
	return nil
}

// WithSession returns the request with the session of its cookie, which is used if there is no
// token.
func WithSession(r *http.Request) *http.Request {
	c, err := r.Cookie(cookieName(r))
	if err != nil || r.Header.Get("Authorization") != "" {
		return r
	}
	return r.WithContext(context.WithValue(r.Context(), sessionKey{}, c.Value))
}
