package transport

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"syscall"
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

// A fullListener belongs to a process that has too many open files until room is made.
type fullListener struct {
	net.Listener
	full bool
}

func (l *fullListener) Accept() (net.Conn, error) {
	if l.full {
		return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	}
	return l.Listener.Accept()
}

func TestListenerMakesRoomForFiles(t *testing.T) {
	t.Parallel()
	inner := &fullListener{Listener: pipeListener{}}
	l := limitListener(inner, 4, 4).(*limitedListener)
	idle, _ := l.Accept()
	young, _ := l.Accept()
	l.note(idle.(*limitedConn), http.StateIdle)
	l.note(young.(*limitedConn), http.StateNew)
	l.idle[idle.(*limitedConn)] = time.Now().Add(-youngest)
	inner.full = true
	MakeRoom(l, func() { inner.full = false })
	if _, err := l.Accept(); !errors.Is(err, syscall.EMFILE) {
		t.Errorf("want the error for the server, which tries again, have %v", err)
	}
	if _, err := idle.Read(make([]byte, 1)); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("want the idle connection closed, have %v", err)
	}
	for range 3 { // all slots but that of the young connection
		if _, err := l.Accept(); err != nil {
			t.Errorf("want a connection after room was made, have %v", err)
		}
	}
	l.makeRoom()
	if _, there := l.idle[young.(*limitedConn)]; !there {
		t.Error("want the young connection kept, since a request may be on its way")
	}
}

func TestListenerWaitsForAFreePlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := limitListener(pipeListener{}, 2, 2)
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

// Clients that keep connections without asking anything must not keep others out, whoever
// asks for the node's health among them.
func TestIdleConnectionsMakeRoom(t *testing.T) {
	t.Parallel()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	const most = 4
	s := Server(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }),
		slog.New(slog.DiscardHandler))
	served := make(chan error, 1)
	go func() { served <- s.Serve(limitListener(inner, most, most)) }()
	t.Cleanup(func() {
		_ = s.Close()
		<-served
	})
	var kept []net.Conn
	for i := range 3 * most {
		c, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write([]byte("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(c).ReadString('\n')
		if err != nil || !strings.Contains(line, "204") {
			t.Fatalf("connection %d: want an answer beside the idle ones, have %q, %v", i, line, err)
		}
		kept = append(kept, c)
	}
	_, _ = io.Copy(io.Discard, kept[0]) // ends when the server has closed it
}

// One address has its bound, and leaves the rest to others.
func TestListenerBoundsEachAddress(t *testing.T) {
	t.Parallel()
	l := limitListener(pipeListener{}, 4, 2).(*limitedListener)
	from := func(address string) *limitedConn {
		l.slots <- struct{}{}
		c, _ := net.Pipe()
		admitted, _ := l.admit(addressedConn{c, address}).(*limitedConn)
		return admitted
	}
	first, second := from("192.0.2.1:1"), from("192.0.2.1:2")
	if first == nil || second == nil || from("192.0.2.1:3") != nil {
		t.Fatal("want two connections at work and no third one")
	}
	if len(l.slots) != 2 {
		t.Errorf("want the place of the refused one given back, have %d taken", len(l.slots))
	}
	l.note(second, http.StateIdle)
	if from("192.0.2.1:4") == nil || len(l.slots) != 2 {
		t.Error("want the idle connection to make room")
	}
	if _, err := second.Write([]byte{0}); err == nil {
		t.Error("want the idle connection closed")
	}
	if from("192.0.2.2:1") == nil {
		t.Error("want room for another address")
	}
}

// An addressedConn comes from an address.
type addressedConn struct {
	net.Conn
	from string
}

func (c addressedConn) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(c.from))
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

// Busy connections of a few addresses leave room for others, such as a health check.
func TestBusyAddressesLeaveRoomForOthers(t *testing.T) {
	t.Parallel()
	const most, perAddress = 8 * fewPerAddress, 4 * fewPerAddress
	l := limitListener(pipeListener{}, most, perAddress).(*limitedListener)
	from := func(address string) bool {
		l.slots <- struct{}{}
		c, _ := net.Pipe()
		return l.admit(addressedConn{c, address}) != nil
	}
	count := func(address string) (n int) {
		for range most {
			if len(l.slots) < most && from(address) {
				n++
			}
		}
		return n
	}
	if n := count("192.0.2.1:1"); n != perAddress {
		t.Errorf("want %d connections of the first address, have %d", perAddress, n)
	}
	for _, address := range []string{"192.0.2.2:1", "192.0.2.3:1", "192.0.2.4:1"} {
		if n := count(address); n != fewPerAddress {
			t.Errorf("%s: want %d connections, have %d", address, fewPerAddress, n)
		}
	}
	if len(l.slots) == most || !from("192.0.2.9:1") {
		t.Error("want room for another address")
	}
}
