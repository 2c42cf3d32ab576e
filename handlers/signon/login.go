package signon

import (
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

// Login gets the token of a person who signs in with a browser on this machine. tell shows the address to open. The token comes from
// the issuer itself, so only the server checks its signature.
func Login(ctx context.Context, issuer, client string, scopes []string, tell func(address string) error) (token string, until time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, loginTime)
	defer cancel()
	p, err := oidc.NewProvider(ctx, issuer)
	if err != nil {
		return "", until, fmt.Errorf("issuer %s: %w", issuer, err)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", until, err
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
		return "", until, err
	}
	select {
	case <-ctx.Done():
		return "", until, fmt.Errorf("nobody signed in: %w", ctx.Err())
	case r := <-came:
		return tokenFor(ctx, o, r, nonce, verifier)
	}
}

// tokenFor gets the token for a code.
func tokenFor(ctx context.Context, o oauth2.Config, r *http.Request, nonce, verifier string) (token string, until time.Time, err error) {
	q := r.URL.Query()
	if refused := q.Get("error"); refused != "" {
		return "", until, fmt.Errorf("the issuer refuses to sign you in: %s %s", shortened(refused), shortened(q.Get("error_description")))
	}
	got, err := o.Exchange(ctx, q.Get("code"), oauth2.VerifierOption(verifier))
	if err != nil {
		return "", until, errors.New("the issuer gave no token: " + exchangeError(err))
	}
	token, _ = got.Extra("id_token").(string)
	c := peek(token)
	if have, _ := c["nonce"].(string); have != nonce {
		return "", until, &ClaimError{"nonce", "the token was made for another sign-in"}
	}
	until, err = c.checkTimes(time.Now())
	return token, until, err
}
