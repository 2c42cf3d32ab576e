package check

import (
	"net/url"

	"procaas/dsl/diag"
	"procaas/dsl/merge"
	"procaas/dsl/rules"
	"procaas/dsl/tree"
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
	u, err := url.Parse(s.URL)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		r.Errorf(at, rules.ServiceURL, want, "url of service %q is not an absolute http or https URL: %q", s.ID, s.URL)
	case u.User != nil:
		r.Errorf(at, rules.ServiceURL, "write auth: {basic: {username: NAME, password: !secret NAME}}", "url of service %q holds a password", s.ID)
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		r.Errorf(at, rules.ServiceURL, "write it as query of the request", "url of service %q has a query or a fragment", s.ID)
	case tree.BadHost(u) != "":
		r.Errorf(at, rules.ServiceURL, want, "url of service %q: %s", s.ID, tree.BadHost(u))
	case tree.StandsForHost(u):
		r.Warnf(at, rules.ServiceURL, "write the host of your service, such as 127.0.0.1:9081",
			"url of service %q: no server has the name %s", s.ID, u.Hostname())
	}
}
