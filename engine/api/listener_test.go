package api

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// A pipeListener accepts without end.
type pipeListener struct{ net.Listener }

func (pipeListener) Accept() (net.Conn, error) {
	c, _ := net.Pipe()
	return c, nil
}

func (pipeListener) Close() error { return nil }

func TestListenerWaitsForAFreePlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := limitListener(pipeListener{}, 2)
		first, _ := l.Accept()
		_, _ = l.Accept()
		accepted := make(chan error, 1)
		accept := func() {
			_, err := l.Accept()
			accepted <- err
		}
		go accept()
		synctest.Wait()
		if len(accepted) != 0 {
			t.Fatal("have a third connection, want two at most")
		}
		_ = first.Close()
		_ = first.Close() // gives its place back once
		synctest.Wait()
		if len(accepted) != 1 || <-accepted != nil {
			t.Fatal("have no third connection after one was closed")
		}
		go accept()
		synctest.Wait()
		if len(accepted) != 0 {
			t.Fatal("have a place given back twice")
		}
		_ = l.Close()
		if err := <-accepted; !errors.Is(err, net.ErrClosed) {
			t.Errorf("have %v from a closed listener, want net.ErrClosed", err)
		}
	})
}

// A oneListener accepts one connection, and nothing more until it is closed.
type oneListener struct {
	net.Listener
	conns chan net.Conn
}

func (l oneListener) Accept() (net.Conn, error) {
	if c, ok := <-l.conns; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (l oneListener) Close() error {
	close(l.conns)
	return nil
}

func TestShutdownDoesNotWaitForConnectionsWithoutARequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, conn := net.Pipe()
		defer func() { _ = client.Close() }()
		l := oneListener{conns: make(chan net.Conn, 1)}
		l.conns <- conn
		s := Server(http.NotFoundHandler(), slog.New(slog.DiscardHandler))
		s.ReadTimeout, s.ReadHeaderTimeout = 0, 0 // they would end the connection as well
		go func() { _ = s.Serve(l) }()
		synctest.Wait()
		began := time.Now()
		if err := s.Shutdown(context.Background()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took >= time.Second {
			t.Errorf("have a shutdown after %s, want it at once", took)
		}
	})
}
