package signon

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

// loginTime is how long a person has to sign in for the command line.
const loginTime = 5 * time.Minute

// A Login is what a person gets who has signed in for the command line.
type Login struct {
	Token   string
	Until   time.Time
	Refresh string // what the issuer gives another token for; empty for nothing
	Issuer  string // the address for that
}

// Device gets the token of a person who signs in with a browser on any machine, as RFC 8628 says. tell shows the address to open and
// the code to enter there. The token comes from the issuer itself, so only the server checks its signature.
func Device(ctx context.Context, issuer, client string, scopes []string, tell func(address, code string) error) (Login, error) {
	ctx, cancel := context.WithTimeout(ctx, loginTime)
	defer cancel()
	p, err := oidc.NewProvider(ctx, issuer)
	if err != nil {
		return Login{}, fmt.Errorf("issuer %s: %w", issuer, err)
	}
	o := oauth2.Config{ClientID: client, Endpoint: p.Endpoint(), Scopes: scopes}
	if o.Endpoint.DeviceAuthURL == "" {
		return Login{}, fmt.Errorf("issuer %s signs nobody in on another device: leave out --device, and use a browser on this machine", issuer)
	}
	asked, err := o.DeviceAuth(ctx)
	if err != nil {
		return Login{}, errors.New("the issuer does not begin a sign-in: " + exchangeError(err))
	}
	if err := tell(cmp.Or(asked.VerificationURIComplete, asked.VerificationURI), asked.UserCode); err != nil {
		return Login{}, err
	}
	got, err := o.DeviceAccessToken(ctx, asked)
	if ctx.Err() != nil {
		return Login{}, fmt.Errorf("nobody signed in: %w", ctx.Err())
	}
	if err != nil {
		return Login{}, errors.New("the issuer gave no token: " + exchangeError(err))
	}
	return loginOf(o, got)
}

// loginOf returns what an issuer has given.
func loginOf(o oauth2.Config, got *oauth2.Token) (Login, error) {
	token, _ := got.Extra("id_token").(string)
	until, err := peek(token).checkTimes(time.Now())
	return Login{token, until, got.RefreshToken, o.Endpoint.TokenURL}, err
}

// Browser gets the token of a person who signs in with a browser on this machine. tell shows the address to open. The token comes from
// the issuer itself, so only the server checks its signature.
func Browser(ctx context.Context, issuer, client string, scopes []string, tell func(address string) error) (Login, error) {
	ctx, cancel := context.WithTimeout(ctx, loginTime)
	defer cancel()
	p, err := oidc.NewProvider(ctx, issuer)
	if err != nil {
		return Login{}, fmt.Errorf("issuer %s: %w", issuer, err)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return Login{}, err
	}
	o := oauth2.Config{ClientID: client, Endpoint: p.Endpoint(), RedirectURL: "http://" + l.Addr().String() + "/", Scopes: scopes}
	state, nonce, verifier := rand.Text(), rand.Text(), oauth2.GenerateVerifier()
	came := make(chan *http.Request, 1)
	s := &http.Server{ReadHeaderTimeout: issuerTime, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		if r.URL.Path != "/" || r.URL.Query().Get("state") != state {
			http.Error(w, "This is not the sign-in that procaas login waits for.", http.StatusNotFound)
			return
		}
		select {
		case came <- r:
		default:
		}
		fmt.Fprintln(w, "Go back to the terminal. You can close this page.")
	})}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	defer func() {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), issuerTime)
		defer cancel()
		_ = s.Shutdown(stop) // the page has been answered
		<-served
	}()
	if err := tell(o.AuthCodeURL(state, oidc.Nonce(nonce), oauth2.S256ChallengeOption(verifier))); err != nil {
		return Login{}, err
	}
	select {
	case <-ctx.Done():
		return Login{}, fmt.Errorf("nobody signed in: %w", ctx.Err())
	case r := <-came:
		return tokenFor(ctx, o, r, nonce, verifier)
	}
}

// tokenFor gets the token for a code.
func tokenFor(ctx context.Context, o oauth2.Config, r *http.Request, nonce, verifier string) (Login, error) {
	q := r.URL.Query()
	if refused := q.Get("error"); refused != "" {
		return Login{}, fmt.Errorf("the issuer refuses to sign you in: %s %s", shortened(refused), shortened(q.Get("error_description")))
	}
	got, err := o.Exchange(ctx, q.Get("code"), oauth2.VerifierOption(verifier))
	if err != nil {
		return Login{}, errors.New("the issuer gave no token: " + exchangeError(err))
	}
	token, _ := got.Extra("id_token").(string)
	if have, _ := peek(token)["nonce"].(string); have != nonce {
		return Login{}, &ClaimError{"nonce", "the token was made for another sign-in"}
	}
	return loginOf(o, got)
}
