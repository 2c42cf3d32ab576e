// Package outbound makes the HTTP clients by which flows reach services, and nothing else: what may
// be dialled, by which names and addresses, is decided when a connection is made.
//
// It is a room below the engine, which it does not know.
package outbound

import (
	"log/slog"
	"net/http"
	"regexp"
	"time"

	"procaas/dsl/expr"
	"procaas/dsl/tree"
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

	log *slog.Logger // told of services that send what nobody has asked for; may be nil
}

// dialTime bounds making one connection.
const dialTime = 3 * time.Second

// NewClient makes an HTTP client that reaches nothing else. The hosts of requests
// are checked, redirected ones included, and addresses when a connection is made.
// It follows no redirects: the caller decides about them.
func NewClient(r Reach) *http.Client { return clientOf(newTransport(newFence(r), r)) }

func clientOf(t *transport) *http.Client {
	return &http.Client{
		Transport:     t,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// ForServices makes the client that calls of a definition's handlers go by: it reaches the services that the
// definition declares, and keeps up to maxConns connections to each.
func ForServices(b *tree.Bundle, maxConns int, targets *Targets, log *slog.Logger) *http.Client {
	r := Reach{Written: writtenURLs(b), Targets: targets, MaxConns: maxConns, log: log}
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

// ForWorkers makes the client that reaches the workers of a definition's
// clusters, and who knows where they are.
func ForWorkers(b *tree.Bundle, targets *Targets) *http.Client {
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

// webAddress finds the beginnings of URLs in a text or in the source of an
// expression, up to where a host and its port end.
var webAddress = regexp.MustCompile(`(?i)https?://[^/?#'"\s\\]+`)

// writtenURLs lists what requests of a definition name as their url, whole or as
// a part of an expression.
func writtenURLs(b *tree.Bundle) []string {
	var out []string
	add := func(body *expr.Value) {
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
