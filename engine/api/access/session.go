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

// CookieName returns the name of a cookie for the server as the browser calls it. Browsers send
// cookies to all ports of a host, so the port is in the name: servers beside each other, such as two
// of a developer, do not get or replace each other's sessions. With TLS, the prefix keeps other
// hosts of the domain from setting it.
func CookieName(r *http.Request, name string) string {
	if _, port, err := net.SplitHostPort(r.Host); err == nil && !strings.ContainsFunc(port, func(c rune) bool { return c < '0' || c > '9' }) {
		name += "_" + port
	}
	if Encrypted(r) {
		name = "__Host-" + name
	}
	return name
}

// setSession sets the session in the browser, or removes it if it is empty.
func setSession(w http.ResponseWriter, r *http.Request, session string) {
	c := &http.Cookie{
		Name: CookieName(r, sessionCookie), Value: session, Path: "/", HttpOnly: true, Secure: Encrypted(r), SameSite: http.SameSiteStrictMode,
		MaxAge: int(credentials.SessionTime.Seconds()),
	}
	if session == "" {
		c.MaxAge = -1
	}
	http.SetCookie(w, c)
}

// Encrypted reports whether the browser uses TLS, also through a proxy. A false claim only
// restricts when the browser sends the cookie.
func Encrypted(r *http.Request) bool {
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
	if d.others != nil && rest.Granted(admitted).By != "" {
		who, _, err := d.others.Identify(r.Context(), token)
		if err != nil {
			return err
		}
		return d.SignInAs(w, r, who)
	}
	session, err := d.access.OpenSession(r.Context(), rest.Granted(admitted).Name, sha256.Sum256([]byte(token)))
	if err != nil {
		return err
	}
	setSession(w, r, session)
	return nil
}

// SignInAs opens a session for an identity of an [Identifier]. The error is a problem if they may not see the console.
func (d *Checker) SignInAs(w http.ResponseWriter, r *http.Request, who credentials.Identity) error {
	g, err := d.grantOfOther(who)
	if err == nil && !g.Has(credentials.RoleViewer) && !g.Has(credentials.RoleSubmitter) {
		err = forbidden(g, rest.Views)
	}
	if p := (*problem.Problem)(nil); errors.As(err, &p) {
		d.noteRefusal(r, p)
	}
	if err != nil {
		return err
	}
	session, err := d.access.OpenSessionOf(r.Context(), who)
	if err != nil {
		return err
	}
	setSession(w, r, session)
	return nil
}

// Entrances returns where people sign in without a token of the server, to see a page of the console then.
func (d *Checker) Entrances(next string) []credentials.Entrance {
	if d.others == nil {
		return nil
	}
	return d.others.Entrances(next)
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
	if c, err := r.Cookie(CookieName(r, sessionCookie)); err == nil {
		return d.access.CloseSession(r.Context(), c.Value)
	}
	return nil
}

// WithSession returns the request with the session of its cookie, which is used if there is no
// token.
func WithSession(r *http.Request) *http.Request {
	c, err := r.Cookie(CookieName(r, sessionCookie))
	if err != nil || r.Header.Get("Authorization") != "" {
		return r
	}
	return r.WithContext(context.WithValue(r.Context(), sessionKey{}, c.Value))
}
