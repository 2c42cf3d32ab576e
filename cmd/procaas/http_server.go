package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"procaas/engine/api/transport"
)

// An httpServer is the address of a node with what answers there, which may change.
type httpServer struct {
	listener net.Listener
	server   *http.Server
	log      *slog.Logger
	handler  atomic.Pointer[http.Handler]
	ended    chan error // what Serve gave; nil before start
}

// listenHTTP binds an address, for a server such as [transport.Server]. Connections wait until start.
func listenHTTP(ctx context.Context, address string, log *slog.Logger,
	server func(http.Handler, *slog.Logger) *http.Server,
) (*httpServer, error) {
	l, err := transport.Listen(ctx, address)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	f := &httpServer{listener: l, log: log}
	f.server = server(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		(*f.handler.Load()).ServeHTTP(w, r)
	}), log)
	return f, nil
}

// start lets a handler answer, in place of the one before.
func (f *httpServer) start(h http.Handler) {
	if f.handler.Swap(&h) != nil {
		return
	}
	f.ended = make(chan error, 1)
	go func() { f.ended <- f.server.Serve(f.listener) }()
}

// run answers until ctx ends, and ends when requests under way have their answers.
// It is called after start.
func (f *httpServer) run(ctx context.Context) error {
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
	<-f.ended // that it was closed
	return err
}

// close ends one that is not run.
func (f *httpServer) close() error {
	if f.ended == nil {
		return f.listener.Close()
	}
	err := f.server.Close()
	if served := <-f.ended; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}
