package check

import (
	"errors"

	"procaas/dsl/diag"
	"procaas/dsl/merge"
	"procaas/dsl/rules"
	"procaas/dsl/tree"
	"procaas/dsl/urls"
)

// Services checks the addresses of services, and how calls prove who they are.
func Services(w *merge.Whole, r *diag.Reporter) {
	for _, s := range w.Bundle.Services {
		checkService(s, r)
		checkAuth(s, r)
		checkTLS(s, r)
	}
}

// checkService checks the address of a service. The engine appends paths to it, so it has no query. Many people
// read the files, so it has no password.
func checkService(s *tree.Service, r *diag.Reporter) {
	if s.URL == "" {
		return // already reported
	}
	at := s.PlaceOf("url", s.Span)
	const want = "write an address such as http://127.0.0.1:9081 or https://orders.example.com/api"
	u, err := urls.ParseBase(s.URL)
	switch {
	case errors.Is(err, urls.ErrPassword):
		r.Errorf(at, rules.ServiceURL, "write auth: {basic: {username: NAME, password: !secret NAME}}", "url of service %q %v", s.ID, err)
	case errors.Is(err, urls.ErrQuery):
		r.Errorf(at, rules.ServiceURL, "write it as query of the request", "url of service %q %v", s.ID, err)
	case err != nil:
		r.Errorf(at, rules.ServiceURL, want, "url of service %q %v", s.ID, err)
	case urls.IsPlaceholder(u):
		r.Warnf(at, rules.ServiceURL, "write the host of your service, such as 127.0.0.1:9081",
			"url of service %q: no server has the name %s", s.ID, u.Hostname())
	}
}
