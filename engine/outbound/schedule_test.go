package outbound

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A schedule is a client, and how what a service does reaches it.
type schedule struct {
	name string
	http bool // the client of net/http, to compare with
	late bool // each poll and each read waits until the service has acted, and so does a poll before it waits
	most int  // bytes of a read; 0 for any number

	narrow bool // the system takes few bytes at once
}

// schedules are all of them. What holds for net/http holds for our client, however it is scheduled.
var schedules = []schedule{
	{name: "at once"}, {name: "late", late: true}, {name: "byte by byte", most: 1}, {name: "late and byte by byte", late: true, most: 1},
	{name: "net http", http: true}, {name: "net http, late", http: true, late: true},
}

// onEachSchedule runs a test with each.
func onEachSchedule(t *testing.T, test func(t *testing.T, on schedule)) {
	t.Helper()
	t.Parallel()
	for _, on := range schedules {
		t.Run(on.name, func(t *testing.T) {
			t.Parallel()
			test(t, on)
		})
	}
}

// client returns a client of a service, which keeps four connections, and the transport that it
// belongs to.
func (on schedule) client(t *testing.T, s *scriptedService) (http.RoundTripper, *transport) {
	t.Helper()
	rt := transportFor(t)
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := rt.fence.dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		if on.narrow {
			_ = c.(*net.TCPConn).SetWriteBuffer(1)
		}
		return &scheduledConn{Conn: c, on: on, gate: s.clientGate(c.LocalAddr())}, nil
	}
	rt.lean.dial, rt.secure.DialContext, rt.once.DialContext = dial, dial, dial
	if on.http {
		return rt.secure, rt
	}
	return rt, rt
}

// A scheduledConn is the client's end of a connection.
type scheduledConn struct {
	net.Conn
	on   schedule
	gate *gate
}

func (c *scheduledConn) wait() {
	if c.on.late {
		c.gate.pass()
	}
}

// Read implements [net.Conn].
func (c *scheduledConn) Read(p []byte) (int, error) {
	c.wait()
	if c.on.most > 0 {
		p = p[:min(len(p), c.on.most)]
	}
	return c.Conn.Read(p)
}

// Write implements [net.Conn].
func (c *scheduledConn) Write(p []byte) (int, error) {
	c.gate.write()
	return c.Conn.Write(p)
}

// SyscallConn implements [syscall.Conn].
func (c *scheduledConn) SyscallConn() (syscall.RawConn, error) {
	raw, err := c.Conn.(syscall.Conn).SyscallConn()
	return scheduledPolls{raw, c}, err
}

// scheduledPolls are the polls of a connection.
type scheduledPolls struct {
	syscall.RawConn
	conn *scheduledConn
}

// errMissed is the error of a poll that waits for what has already come. The system reports each
// arrival once, so such a poll waits for ever if the report came before it.
var errMissed = errors.New("a poll waits for what has already come")

// Read implements [syscall.RawConn].
func (p scheduledPolls) Read(poll func(fd uintptr) bool) error {
	if !p.conn.on.late {
		return p.RawConn.Read(poll)
	}
	p.conn.wait()
	missed := false
	err := p.RawConn.Read(func(fd uintptr) bool {
		came := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, _ := unix.Poll(came, 0)
		done := poll(fd)
		if missed = !done && n > 0; missed {
			return true
		}
		if !done {
			p.conn.wait() // what the service does then, it does before the poll waits
		}
		return done
	})
	if missed {
		return errMissed
	}
	return err
}

// Write implements [syscall.RawConn].
func (p scheduledPolls) Write(poll func(fd uintptr) bool) error {
	p.conn.gate.write()
	return p.RawConn.Write(poll)
}

// A gate lets a client go on when its service has acted on what the client wrote.
type gate struct {
	service        *scriptedService
	client, served bool // that end of the connection has taken it

	wanted chan struct{} // gets a value when a write waits for ended
	ended  chan struct{} // closed when the service has closed the connection

	mu    sync.Mutex
	acted chan struct{} // closed if the gate is open
	done  bool          // the service does nothing any more, so the gate stays open
}

// clientGate returns the gate of a connection for the client's end.
func (s *scriptedService) clientGate(client net.Addr) *gate {
	return s.gate(client, func(g *gate) *bool { return &g.client })
}

// serviceGate returns the gate of a connection for the service's end.
func (s *scriptedService) serviceGate(client net.Addr) *gate {
	return s.gate(client, func(g *gate) *bool { return &g.served })
}

// gate returns the first gate of a client's address that an end of a connection has not taken, and
// takes it. Both ends see the connections of an address one after another, since a port is used again
// when its connection has ended. So both take the same gate, whichever of them comes first.
func (s *scriptedService) gate(client net.Addr, end func(g *gate) (taken *bool)) *gate {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.gates[client.String()] {
		if taken := end(g); !*taken {
			*taken = true
			return g
		}
	}
	g := &gate{service: s, wanted: make(chan struct{}, 1), ended: make(chan struct{}), acted: make(chan struct{})}
	*end(g) = true
	s.gates[client.String()] = append(s.gates[client.String()], g)
	return g
}

// waitUntilClosed returns when the service has closed all connections that there have been.
func (s *scriptedService) waitUntilClosed() {
	s.mu.Lock()
	var all []*gate
	for _, gates := range s.gates {
		all = append(all, gates...)
	}
	s.mu.Unlock()
	for _, g := range all {
		<-g.ended
	}
}

// write shuts the gate. It waits for the end of the connection if the service is to end it before that.
func (g *gate) write() {
	if g.service.endsFirst.CompareAndSwap(true, false) {
		g.wanted <- struct{}{}
		<-g.ended
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if isClosed(g.acted) && !g.done {
		g.acted = make(chan struct{})
	}
}

// pass waits until the gate is open.
func (g *gate) pass() {
	g.mu.Lock()
	acted := g.acted
	g.mu.Unlock()
	<-acted
}

// open lets the client read what the service has done.
func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !isClosed(g.acted) {
		close(g.acted)
	}
}

// leave opens the gate for good.
func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.done = true
	if !isClosed(g.acted) {
		close(g.acted)
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// TestPortIsUsedAgain has the system give the port of a connection that has ended to the next one, which
// happens within a test when many run at once.
func TestPortIsUsedAgain(t *testing.T) {
	s := &scriptedService{gates: map[string][]*gate{}}
	client := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 40001}
	first := s.clientGate(client)
	second := s.clientGate(client) // the service has not yet seen that the first one ended
	if first == second || s.serviceGate(client) != first || s.serviceGate(client) != second {
		t.Error("want a gate for each connection, the same for both of its ends")
	}
	third := s.serviceGate(client)
	if third == first || third == second || s.clientGate(client) != third {
		t.Error("want the same gate when the service sees a connection before the client")
	}
}
