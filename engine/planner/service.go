package planner

import (
	"net/url"

	"procaas/dsl/expr"
	"procaas/dsl/tree"
	"procaas/dsl/urls"
)

// servicesByHost returns the first service at each host: a host:port pair in lower case.
func servicesByHost(b *tree.Bundle) map[string]*tree.Service {
	hosts := map[string]*tree.Service{}
	for _, s := range b.Services {
		for _, address := range []string{s.URL, s.Address()} {
			u, err := url.Parse(address)
			if err != nil || u.Hostname() == "" {
				continue
			}
			if host := urls.HostPort(u); hosts[host] == nil {
				hosts[host] = s
			}
		}
	}
	return hosts
}

// othersThanServices returns what else handlers call, by id.
func othersThanServices(b *tree.Bundle) map[string]*tree.Service {
	all := map[string]*tree.Service{}
	for _, s := range b.Peers()[len(b.Services):] {
		all[s.ID] = s
	}
	return all
}

// peerOf returns the declared service that a handler's call reaches, by its name or an address of
// it, and its name. For another address it returns the host. If an expression decides it, nothing
// is known.
func (m *Planner) peerOf(t tree.Type, body *expr.Value) (service *tree.Service, name string) {
	if t.Peer != nil {
		name = t.Peer(body)
		return m.others[name], name
	}
	id, isNamed := body.Get("service").Literal()
	isNamed = isNamed && id != nil
	if isNamed {
		name, _ := id.(string)
		if s := m.bundle.Service(name); s != nil {
			return s, s.ID
		}
	}
	address, _ := body.Get("url").Literal()
	text, _ := address.(string)
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return nil, ""
	}
	host := urls.HostPort(u)
	if s := m.hosts[host]; s != nil && !isNamed {
		return s, s.ID
	}
	return nil, host
}
