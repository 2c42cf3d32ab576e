package balancer

import (
	"net/http"
	"slices"
	"sync"

	"procaas/dsl/tree"
	"procaas/engine"
	"procaas/engine/outbound"
	"procaas/handlers/balancer/language"
)

// workerConns is how many idle connections are kept per worker. Proxies have few workers, but send
// each many requests.
const workerConns = 256

// maxDefinitions bounds the definitions whose clients are kept. The bound only costs time.
const maxDefinitions = 16

// Workers has an HTTP client for each definition, which reaches the workers of its clusters and nothing else. It is safe
// for concurrent use.
type Workers struct {
	targets *outbound.Targets

	mu      sync.Mutex // guards clients
	clients []reaching // the last used is the last
}

// A reaching client is that of a definition.
type reaching struct {
	hash   string
	client *http.Client
}

// NewWorkers makes clients whose targets are limited. Nil sets no limit.
func NewWorkers(targets *outbound.Targets) *Workers { return &Workers{targets: targets} }

// Of returns the client that reaches the workers of a definition's clusters, and the registries that
// know their addresses.
func (w *Workers) Of(b *tree.Bundle) *http.Client {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, x := range w.clients {
		if x.hash == b.Hash {
			w.clients = append(slices.Delete(w.clients, i, i+1), x)
			return x.client
		}
	}
	x := reaching{b.Hash, outbound.NewClient(reachOf(b, w.targets))}
	w.clients = append(w.clients, x)
	if len(w.clients) > maxDefinitions {
		w.clients[0].client.CloseIdleConnections()
		w.clients = slices.Delete(w.clients, 0, 1)
	}
	return x.client
}

// CloseIdleConnections closes the idle connections of all clients.
func (w *Workers) CloseIdleConnections() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, x := range w.clients {
		x.client.CloseIdleConnections()
	}
}

func reachOf(b *tree.Bundle, targets *outbound.Targets) outbound.Reach {
	r := outbound.Reach{Targets: targets, MaxConns: workerConns, PassesOn: true}
	for _, c := range language.ClustersOf(b) {
		for _, w := range c.Workers {
			r.Declared = append(r.Declared, w.URL)
		}
		if c.Discover != nil {
			r.Declared = append(r.Declared, c.Discover.URL)
			r.Public = true
			r.Networks = append(r.Networks, c.Discover.Networks...)
		}
	}
	return r
}

// A bound handler asks workers.
type bound struct{ workers *Workers }

func (b *bound) bind(w *Workers) { b.workers = w }

// client returns the client for a call. A handler that is not bound runs alone, as procaas run lets it.
func (b *bound) client(c *engine.Call) *http.Client {
	if b.workers == nil {
		b.workers = NewWorkers(nil)
	}
	return b.workers.Of(c.Bundle)
}

// Bind makes the handler types balancer.… share clients.
func Bind(types []engine.HandlerType, w *Workers) []engine.HandlerType {
	out := slices.Clone(types)
	for i, t := range types {
		out[i].New = func() engine.Handler {
			h := t.New()
			if b, ok := h.(interface{ bind(*Workers) }); ok {
				b.bind(w)
			}
			return h
		}
	}
	return out
}
