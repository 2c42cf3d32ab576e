package engine

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"procaas/dsl"
)

// A Reach is what an HTTP client may connect to. The zero value reaches public
// addresses alone. What counts is the address that is dialled: a name that
// resolves to another one than it did a moment ago, a redirect and an odd way to
// write a number are all the same to it.
type Reach struct {
	// Declared lists URLs whose hosts are reached at whatever address they have.
	// When there is any, no other host is reached.
	Declared []string

	// Written lists URLs that authors have written into their files. Their hosts
	// may be on this machine: data cannot lead there.
	Written []string

	// Public lets public addresses be reached besides the declared hosts.
	Public bool

	// Networks lists ranges of addresses that are reached then, too, by whatever host.
	Networks []string

	// Targets bounds all of that; nil bounds nothing.
	Targets *Targets

	// MaxConns is how many connections to one host are kept for later; 2 when 0.
	MaxConns int

	// Fresh lists URLs whose hosts get a new connection for each request.
	Fresh []string

	lean bool         // make small requests over plain HTTP with a leanTransport
	log  *slog.Logger // of the leanTransport; may be nil
}

// dialTime bounds making one connection.
const dialTime = 3 * time.Second

// NewClient makes an HTTP client that reaches nothing else. The hosts of requests
// are checked, redirected ones included, and addresses when a connection is made.
// It follows no redirects: the caller decides about them.
func NewClient(r Reach) *http.Client {
	f := &fence{
		declared: hostsOf(r.Declared), written: hostsOf(r.Written), public: r.Public, targets: r.Targets,
		dialer: net.Dialer{Timeout: dialTime, KeepAlive: 30 * time.Second},
	}
	for _, text := range r.Networks {
		if network, err := netip.ParsePrefix(text); err == nil {
			f.networks = append(f.networks, network)
		}
	}
	transport := &fencedTransport{check: f.checkHost, fresh: hostsOf(r.Fresh), base: &http.Transport{
		// No proxy from the environment: it would hide where a call goes.
		Proxy:                  nil,
		DialContext:            f.dial,
		ForceAttemptHTTP2:      true,
		MaxIdleConns:           2 * r.MaxConns,
		MaxIdleConnsPerHost:    r.MaxConns,
		IdleConnTimeout:        90 * time.Second,
		TLSHandshakeTimeout:    5 * time.Second,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: leanMostHeader,
	}}
	if r.lean {
		transport.lean = newLeanTransport(transport.base, r.log)
	}
	return &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// newClient makes the HTTP client of a definition.
func newClient(b *dsl.Bundle, maxConns int, targets *Targets, log *slog.Logger) *http.Client {
	r := Reach{Written: writtenURLs(b), Targets: targets, MaxConns: maxConns, lean: true, log: log}
	for _, s := range b.Services {
		r.Declared = append(r.Declared, s.URL, s.Address())
		if !s.KeepAlive {
			r.Fresh = append(r.Fresh, s.URL, s.Address())
		}
	}
	return NewClient(r)
}

// workerConns is how many connections to one worker are kept for later: proxies pass
// requests on to few workers, balancers ask many.
const workerConns = 256

// newWorkersClient makes the client that reaches the workers of a definition's
// clusters, and who knows where they are.
func newWorkersClient(b *dsl.Bundle, targets *Targets) *http.Client {
	r := Reach{Targets: targets, MaxConns: workerConns}
	for _, c := range b.Clusters {
		for _, w := range c.Workers {
			r.Declared = append(r.Declared, w.URL)
		}
		if c.Discover != nil {
			r.Declared = append(r.Declared, c.Discover.URL)
			r.Public = true
			r.Networks = append(r.Networks, c.Discover.Networks...)
		}
	}
	return NewClient(r)
}

// WorkersClient gives an HTTP client that reaches the workers of the present
// definition's clusters and nobody else.
func (e *Engine) WorkersClient() *http.Client { return e.library.current.Load().workers }

// webAddress finds the beginnings of URLs in a text or in the source of an
// expression, up to where a host and its port end.
var webAddress = regexp.MustCompile(`(?i)https?://[^/?#'"\s\\]+`)

// writtenURLs lists what requests of a definition name as their url, whole or as
// a part of an expression.
func writtenURLs(b *dsl.Bundle) []string {
	var out []string
	add := func(body *dsl.Value) {
		v := body.Get("url")
		if e := v.Expr(); e != nil {
			out = append(out, webAddress.FindAllString(e.Source, -1)...)
		} else if text, ok := v.Literal(); ok {
			text, _ := text.(string)
			out = append(out, webAddress.FindAllString(text, 1)...)
		}
	}
	for _, p := range b.Pipelines {
		for _, s := range p.Stages {
			for _, h := range s.Handlers {
				add(h.Body)
				if v := h.Verification(); v != nil {
					add(v.Body)
				}
			}
		}
	}
	return out
}

// A fence makes connections to where it is allowed.
type fence struct {
	declared, written hostSet
	public            bool
	networks          []netip.Prefix
	targets           *Targets
	dialer            net.Dialer
}

// checkHost gives an error when host:port is out of reach, whatever its address.
func (f *fence) checkHost(addr string) error {
	if f.public {
		return nil // the address decides
	}
	return f.declared.check(addr)
}

func (f *fence) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if err := f.checkHost(addr); err != nil {
		return nil, err
	}
	d := f.dialer
	d.ControlContext = func(_ context.Context, _, address string, _ syscall.RawConn) error {
		if err := f.targets.check(addr, address); err != nil || f.declared[strings.ToLower(addr)] {
			return err
		}
		return f.checkAddress(addr, address)
	}
	return d.DialContext(ctx, network, addr)
}

// checkAddress tells whether a connection to host, host:port, may be made to the
// address that it has been resolved to. Repeating the call cannot mend it.
func (f *fence) checkAddress(host, address string) error {
	a, err := netip.ParseAddrPort(address)
	if err != nil {
		return Permanent(fmt.Errorf("address %s of %s is not understood", address, host))
	}
	if ip := a.Addr().Unmap(); slices.ContainsFunc(f.networks, func(n netip.Prefix) bool { return n.Contains(ip) }) {
		return nil
	}
	kind, written := NotPublic(a.Addr()), f.written[strings.ToLower(host)]
	switch {
	case kind == loopbackKind && written:
		return nil
	case kind != "":
		return Permanent(fmt.Errorf("%s has the address %s, which is %s: no request goes there unless the host is declared below services",
			host, a.Addr(), kind))
	case !written && a.Port() < 1024 && a.Port() != 80 && a.Port() != 443:
		return Permanent(fmt.Errorf("%s is at a port of another protocol than HTTP: no request goes there unless the host is declared below services", host))
	}
	return nil
}

// A hostSet holds host:port pairs in lower case. The empty set allows all.
type hostSet map[string]bool

// check gives an error when addr, host:port, is no declared host. Repeating the
// call cannot mend that.
func (h hostSet) check(addr string) error {
	if len(h) == 0 || h[strings.ToLower(addr)] {
		return nil
	}
	return Permanent(fmt.Errorf("host %s is not declared; want one of the services' hosts: %s",
		addr, strings.Join(slices.Sorted(maps.Keys(h)), ", ")))
}

// A fencedTransport refuses requests to hosts that are not declared.
type fencedTransport struct {
	check func(host string) error
	fresh hostSet // hosts to which no connection is used twice
	base  *http.Transport
	lean  *leanTransport // makes the requests when there is one, with base
}

// RoundTrip implements [http.RoundTripper].
func (t *fencedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := t.check(hostPort(r.URL)); err != nil {
		if r.Body != nil {
			r.Body.Close() // as the interface demands, also on errors
		}
		return nil, err
	}
	describeRequest(r)
	if t.fresh[hostPort(r.URL)] {
		closing := *r
		closing.Close = true
		return t.base.RoundTrip(&closing)
	}
	if t.lean != nil {
		return t.lean.RoundTrip(r)
	}
	return t.base.RoundTrip(r)
}

// CloseIdleConnections lets the client close what it does not use.
func (t *fencedTransport) CloseIdleConnections() {
	t.base.CloseIdleConnections()
	if t.lean != nil {
		t.lean.CloseIdleConnections()
	}
}
