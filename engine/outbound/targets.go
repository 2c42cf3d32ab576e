package outbound

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Targets are the addresses to which an operator allows connections of flows, regardless of what authors
// declare. Nil allows all.
type Targets struct {
	texts    []string
	hosts    hostSet // host, or host:port
	networks []netip.Prefix
}

// ParseTargets parses targets: a host, host:port, an address, or a range of addresses such as
// 10.0.0.0/8. It returns nil if there are none.
func ParseTargets(texts []string) (*Targets, error) {
	if len(texts) == 0 {
		return nil, nil
	}
	t := &Targets{texts: texts, hosts: hostSet{}}
	for _, text := range texts {
		if err := t.add(strings.ToLower(text)); err != nil {
			return nil, fmt.Errorf("%q: %w", text, err)
		}
	}
	return t, nil
}

func (t *Targets) add(text string) error {
	if network, err := netip.ParsePrefix(text); err == nil {
		t.networks = append(t.networks, network.Masked())
		return nil
	}
	if ip, err := netip.ParseAddr(strings.Trim(text, "[]")); err == nil {
		t.networks = append(t.networks, netip.PrefixFrom(ip.Unmap(), ip.Unmap().BitLen()))
		return nil
	}
	host, port := text, ""
	if h, p, err := net.SplitHostPort(text); err == nil {
		host, port = h, p
		if _, err := net.LookupPort("tcp", port); err != nil || strings.Trim(port, "0123456789") != "" {
			return fmt.Errorf("want a port from 1 to 65535, have %q", port)
		}
	}
	if host == "" || strings.ContainsAny(host, "/:*?#@ []") && net.ParseIP(host) == nil {
		return fmt.Errorf("want a host, host:port, an address or a range of addresses, such as orders.internal:8080 or 10.1.0.0/16")
	}
	t.hosts[text] = true
	return nil
}

// check refuses a connection to host, as host:port, at the address that it resolved to. A retry
// cannot mend the error.
func (t *Targets) check(host, address string) error {
	if t == nil {
		return nil
	}
	host = strings.ToLower(host)
	name, _, err := net.SplitHostPort(host)
	if t.hosts[host] || err == nil && t.hosts[name] {
		return nil
	}
	a, err := netip.ParseAddrPort(address)
	if err == nil && (t.hosts[a.String()] ||
		slices.ContainsFunc(t.networks, func(n netip.Prefix) bool { return n.Contains(a.Addr().Unmap().WithZone("")) })) {
		return nil
	}
	return refuse("the operator of this server does not let flows connect to %s (%s): --allow-target has %s",
		host, address, strings.Join(t.texts, ", "))
}

// Allow returns an error if host:port is not a target, unless all of its current addresses are. It
// is for callers that make their own connections.
func (t *Targets) Allow(ctx context.Context, host string) error {
	if t == nil || t.check(host, host) == nil {
		return nil
	}
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		return t.check(host, host)
	}
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", name)
	if err != nil {
		return fmt.Errorf("look up %s, which --allow-target does not name: %w", name, err)
	}
	for _, ip := range found {
		if err := t.check(host, net.JoinHostPort(ip.Unmap().String(), port)); err != nil {
			return err
		}
	}
	return nil
}

// Dial connects to host:port, if the targets allow it.
func (t *Targets) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	d := net.Dialer{Timeout: dialTime, KeepAlive: 30 * time.Second}
	d.ControlContext = func(_ context.Context, _, address string, _ syscall.RawConn) error { return t.check(addr, address) }
	return d.DialContext(ctx, network, addr)
}

// Client makes an HTTP client that reaches only the targets. It returns nil if all are allowed.
func (t *Targets) Client() *http.Client {
	if t == nil {
		return nil
	}
	return &http.Client{Transport: &http.Transport{
		DialContext: t.Dial, TLSHandshakeTimeout: 5 * time.Second,
		IdleConnTimeout: 90 * time.Second,
	}}
}
