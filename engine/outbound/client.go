// Package outbound makes the HTTP clients with which flows reach services. It decides which names
// and addresses a client may connect to, at the time of each connection.
//
// It does not import the engine.
package outbound

import (
	"log/slog"
	"net/http"
	"regexp"
	"time"

	"procaas/dsl/expr"
	"procaas/dsl/tree"
)

// A Reach is what an HTTP client may connect to. The zero value allows only public addresses. The
// address of each connection is what counts. So a name that resolves to a new address, a redirect
// or an unusual notation of a number cannot get around it.
type Reach struct {
	// Declared lists URLs whose hosts are allowed at any address. If there are any, no other host
	// is allowed.
	Declared []string

	// Written lists URLs that authors have written into their files. Their hosts may be on this
	// machine if they are addresses or localhost, because then neither data nor names can lead there.
	Written []string

	// Public also allows public addresses, in addition to the declared hosts.
	Public bool

	// Networks lists ranges of addresses that are then allowed too, for any host.
	Networks []string

	// Targets limits all of this. Nil sets no limit.
	Targets *Targets

	// MaxConns is how many idle connections are kept per host, and twice that in total. It is less if
	// the process may have few open files. 0 means 2.
	MaxConns int

	// Fresh lists URLs whose hosts get a new connection for each request.
	Fresh []string

	// PassesOn leaves requests and responses as their senders have made them: nothing is compressed
	// on the way, and a service may switch to the protocol that a request asks for.
	PassesOn bool

	log *slog.Logger // logs responses that belong to no request; may be nil
}

// dialTime is the timeout for connecting.
const dialTime = 3 * time.Second

// NewClient makes an HTTP client that reaches nothing else. It checks the hosts of requests,
// including redirected ones, and the address of each connection. It follows no redirects: the
// caller decides about them.
func NewClient(r Reach) *http.Client { return clientOf(newTransport(newFence(r), r)) }

func clientOf(t *transport) *http.Client {
	return &http.Client{
		Transport:     t,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// ForServices makes the client for calls of a definition's handlers. It reaches the services that
// the definition declares, and keeps up to maxConns idle connections to each.
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

// webAddress matches the start of URLs in a text or an expression, up to the end of host and port.
var webAddress = regexp.MustCompile(`(?i)https?://[^/?#'"\s\\]+`)

// writtenURLs lists the URLs in the requests of a definition, including those inside expressions.
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
