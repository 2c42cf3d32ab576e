package outbound

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"procaas/dsl/urls"
)

// mostHeader bounds the header of a response, in bytes.
const mostHeader = 64 << 10

// A transport makes the requests that its fence allows, and never takes an unrequested response for
// the response to a request.
type transport struct {
	fence *fence
	log   *slog.Logger
	fresh hostSet // hosts whose connections are not reused

	upgrades bool // a service may switch to another protocol

	lean   *leanTransport  // small requests over HTTP
	secure *http.Transport // over TLS
	once   *http.Transport // reuses no connection

	secured []*securedTransport // of services with tls; complete before the first request

	mu    sync.Mutex      // guards loose
	loose map[string]bool // hosts that have sent an unrequested response
}

func newTransport(f *fence, r Reach) *transport {
	t := &transport{fence: f, log: r.log, fresh: hostsOf(r.Fresh), upgrades: r.PassesOn, loose: map[string]bool{}}
	if t.log == nil {
		t.log = slog.New(slog.DiscardHandler)
	}
	r.MaxConns = mostIdle(r.MaxConns, MostFiles())
	t.lean = &leanTransport{
		dial: t.dial, distrust: t.distrust, most: r.MaxConns, asItIs: r.PassesOn, idle: map[string][]*leanConn{},
	}
	t.secure, t.once = t.base(r), t.base(r)
	t.once.DisableKeepAlives = true
	return t
}

// mostIdle returns how many idle connections to keep per host. They leave most of the files that the
// process may have to others.
func mostIdle(wanted, files int) int {
	if files > 0 {
		wanted = min(wanted, files/16)
	}
	return max(wanted, 2)
}

// dial makes a connection. If the process has too many open files, it closes idle connections first.
func (t *transport) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := t.fence.dial(ctx, network, addr)
	if NoMoreFiles(err) {
		t.CloseIdleConnections()
		c, err = t.fence.dial(ctx, network, addr)
	}
	return c, err
}

func (t *transport) base(r Reach) *http.Transport {
	return &http.Transport{
		// No proxy from the environment, because it would hide where a call goes.
		Proxy:                  nil,
		DialContext:            t.dial,
		ForceAttemptHTTP2:      true,
		MaxIdleConns:           2 * r.MaxConns,
		MaxIdleConnsPerHost:    r.MaxConns,
		IdleConnTimeout:        90 * time.Second,
		TLSHandshakeTimeout:    5 * time.Second,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: mostHeader,
		DisableCompression:     r.PassesOn,
	}
}

// RoundTrip implements [http.RoundTripper].
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	return t.roundTrip(r, nil, nil)
}

// roundTrip makes a request over the connections of a service with tls, which show its certificate. Nil is for all others.
func (t *transport) roundTrip(r *http.Request, over *http.Transport, with *identity) (*http.Response, error) {
	host := urls.HostPort(r.URL)
	if err := cmp.Or(t.fence.checkHost(host), t.fence.checkRedirect(r, host)); err != nil {
		if r.Body != nil {
			r.Body.Close() // required by the interface, also on errors
		}
		return nil, err
	}
	describeRequest(r)
	var resp *http.Response
	var err error
	if over != nil {
		resp, err = over.RoundTrip(r)
	} else {
		resp, err = t.ask(r, host)
	}
	switch {
	case err != nil && (errors.Is(err, io.EOF) || err.Error() == closedIdle):
		return nil, errNoReply
	case err != nil:
		return nil, certificateError(err, with)
	case resp.StatusCode == http.StatusSwitchingProtocols && !(t.upgrades && r.Header.Get("Upgrade") != ""):
		resp.Body.Close()
		return nil, errors.New("the service wants another protocol, which nobody has asked for")
	}
	return resp, nil
}

// closedIdle is the error text of net/http for an idle connection that the service has closed, if
// the request may not be repeated.
const closedIdle = "http: server closed idle connection"

// errNoReply is a readable EOF: the service has closed the connection.
var errNoReply = fmt.Errorf("the service closed the connection without a reply: %w", io.EOF)

func (t *transport) ask(r *http.Request, host string) (*http.Response, error) {
	switch {
	case t.fresh[host] || t.isLoose(host):
		return t.once.RoundTrip(r)
	case r.URL.Scheme == "https":
		return t.secure.RoundTrip(r)
	case !isLean(r):
		return t.once.RoundTrip(r)
	}
	resp, err := t.lean.roundTrip(r, host)
	if err != nil && r.Body != nil {
		r.Body.Close() // required by the interface, also on errors
	}
	if !errors.Is(err, errUnanswered) || !isRepeatable(r, errors.Is(err, errUnsent)) {
		return resp, err
	}
	again := *r
	if hasBody(r) {
		if again.Body, err = r.GetBody(); err != nil {
			return nil, err
		}
	}
	return t.once.RoundTrip(&again)
}

// isRepeatable reports whether a request may be made again: the service cannot have seen it, or may
// see it twice.
func isRepeatable(r *http.Request, unsent bool) bool {
	if hasBody(r) && r.GetBody == nil {
		return false
	}
	if unsent {
		return true
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return true
	}
	_, keyed := r.Header["Idempotency-Key"]
	return keyed
}

func (t *transport) isLoose(host string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.loose[host] || len(t.loose) >= mostLoose
}

// mostLoose bounds the remembered hosts, because events may name any number of them. Once that many
// hosts have sent unrequested responses, no host is trusted.
const mostLoose = 1000

// distrust stops the reuse of connections to a host. The host has sent an unrequested response. The
// next one may arrive during a request and be taken for its response, which cannot be detected.
func (t *transport) distrust(host string) {
	t.mu.Lock()
	known := t.loose[host] || len(t.loose) >= mostLoose
	if !known {
		t.loose[host] = true
	}
	full := len(t.loose) >= mostLoose
	t.mu.Unlock()
	switch {
	case known:
	case full:
		t.log.Warn("too many services send responses that nobody has asked for; each call to any service has a connection of its own from now on",
			"hosts", mostLoose, "last", host)
	default:
		t.log.Warn("a service sends responses that nobody has asked for; each call to it has a connection of its own from now on", "host", host)
	}
}

// CloseIdleConnections closes idle connections.
func (t *transport) CloseIdleConnections() {
	t.lean.closeIdle(0)
	t.secure.CloseIdleConnections()
	for _, s := range t.secured {
		s.CloseIdleConnections()
	}
}
