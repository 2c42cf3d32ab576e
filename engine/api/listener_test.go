package api

import (
	"errors"
	"net"
	"testing"
	"testing/synctest"
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
