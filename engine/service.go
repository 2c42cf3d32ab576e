package engine

import (
	"net/url"
	"strings"

	"procaas/dsl"
)

// hostsOf gives the hosts of URLs: host:port pairs in lower case.
func hostsOf(addresses []string) map[string]bool {
	hosts := map[string]bool{}
	for _, address := range addresses {
		if u, err := url.Parse(address); err == nil && u.Hostname() != "" {
			hosts[hostPort(u)] = true
		}
	}
	return hosts
}

// peerOf finds the declared service that a call of a handler reaches, which names it or gives an
// address of it, and the name of that service; of another address, the host. Nothing is known
// when an expression decides it.
func peerOf(b *dsl.Bundle, body *dsl.Value) (service *dsl.Service, name string) {
	id, isNamed := body.Get("service").Literal()
	if isNamed = isNamed && id != nil; isNamed {
		name, _ := id.(string)
		if s := b.Service(name); s != nil {
			return s, s.ID
		}
	}
	address, _ := body.Get("url").Literal()
	text, _ := address.(string)
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return nil, ""
	}
	host := hostPort(u)
	for _, s := range b.Services {
		if !isNamed && hostsOf([]string{s.URL, s.Address()})[host] {
			return s, s.ID
		}
	}
	return nil, host
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
	host := u.Hostname()
	if strings.Contains(host, ":") { // an address of IPv6
		host = "[" + host + "]"
	}
	return strings.ToLower(host + ":" + port)
}
