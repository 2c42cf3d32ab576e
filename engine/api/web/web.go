// Package web binds an address whose handler can be replaced.
package web

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"procaas/engine/api/transport"
)

// A Server is a bound address with a replaceable handler.
type Server struct {
	listener net.Listener
	server   *http.Server
	log      *slog.Logger
	handler  atomic.Pointer[http.Handler]
	ended    chan error // result of Serve; nil before Start

	encrypted bool // it speaks TLS
}

// Listen binds an address for a server such as [transport.Server]. Connections wait until Start.
func Listen(ctx context.Context, address string, log *slog.Logger,
	server func(http.Handler, *slog.Logger) *http.Server,
) (*Server, error) {
	l, err := transport.Listen(ctx, address)
	if err != nil {
		return nil, err
	}
	f := &Server{listener: l, log: log}
	f.server = server(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		(*f.handler.Load()).ServeHTTP(w, r)
	}), log)
	return f, nil
}

// Addr returns the bound address.
func (f *Server) Addr() string { return f.listener.Addr().String() }

// MakeRoom sets a function that closes connections that nobody needs, for a process with too many
// open files.
func (f *Server) MakeRoom(free func()) { transport.MakeRoom(f.listener, free) }

// Start starts serving with h, or replaces the handler.
func (f *Server) Start(h http.Handler) {
	if f.handler.Swap(&h) != nil {
		return
	}
	f.ended = make(chan error, 1)
	go func() {
		if f.encrypted {
			f.ended <- f.server.ServeTLS(f.listener, "", "")
		} else {
			f.ended <- f.server.Serve(f.listener)
		}
		close(f.ended) // Close may ask after Run has
	}()
}

// Run serves until ctx ends. It returns when requests in flight have their answers. Call Start first.
func (f *Server) Run(ctx context.Context) error {
	select {
	case err := <-f.ended:
		return err
	case <-ctx.Done():
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	err := f.server.Shutdown(bounded)
	if err != nil {
		f.log.Warn("requests are broken off, their time to end is over", "error", err)
		err = f.server.Close()
	}
	<-f.ended // the error about closing
	return err
}

// Close closes a server that does not run, or does no longer.
func (f *Server) Close() error {
	if f.ended == nil {
		return f.listener.Close()
	}
	err := f.server.Close()
	if served := <-f.ended; served != nil && !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}
