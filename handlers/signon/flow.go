package signon

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"procaas/engine/api/access"
	"procaas/engine/api/problem"
	"procaas/engine/credentials"
)

// This file signs people in to the console: their browser goes to the issuer, and comes back with a code for their token.

const (
	flowCookie = "procaas_sign_on"
	flowTime   = 10 * time.Minute // for a person to sign in at the issuer
)

// A flow is what a browser keeps while its person is at the issuer. Any node can go on with it.
type flow struct {
	State    string `json:"state"`    // the answer has it, so it belongs to this browser
	Nonce    string `json:"nonce"`    // the token has it, so it was made for this flow
	Verifier string `json:"verifier"` // only who began the flow can use the code
	Next     string `json:"next"`     // the page to show then
	Issuer   string `json:"issuer"`   // the id of the issuer; empty for the only one
}

// ErrOff reports that the file names no client for what is asked.
var ErrOff = errors.New("the access file of this server names no such client of the issuer")

// oauth returns how the client for the console talks to its issuer.
func (d *Desk) oauth(ctx context.Context, c *Client, p *provider, back string) (*oauth2.Config, *known, error) {
	now, err := p.get(ctx)
	if err != nil {
		return nil, nil, err
	}
	o := &oauth2.Config{ClientID: c.ID, Endpoint: now.oidc.Endpoint(), RedirectURL: back, Scopes: c.scopes()}
	if c.SecretFile != "" {
		name := c.SecretFile
		if !filepath.IsAbs(name) {
			name = filepath.Join(filepath.Dir(d.name), name)
		}
		secret, err := os.ReadFile(name)
		if err != nil {
			return nil, nil, problem.New(problem.NotReady, "the secret of client %s cannot be read on this node: %s", c.ID, err)
		}
		o.ClientSecret = strings.TrimSpace(string(secret))
	}
	return o, now, nil
}

func (c *Client) scopes() []string {
	all := []string{oidc.ScopeOpenID}
	for _, s := range c.Scopes {
		if !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return all
}

// callback returns the address on this server that the issuer sends people back to.
func (c *Client) callback(r *http.Request) string {
	if c.Address != "" {
		return strings.TrimRight(c.Address, "/") + CallbackPath
	}
	u := url.URL{Scheme: "http", Host: r.Host, Path: CallbackPath}
	if access.Encrypted(r) {
		u.Scheme = "https"
	}
	return u.String()
}

// Start sends a browser to an issuer, by its id. The console shows next afterwards.
func (d *Desk) Start(w http.ResponseWriter, r *http.Request, issuer, next string) error {
	f, providers := d.now()
	by := f.forConsole(issuer)
	if by == nil {
		return ErrOff
	}
	o, _, err := d.oauth(r.Context(), by.Console, providers[by.Issuer], by.Console.callback(r))
	if err != nil {
		return err
	}
	begun := flow{State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier(), Next: next, Issuer: by.ID}
	value, err := json.Marshal(begun)
	if err != nil {
		return err
	}
	setFlow(w, r, base64.RawURLEncoding.EncodeToString(value), int(flowTime.Seconds()))
	http.Redirect(w, r, o.AuthCodeURL(begun.State, oidc.Nonce(begun.Nonce), oauth2.S256ChallengeOption(begun.Verifier)), http.StatusFound)
	return nil
}

// setFlow sets the cookie of a flow, or removes it. Browsers send it with the way back from the issuer, which is another site.
func setFlow(w http.ResponseWriter, r *http.Request, value string, seconds int) {
	http.SetCookie(w, &http.Cookie{
		Name: access.CookieName(r, flowCookie), Value: value, Path: "/", HttpOnly: true, Secure: access.Encrypted(r),
		SameSite: http.SameSiteLaxMode, MaxAge: seconds,
	})
}

// A SignInError says why a person is not signed in, for people.
type SignInError struct{ Text string }

// Error implements error.
func (e *SignInError) Error() string { return e.Text }

// Finish returns who has come back from their issuer, and the page to show.
func (d *Desk) Finish(w http.ResponseWriter, r *http.Request) (who credentials.Identity, next string, err error) {
	begun, err := flowOf(r)
	setFlow(w, r, "", -1) // a code is good for one attempt
	if err != nil {
		return who, "", err
	}
	f, providers := d.now()
	by := f.forConsole(begun.Issuer)
	if by == nil {
		return who, begun.Next, ErrOff
	}
	q := r.URL.Query()
	if refused := q.Get("error"); refused != "" {
		return who, begun.Next, &SignInError{"The issuer refuses to sign you in: " + shortened(strings.TrimSpace(refused+" "+q.Get("error_description")))}
	}
	p := providers[by.Issuer]
	o, known, err := d.oauth(r.Context(), by.Console, p, by.Console.callback(r))
	if err != nil {
		return who, begun.Next, err
	}
	// Another issuer must get no code of this one.
	if from := q.Get("iss"); from != by.Issuer && (from != "" || known.named) {
		return who, begun.Next, &SignInError{fmt.Sprintf("The answer is of the issuer %q, and you were sent to %s. Sign in again.", shortened(from), by.Issuer)}
	}
	token, err := d.exchanged(r.Context(), o, by, begun, q.Get("code"))
	if err != nil {
		return who, begun.Next, err
	}
	who, c, err := identify(r.Context(), by, p, token, []string{by.Console.ID})
	if err != nil {
		return who, begun.Next, err
	}
	if nonce, _ := c["nonce"].(string); subtle.ConstantTimeCompare([]byte(nonce), []byte(begun.Nonce)) != 1 {
		return who, begun.Next, &ClaimError{"nonce", "the token was made for another sign-in"}
	}
	return who, begun.Next, nil
}

// exchanged returns the token for a code.
func (d *Desk) exchanged(ctx context.Context, o *oauth2.Config, by *Issuer, begun flow, code string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, issuerTime)
	defer cancel()
	if d.client != nil {
		ctx = oidc.ClientContext(ctx, d.client)
	}
	got, err := o.Exchange(ctx, code, oauth2.VerifierOption(begun.Verifier))
	if err != nil {
		d.log.Warn("the issuer of tokens gives no token for a code", "issuer", by.Issuer, "error", err)
		return "", &SignInError{"The issuer gave no token: " + exchangeError(err)}
	}
	token, _ := got.Extra("id_token").(string)
	return token, nil
}

// exchangeError says why an issuer gave no token, without what only concerns the node.
func exchangeError(err error) string {
	if refused, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		return shortened(strings.TrimSpace(fmt.Sprintf("%s %s %s", refused.Response.Status, refused.ErrorCode, refused.ErrorDescription)))
	}
	return "it does not answer; the log of the node says more"
}

// flowOf returns the flow of a browser that has come back.
func flowOf(r *http.Request) (begun flow, err error) {
	again := &SignInError{"This sign-in was not begun in this browser in the last ten minutes, or another one was begun since. Sign in again."}
	c, err := r.Cookie(access.CookieName(r, flowCookie))
	if err != nil {
		return begun, again
	}
	data, err := base64.RawURLEncoding.DecodeString(c.Value)
	if err != nil || json.Unmarshal(data, &begun) != nil || begun.State == "" ||
		subtle.ConstantTimeCompare([]byte(begun.State), []byte(r.URL.Query().Get("state"))) != 1 {
		return flow{}, again
	}
	return begun, nil
}

// End returns the address where people sign out of an issuer, by its id, or "". back is the page of this server to come back to.
func (d *Desk) End(r *http.Request, issuer, back string) string {
	f, providers := d.now()
	by := f.forConsole(issuer)
	if by == nil {
		return ""
	}
	now, err := providers[by.Issuer].get(r.Context())
	if err != nil || now.end == "" {
		return ""
	}
	u, err := url.Parse(now.end)
	if err != nil {
		return ""
	}
	q := u.Query()
	q.Set("client_id", by.Console.ID)
	q.Set("post_logout_redirect_uri", strings.TrimSuffix(by.Console.callback(r), CallbackPath)+back)
	u.RawQuery = q.Encode()
	return u.String()
}

// Issuers returns those of the file. It changes no more.
func (d *Desk) Issuers() []*Issuer {
	f, _ := d.now()
	return f.Issuers
}

// LoginScopes lists what that client asks for.
func (c *Client) LoginScopes() []string { return c.scopes() }
