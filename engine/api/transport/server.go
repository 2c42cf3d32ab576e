// Package transport is what stands before the routes of the API: connections and how many there
// may be, how requests arrive and leave, and what every one of them is held to.
package transport

import (
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"procaas/engine/api/rest"
)

// Server makes a server whose limits keep slow and silent clients from holding
// it. Requests should come from a listener of [Listen]. Each has an answer: one to which
// the handler gives none gets a 500.
func Server(h http.Handler, log *slog.Logger) *http.Server {
	s := newHTTPServer(attended(h, log, true), log)
	s.ReadHeaderTimeout, s.ReadTimeout, s.WriteTimeout = 2*time.Second, rest.ReadTime, rest.WriteTime
	return s
}

// PassingServer is [Server] for a handler that passes requests on to others: how long
// bodies and answers take is for these and their callers to decide.
func PassingServer(h http.Handler, log *slog.Logger) *http.Server {
	s := newHTTPServer(attended(h, log, false), log)
	s.ReadHeaderTimeout = 10 * time.Second
	return s
}

func newHTTPServer(h http.Handler, log *slog.Logger) *http.Server {
	s := &http.Server{
		Handler:        h,
		IdleTimeout:    30 * time.Second,
		MaxHeaderBytes: 16 << 10,
		ErrorLog:       slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	closeUnused(s)
	return s
}

// closeUnused makes Shutdown close connections on which no request has come. It
// would wait 5 s for the first one otherwise, and clients hold such connections:
// Go's dials ahead of need.
func closeUnused(s *http.Server) {
	var unused sync.Map // of net.Conn
	s.ConnState = func(c net.Conn, now http.ConnState) {
		if now == http.StateNew {
			unused.Store(c, true)
		} else {
			unused.Delete(c)
		}
		if c, ok := c.(*limitedConn); ok {
			c.listener.note(c, now)
		}
	}
	s.RegisterOnShutdown(func() {
		for c := range unused.Range {
			_ = c.(net.Conn).Close() // nobody waits for an answer on it
		}
	})
}

// Loopback reports whether an address to listen on, such as 127.0.0.1:8080, is
// reached from this machine only. A host that is left out is every address; a
// name other than localhost may be anything.
func Loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	if strings.EqualFold(strings.TrimSuffix(host, "."), "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}
