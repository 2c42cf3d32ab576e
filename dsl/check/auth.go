package check

import (
	"net/url"
	"strings"

	"procaas/dsl/diag"
	"procaas/dsl/rules"
	"procaas/dsl/tree"
	"procaas/dsl/urls"
)

// checkTLS checks with which files a service is called.
func checkTLS(s *tree.Service, r *diag.Reporter) {
	t := s.TLS
	if t == nil {
		return
	}
	has := func(name string) bool { return t.PlaceOf(name, diag.Span{}) != diag.Span{} } // also with a wrong value, which was reported
	switch {
	case !has("cert") && !has("key") && !has("ca"):
		r.Errorf(t.Span, rules.Auth, "write cert and key, ca, or all of them", "tls of service %q names no file", s.ID)
	case !has("cert") && has("key"):
		r.Errorf(t.Span, rules.Auth, "add cert: FILE, the certificate of the key", "tls of service %q has a key without its certificate", s.ID)
	case has("cert") && !has("key"):
		r.Errorf(t.Span, rules.Auth, "add key: FILE, the private key of the certificate", "tls of service %q has a certificate without its key", s.ID)
	}
	if u, err := url.Parse(s.URL); err == nil && u.Scheme == "http" {
		r.Errorf(s.PlaceOf("url", s.Span), rules.Auth, "write https://", "service %q has tls, but nothing is encrypted over http", s.ID)
	}
}

// checkAuth checks how calls of a service prove who they are.
func checkAuth(s *tree.Service, r *diag.Reporter) {
	a := s.Auth
	if a == nil {
		return
	}
	given := 0
	for _, is := range []bool{!a.Bearer.IsNull(), a.Basic != nil, a.OAuth2 != nil} {
		if is {
			given++
		}
	}
	if given != 1 {
		r.Errorf(a.Span, rules.Auth, "keep one of bearer, basic and oauth2", "auth of service %q: want exactly one way to prove who calls, have %d", s.ID, given)
	}
	if a.Basic != nil && strings.Contains(a.Basic.Username, ":") {
		r.Errorf(a.Span, rules.Auth, "write the user name alone, and the password as !secret NAME",
			"auth of service %q: the service reads a user name only up to its colon", s.ID)
	}
	if a.OAuth2 != nil && a.OAuth2.TokenURL != "" {
		checkTokenURL(s.ID, a.OAuth2, r)
	}
}

// checkTokenURL checks the address of an issuer.
func checkTokenURL(service string, o *tree.ClientCredentials, r *diag.Reporter) {
	at := o.PlaceOf("token-url", o.Span)
	const want = "write an address such as https://login.example.com/oauth2/token"
	u, err := urls.Parse(o.TokenURL)
	switch {
	case err != nil:
		r.Errorf(at, rules.Auth, want, "token-url of service %q %v", service, err)
	case u.User != nil:
		r.Errorf(at, rules.Auth, "write client-id and client-secret: !secret NAME", "token-url of service %q holds a password", service)
	case u.Fragment != "":
		r.Errorf(at, rules.Auth, want, "token-url of service %q has a fragment", service)
	case u.Scheme == "http" && !urls.IsThisMachine(u.Hostname()):
		r.Warnf(at, rules.Auth, "write https://", "token-url of service %q: over http, everybody on the way can read the client secret", service)
	}
}
