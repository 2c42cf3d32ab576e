// Package transport handles everything before the routes of the API: connections and their limits,
// how requests arrive and leave, and checks of every request.
package transport

import (
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"procaas/engine/api/rest"
)

// Server makes a server whose limits protect it against slow and silent clients. Its requests
// should come from a listener of [Listen]. Every request gets an answer: if the handler writes
// none, it is a 500.
func Server(h http.Handler, log *slog.Logger) *http.Server {
	s := newHTTPServer(attended(h, log, true), log)
	s.ReadHeaderTimeout, s.ReadTimeout, s.WriteTimeout = 2*time.Second, rest.ReadTime, rest.WriteTime
	return s
}

// PassingServer is [Server] for a proxy, which bounds the time of bodies and answers itself.
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

// closeUnused makes Shutdown close connections without any request. Otherwise it would wait 5 s for
// the first one, and clients such as Go's open connections in advance.
func closeUnused(s *http.Server) {
	var unused sync.Map // of net.Conn
	s.ConnState = func(c net.Conn, now http.ConnState) {
		if now == http.StateNew {
			unused.Store(c, true)
		} else {
			unused.Delete(c)
		}
		if encrypted, ok := c.(*tls.Conn); ok {
			c = encrypted.NetConn()
		}
		if c, ok := c.(*limitedConn); ok {
			c.listener.note(c, now)
		}
	}
	s.RegisterOnShutdown(func() {
		for c := range unused.Range {
			_ = c.(net.Conn).Close() // nobody waits for an answer
		}
	})
}
