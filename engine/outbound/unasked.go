package outbound

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"regexp"
	"sync"
	"sync/atomic"
)

// This file finds responses out that nobody has asked for. net/http closes a connection on which
// one comes while it is idle, and tells nobody; one that is there when the next request is written, it takes for
// the response to that.

// errUnasked refuses a response that was there before its request.
var errUnasked = fmt.Errorf("the service has sent a response before it was asked: %w", io.ErrUnexpectedEOF)

// mostAhead is what net/http reads ahead of what it needs, in bytes: less than any response has. The
// rest is kept here, where a response can be seen that is left over.
const mostAhead = 16

// A watchedConn is a connection over plain HTTP/1.1 of which is known what was asked on it.
type watchedConn struct {
	net.Conn
	distrust func() // told of a response that nobody has asked for

	buf [4 << 10]byte // of who reads

	mu    sync.Mutex // guards the following
	in    []byte     // the part of buf that net/http has not read
	came  int        // bytes that buf has
	uses  int        // requests that the connection was given to
	state connState
	lost  bool // something has come that nobody has asked for
}

// A connState says how far the request is that has a connection.
type connState int

const (
	connIdle     connState = iota // there is none
	connTaken                     // nothing of it is written
	connAsked                     // some of it is, and nothing has been read since
	connAnswered                  // something has
)

// Read implements [io.Reader]. What nobody has asked for is the end of the connection.
func (c *watchedConn) Read(p []byte) (int, error) {
	if n, err := c.kept(p); n > 0 || err != nil {
		return n, err
	}
	if len(p) >= len(c.buf) { // of a large body, whose end net/http keeps to
		n, err := c.Conn.Read(p)
		return n, cmp.Or(c.arrived(p[:n]), err)
	}
	n, err := c.Conn.Read(c.buf[:])
	if n == 0 {
		return 0, err
	}
	if err := c.arrived(c.buf[:n]); err != nil {
		return 0, err
	}
	c.mu.Lock()
	c.in, c.came = c.buf[:n], n
	c.mu.Unlock()
	return c.kept(p)
}

// kept reads what has come before.
func (c *watchedConn) kept(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lost {
		return 0, io.EOF
	}
	n := copy(p, c.in)
	c.in = c.in[n:]
	return n, nil
}

// arrived says what has come belongs to. It gives io.EOF when nobody has asked for it.
func (c *watchedConn) arrived(data []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case len(data) == 0:
	case c.state == connAsked, c.state == connTaken && c.uses == 1: // a service may greet a new connection with a refusal
		c.state = connAnswered
	case c.state != connAnswered:
		c.lose(c.uses > 0 && !isFarewell(data))
		return io.EOF
	}
	return nil
}

// lose ends the connection. The caller holds the lock.
func (c *watchedConn) lose(distrust bool) {
	c.lost, c.in = true, nil
	if distrust {
		c.distrust()
	}
}

// spill loses the connection when more has come than the response that has ended. The caller holds
// the lock.
func (c *watchedConn) spill() {
	if len(c.in) > 0 {
		c.lose(!isFarewell(c.buf[:c.came]))
	}
}

// Write implements [io.Writer].
func (c *watchedConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	if c.state == connTaken {
		c.state = connAsked
	}
	c.mu.Unlock()
	return c.Conn.Write(p)
}

// take begins a use of the connection, and returns its number.
func (c *watchedConn) take() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spill()
	c.uses++
	c.state = connTaken
	return c.uses
}

// end ends a use of the connection. The next one may have begun already.
func (c *watchedConn) end(use int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.uses == use {
		c.spill()
		c.state = connIdle
	}
}

// isUnasked reports whether a response begins of which nothing has been read since the request was
// written.
func (c *watchedConn) isUnasked() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state == connAsked
}

// isLost reports whether something has come that nobody has asked for.
func (c *watchedConn) isLost() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost
}

// farewell is how a 408 begins, with which some services end an idle connection.
var farewell = regexp.MustCompile(`HTTP/1\.[01] 408`)

func isFarewell(data []byte) bool { return farewell.Match(data) }

// A use is one request on a watched connection.
type use struct {
	on      atomic.Pointer[takenConn]
	unasked atomic.Bool
}

type takenConn struct {
	*watchedConn
	number int
}

// roundTripWatched makes a request over connections that are watched. The error is errUnasked when its
// response was there before it.
func roundTripWatched(t *http.Transport, r *http.Request) (*http.Response, error) {
	u := &use{}
	resp, err := t.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		GotConn: func(i httptrace.GotConnInfo) {
			if c, ok := i.Conn.(*watchedConn); ok {
				u.on.Store(&takenConn{c, c.take()})
			}
		},
		GotFirstResponseByte: func() {
			if c := u.on.Load(); c != nil && c.isUnasked() {
				u.unasked.Store(true)
			}
		},
	})))
	c := u.on.Load()
	switch {
	case err != nil && c != nil && c.isLost():
		return nil, errUnasked
	case err != nil:
		return nil, err
	case u.unasked.Load():
		c.distrust()
		c.Close()
		resp.Body.Close()
		return nil, errUnasked
	}
	resp.Request = r
	if resp.Body == http.NoBody || r.Method == http.MethodHead {
		u.end()
	} else {
		resp.Body = &watchedBody{resp.Body, u}
	}
	return resp, nil
}

func (u *use) end() {
	if c := u.on.Load(); c != nil {
		c.end(c.number)
	}
}

// A watchedBody is the body of a response. When all of it is read, the connection may have the next
// request.
type watchedBody struct {
	io.ReadCloser
	use *use
}

// Read implements [io.Reader].
func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		b.use.end()
	}
	return n, err
}
