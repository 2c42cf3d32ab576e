package transport

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"procaas/engine/outbound"
	"procaas/engine/socket"
)

const (
	// maxConnections bounds the open connections of a listener of [Listen].
	maxConnections = 8192

	// maxPerAddress bounds those of one client address. The rest is for others, such as health
	// checks.
	maxPerAddress = maxConnections - 256

	// fewPerAddress is how many connections each address may have in the rest, so that a few busy
	// addresses leave room for those of others.
	fewPerAddress = 16
)

// Listen binds a TCP address for [Server]. If the limit is reached, a new connection replaces the
// one that has been idle longest. If none is idle, new ones wait in the backlog. It closes
// connections beyond the limit of one address. The last free slots are for addresses with few
// connections.
func Listen(ctx context.Context, addr string) (net.Listener, error) {
	var c net.ListenConfig
	l, err := c.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return limitListener(l, maxConnections, maxPerAddress), nil
}

// MakeRoom sets a function that closes connections that nobody needs. A listener of [Listen] calls it
// when the process has too many open files to accept a connection.
func MakeRoom(l net.Listener, free func()) {
	if l, ok := l.(*limitedListener); ok {
		l.free.Store(&free)
	}
}

// limitListener limits the open connections, in total and per client address.
func limitListener(l net.Listener, most, perAddress int) net.Listener {
	return &limitedListener{
		Listener: l, perAddress: perAddress, slots: make(chan struct{}, most), done: make(chan struct{}),
		count: map[netip.Addr]int{}, idle: map[*limitedConn]time.Time{},
	}
}

// A limitedListener waits for a free slot before it accepts, because connections that are not
// accepted cost the process nothing.
type limitedListener struct {
	net.Listener
	perAddress int
	slots      chan struct{} // one per open connection
	done       chan struct{}
	close      sync.Once
	free       atomic.Pointer[func()] // see MakeRoom; nil for none

	mu    sync.Mutex // guards what follows
	full  bool       // Accept waits for a slot
	count map[netip.Addr]int
	idle  map[*limitedConn]time.Time // connections without a request, and since when
}

// Accept implements [net.Listener].
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		if err := l.slot(); err != nil {
			return nil, err
		}
		c, err := l.Listener.Accept()
		if err != nil {
			<-l.slots
			if outbound.NoMoreFiles(err) {
				l.makeRoom()
			}
			return nil, err // the server tries again
		}
		if c := l.admit(c); c != nil {
			return c, nil
		}
	}
}

// youngest is how long a connection must have been idle before others may need its file. A request
// may be on its way on a younger one.
const youngest = time.Second

// makeRoom closes connections that are idle, since the process has too many open files.
func (l *limitedListener) makeRoom() {
	if free := l.free.Load(); free != nil {
		(*free)()
	}
	l.mu.Lock()
	victim := l.longestIdle(netip.Addr{})
	if since := l.idle[victim]; time.Since(since) < youngest {
		victim = nil
	}
	delete(l.idle, victim)
	l.mu.Unlock()
	victim.evict()
}

// slot waits for a free slot. It closes an idle connection for that.
func (l *limitedListener) slot() error {
	select {
	case l.slots <- struct{}{}:
		return nil
	default:
	}
	l.mu.Lock()
	l.full = true
	victim := l.longestIdle(netip.Addr{})
	delete(l.idle, victim)
	l.mu.Unlock()
	victim.evict()
	defer func() {
		l.mu.Lock()
		l.full = false
		l.mu.Unlock()
	}()
	select {
	case l.slots <- struct{}{}:
		return nil
	case <-l.done:
		return net.ErrClosed
	}
}

// admit counts a connection for its address. It returns nil if that has too many busy ones.
func (l *limitedListener) admit(inner net.Conn) net.Conn {
	c := &limitedConn{Conn: socket.Prompt(inner), listener: l, address: clientOf(inner)}
	l.mu.Lock()
	most := l.perAddress
	if len(l.slots) > l.perAddress { // with this one
		most = min(most, fewPerAddress)
	}
	crowded := l.count[c.address] >= most
	var victim *limitedConn
	if crowded {
		victim = l.longestIdle(c.address)
		delete(l.idle, victim)
	}
	l.count[c.address]++
	l.mu.Unlock()
	victim.evict()
	if crowded && victim == nil {
		_ = c.Close()
		return nil
	}
	return c
}

// longestIdle returns the connection that has been idle longest, of an address unless that is zero,
// or nil. The caller holds the lock, and takes the connection out of l.idle if it evicts it.
func (l *limitedListener) longestIdle(of netip.Addr) (victim *limitedConn) {
	for c, since := range l.idle {
		if of.IsValid() && c.address != of {
			continue
		}
		if victim == nil || since.Before(l.idle[victim]) {
			victim = c
		}
	}
	return victim
}

// note takes a connection's state from the server.
func (l *limitedListener) note(c *limitedConn, now http.ConnState) {
	l.mu.Lock()
	var victim *limitedConn
	switch now {
	case http.StateNew, http.StateIdle:
		if l.full && now == http.StateIdle {
			victim = c
		} else {
			l.idle[c] = time.Now()
		}
	default:
		delete(l.idle, c)
	}
	l.mu.Unlock()
	victim.evict()
}

// Close implements [net.Listener].
func (l *limitedListener) Close() error {
	l.close.Do(func() { close(l.done) })
	return l.Listener.Close()
}

// A limitedConn returns its slot when it is first closed.
type limitedConn struct {
	net.Conn
	listener *limitedListener
	address  netip.Addr
	closed   sync.Once
}

// evict closes a connection, unless it is nil.
func (c *limitedConn) evict() {
	if c != nil {
		_ = c.Close()
	}
}

// Close implements [net.Conn].
func (c *limitedConn) Close() error {
	err := c.Conn.Close()
	c.closed.Do(func() {
		l := c.listener
		l.mu.Lock()
		delete(l.idle, c)
		l.count[c.address]--
		if l.count[c.address] == 0 {
			delete(l.count, c.address)
		}
		l.mu.Unlock()
		<-l.slots
	})
	return err
}

// clientOf returns the address of a client, or the zero value if it has none.
func clientOf(c net.Conn) netip.Addr {
	if c.RemoteAddr() == nil {
		return netip.Addr{}
	}
	at, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	return at.Addr().Unmap()
}
