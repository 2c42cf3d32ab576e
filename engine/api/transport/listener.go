package transport

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

const (
	// MaxConnections bounds the connections that a listener of [Listen] holds at once.
	MaxConnections = 8192

	// MaxPerAddress bounds those of one client address. The rest is left to others, such as
	// whoever asks for the node's health.
	MaxPerAddress = MaxConnections - 256
)

// Listen binds a TCP address for [Server]. When there are as many connections as there may
// be, a new one takes the place of the one that has been idle for longest. When none is idle,
// further ones wait in the backlog, and those beyond the bound of one address are closed.
func Listen(ctx context.Context, addr string) (net.Listener, error) {
	var c net.ListenConfig
	l, err := c.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return limitListener(l, MaxConnections, MaxPerAddress), nil
}

// limitListener lets at most a number of connections be open at once, and of those at most
// perAddress of one client.
func limitListener(l net.Listener, most, perAddress int) net.Listener {
	return &limitedListener{
		Listener: l, perAddress: perAddress, slots: make(chan struct{}, most), done: make(chan struct{}),
		count: map[netip.Addr]int{}, idle: map[*limitedConn]time.Time{},
	}
}

// A limitedListener waits for a free slot before it accepts: what is not accepted costs the
// process nothing.
type limitedListener struct {
	net.Listener
	perAddress int
	slots      chan struct{} // as many as connections may be open; one is taken by each
	done       chan struct{}
	close      sync.Once

	mu    sync.Mutex // guards what follows
	full  bool       // Accept waits for a slot
	count map[netip.Addr]int
	idle  map[*limitedConn]time.Time // connections without a request, since when
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
			return nil, err
		}
		if c := l.admit(c); c != nil {
			return c, nil
		}
	}
}

// slot waits for a free slot. An idle connection gives its own.
func (l *limitedListener) slot() error {
	select {
	case l.slots <- struct{}{}:
		return nil
	default:
	}
	l.mu.Lock()
	l.full = true
	victim := l.longestIdle(netip.Addr{})
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

// admit counts a connection to its address. It returns nil when that has too many at work.
func (l *limitedListener) admit(inner net.Conn) net.Conn {
	c := &limitedConn{Conn: inner, listener: l, address: clientOf(inner)}
	l.mu.Lock()
	crowded := l.count[c.address] >= l.perAddress
	var victim *limitedConn
	if crowded {
		victim = l.longestIdle(c.address)
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

// longestIdle returns the connection that has been idle for longest, of an address unless that is
// the zero value; nil when none is. The lock is held.
func (l *limitedListener) longestIdle(of netip.Addr) (victim *limitedConn) {
	for c, since := range l.idle {
		if of.IsValid() && c.address != of {
			continue
		}
		if victim == nil || since.Before(l.idle[victim]) {
			victim = c
		}
	}
	delete(l.idle, victim)
	return victim
}

// note hears what a server says of a connection.
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

// A limitedConn gives its slot back when it is closed, once however often that is.
type limitedConn struct {
	net.Conn
	listener *limitedListener
	address  netip.Addr
	closed   sync.Once
}

// evict closes a connection; nil is none.
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
		if l.count[c.address]--; l.count[c.address] == 0 {
			delete(l.count, c.address)
		}
		l.mu.Unlock()
		<-l.slots
	})
	return err
}

// clientOf returns the address of a client; the zero value stands for all whose address is none.
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
