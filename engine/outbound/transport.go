package outbound

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"procaas/dsl/tree"
)

// mostHeader bounds the header of a response, in bytes.
const mostHeader = 64 << 10

// A transport makes requests where its fence lets them go, and takes no response for that to a
// request that was not asked for.
type transport struct {
	fence *fence
	log   *slog.Logger
	fresh hostSet // hosts to which no connection is used twice

	lean   *leanTransport  // small requests over HTTP
	secure *http.Transport // over TLS
	once   *http.Transport // uses no connection twice

	mu    sync.Mutex      // guards loose
	loose map[string]bool // hosts that have sent a response that nobody had asked for
}

func newTransport(f *fence, r Reach) *transport {
	t := &transport{fence: f, log: r.log, fresh: hostsOf(r.Fresh), loose: map[string]bool{}}
	if t.log == nil {
		t.log = slog.New(slog.DiscardHandler)
	}
	t.lean = &leanTransport{dial: f.dial, distrust: t.distrust, most: cmp.Or(r.MaxConns, 2), idle: map[string][]*leanConn{}}
	t.secure, t.once = t.base(r), t.base(r)
	t.once.DisableKeepAlives = true
	return t
}

func (t *transport) base(r Reach) *http.Transport {
	return &http.Transport{
		// No proxy from the environment: it would hide where a call goes.
		Proxy:                  nil,
		DialContext:            t.fence.dial,
		ForceAttemptHTTP2:      true,
		MaxIdleConns:           2 * r.MaxConns,
		MaxIdleConnsPerHost:    r.MaxConns,
		IdleConnTimeout:        90 * time.Second,
		TLSHandshakeTimeout:    5 * time.Second,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: mostHeader,
	}
}

// RoundTrip implements [http.RoundTripper].
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	host := tree.HostPort(r.URL)
	if err := t.fence.checkHost(host); err != nil {
		if r.Body != nil {
			r.Body.Close() // as the interface demands, also on errors
		}
		return nil, err
	}
	describeRequest(r)
	resp, err := t.ask(r, host)
	switch {
	case err != nil && (errors.Is(err, io.EOF) || err.Error() == closedIdle):
		return nil, errNoReply
	case err != nil:
		return nil, err
	case resp.StatusCode == http.StatusSwitchingProtocols:
		resp.Body.Close()
		return nil, errors.New("the service wants another protocol, which nobody has asked for")
	}
	return resp, nil
}

// closedIdle is what net/http says of a connection that the service has closed while it was not in use, when it
// may not repeat the request.
const closedIdle = "http: server closed idle connection"

// errNoReply is an EOF in words: the service has closed the connection.
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
		r.Body.Close() // as the interface demands, also on errors
	}
	if !errors.Is(err, errUnanswered) || !isRepeatable(r) {
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

// isRepeatable reports whether a request may be made again that the service may have looked at.
func isRepeatable(r *http.Request) bool {
	if hasBody(r) && r.GetBody == nil {
		return false
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
	return t.loose[host]
}

// distrust uses no connection to a host twice any more. It has sent a response that nobody has
// asked for, and the next one may come when a request is under way, whose response it would
// be taken for: that cannot be told from the outside.
func (t *transport) distrust(host string) {
	t.mu.Lock()
	known := t.loose[host]
	t.loose[host] = true
	t.mu.Unlock()
	if !known {
		t.log.Warn("a service sends responses that nobody has asked for; each call to it has a connection of its own from now on", "host", host)
	}
}

// CloseIdleConnections lets the client close what it does not use.
func (t *transport) CloseIdleConnections() {
	t.lean.closeIdle(0)
	t.secure.CloseIdleConnections()
}
