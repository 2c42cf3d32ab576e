package engine

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"procaas/dsl"
)

// newClient makes the HTTP client of a definition. When the definition declares
// services, it reaches nothing but their hosts: this is checked on the address of
// each request, redirected ones included, and again when a connection is made.
// It follows no redirects: the handler decides about them.
func newClient(b *dsl.Bundle, maxConns int) *http.Client {
	allowed := declaredHosts(b.Services)
	dialer := &net.Dialer{Timeout: 3 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Client{
		Transport: &fencedTransport{allowed: allowed, base: &http.Transport{
			// No proxy from the environment: it would hide where a call goes.
			Proxy: nil,
			DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				if err := allowed.check(addr); err != nil {
					return nil, err
				}
				return dialer.DialContext(ctx, network, addr)
			},
			ForceAttemptHTTP2:      true,
			MaxIdleConns:           2 * maxConns,
			MaxIdleConnsPerHost:    maxConns,
			IdleConnTimeout:        90 * time.Second,
			TLSHandshakeTimeout:    5 * time.Second,
			ExpectContinueTimeout:  time.Second,
			MaxResponseHeaderBytes: 64 << 10,
		}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// A hostSet holds host:port pairs in lower case. The empty set allows all.
type hostSet map[string]bool

// declaredHosts gives the hosts of services.
func declaredHosts(services []*dsl.Service) hostSet {
	hosts := hostSet{}
	for _, s := range services {
		for _, address := range []string{s.URL, s.Address()} {
			if u, err := url.Parse(address); err == nil {
				hosts[hostPort(u)] = true
			}
		}
	}
	return hosts
}

// check gives an error when addr, host:port, is no declared host. Repeating the
// call cannot mend that.
func (h hostSet) check(addr string) error {
	if len(h) == 0 || h[strings.ToLower(addr)] {
		return nil
	}
	return Permanent(fmt.Errorf("host %s is not declared; want one of the services' hosts: %s",
		addr, strings.Join(slices.Sorted(maps.Keys(h)), ", ")))
}

// hostPort gives the address that a URL is dialled at.
func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = "80"
		if strings.EqualFold(u.Scheme, "https") {
			port = "443"
		}
	}
	return strings.ToLower(net.JoinHostPort(u.Hostname(), port))
}

// A fencedTransport refuses requests to hosts that are not declared.
type fencedTransport struct {
	allowed hostSet
	base    *http.Transport
}

// RoundTrip implements [http.RoundTripper].
func (t *fencedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := t.allowed.check(hostPort(r.URL)); err != nil {
		if r.Body != nil {
			r.Body.Close() // as the interface demands, also on errors
		}
		return nil, err
	}
	return t.base.RoundTrip(r)
}

// CloseIdleConnections lets the client close what it does not use.
func (t *fencedTransport) CloseIdleConnections() { t.base.CloseIdleConnections() }
