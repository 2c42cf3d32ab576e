package outbound

import (
	"context"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	"procaas/dsl/urls"
)

// A fence makes only allowed connections.
type fence struct {
	declared, written hostSet
	public            bool
	networks          []netip.Prefix
	targets           *Targets
	dialer            net.Dialer
}

func newFence(r Reach) *fence {
	f := &fence{
		declared: hostsOf(r.Declared), written: hostsOf(r.Written), public: r.Public, targets: r.Targets,
		dialer: net.Dialer{Timeout: dialTime, KeepAlive: 30 * time.Second},
	}
	for _, text := range r.Networks {
		if network, err := netip.ParsePrefix(text); err == nil {
			f.networks = append(f.networks, network)
		}
	}
	return f
}

// checkHost returns an error if host:port is not allowed at any address.
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

// checkAddress returns an error if the connection to host, as host:port, is not allowed at the
// address that it resolved to. A retry cannot mend the error.
func (f *fence) checkAddress(host, address string) error {
	a, err := netip.ParseAddrPort(address)
	if err != nil {
		return refuse("address %s of %s is not understood", address, host)
	}
	if f.hasNetwork(a.Addr()) {
		return nil
	}
	kind, written := NotPublic(a.Addr()), f.written[strings.ToLower(host)]
	switch {
	case kind == loopbackKind && written && (f.targets != nil || isLocal(host)):
		return nil // targets have been checked
	case kind == loopbackKind && written:
		return refuse("%s has the address %s on this machine: write localhost or the address in its place, declare the host below services, "+
			"or let the server allow it by --allow-target", host, a.Addr())
	case kind != "":
		return refuse("%s has the address %s, which is %s: no request goes there unless the host is declared below services",
			host, a.Addr(), kind)
	case !written && a.Port() < 1024 && a.Port() != 80 && a.Port() != 443:
		return refuse("%s is at a port of another protocol than HTTP: no request goes there unless the host is declared below services", host)
	}
	return nil
}

// isLocal reports whether host:port is an address or localhost, so that nobody else decides where it
// leads.
func isLocal(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		return false
	}
	_, err = netip.ParseAddr(name)
	return err == nil || urls.IsThisMachine(name)
}

// checkRedirect returns an error if a service redirects a request to a host that only authors may
// choose. Its connections may be open already, so checking new ones is not enough.
func (f *fence) checkRedirect(r *http.Request, host string) error {
	isRedirect := r.Response != nil && r.Response.Request != nil
	if !isRedirect || f.targets != nil || f.declared[strings.ToLower(host)] || !isLocal(host) {
		return nil
	}
	from := urls.HostPort(r.Response.Request.URL)
	if strings.EqualFold(from, host) {
		return nil
	}
	name, port, _ := net.SplitHostPort(host)
	if a, err := netip.ParseAddr(name); err == nil && (NotPublic(a) == "" || f.hasNetwork(a)) {
		return nil
	}
	return refuse("%s redirects to %s:%s, which only a pipeline may choose: declare the host below services if this is intended", from, name, port)
}

// hasNetwork reports whether an address is in a range that is allowed for any host.
func (f *fence) hasNetwork(a netip.Addr) bool {
	return slices.ContainsFunc(f.networks, func(n netip.Prefix) bool { return n.Contains(a.Unmap()) })
}

// A hostSet has host:port pairs in lower case. The empty set allows all.
type hostSet map[string]bool

// hostsOf returns the hosts of URLs.
func hostsOf(addresses []string) hostSet {
	hosts := hostSet{}
	for _, address := range addresses {
		if u, err := url.Parse(address); err == nil && u.Hostname() != "" {
			hosts[urls.HostPort(u)] = true
		}
	}
	return hosts
}

// check returns an error if addr, as host:port, is not a declared host. A retry cannot mend the
// error.
func (h hostSet) check(addr string) error {
	if len(h) == 0 || h[strings.ToLower(addr)] {
		return nil
	}
	return refuse("host %s is not declared; want one of the services' hosts: %s",
		addr, strings.Join(slices.Sorted(maps.Keys(h)), ", "))
}
