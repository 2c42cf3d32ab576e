package planner

import (
	"net/url"

	"procaas/dsl/expr"
	"procaas/dsl/tree"
)

// hostsOf returns the hosts of URLs: host:port pairs in lower case.
func hostsOf(addresses []string) map[string]bool {
	hosts := map[string]bool{}
	for _, address := range addresses {
		if u, err := url.Parse(address); err == nil && u.Hostname() != "" {
			hosts[tree.HostPort(u)] = true
		}
	}
	return hosts
}

// peerOf returns the declared service that a handler's call reaches, by its name or an address of
// it, and its name. For another address it returns the host. If an expression decides it, nothing
// is known.
func peerOf(b *tree.Bundle, body *expr.Value) (service *tree.Service, name string) {
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
	host := tree.HostPort(u)
	for _, s := range b.Services {
		if !isNamed && hostsOf([]string{s.URL, s.Address()})[host] {
			return s, s.ID
		}
	}
	return nil, host
}
