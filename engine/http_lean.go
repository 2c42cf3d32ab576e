package engine

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// This file makes the calls that flows are made of, small requests over plain HTTP/1.1,
// with less work than net/http's transport needs for them. That one has two goroutines
// for each connection, for what can happen at once: sending a large body while the
// answer comes, and many streams. Here the caller's goroutine writes the request and
// reads the answer. Messages are written and read by net/http all the same, and all
// that is out of the ordinary goes its own way.

const (
	leanMostBody   = 32 << 10 // of a request; it must fit in what the system takes at once
	leanMostHeader = 64 << 10 // of an answer, with the provisional ones (1xx) before it
	leanIdle       = 90 * time.Second
)

// A leanTransport makes requests over plain HTTP/1.1 by itself, and leaves others to
// base.
type leanTransport struct {
	base *http.Transport
	log  *slog.Logger
	dial func(ctx context.Context, network, addr string) (net.Conn, error)
	most int // idle connections to one host; twice that in all

	mu      sync.Mutex             // guards the following
	idle    map[string][]*leanConn // by host:port; the one that was used last is the last
	idling  int
	cleanup *time.Timer     // nil while nothing is idle
	loose   map[string]bool // hosts that have sent a response which nobody has asked for
}

// newLeanTransport makes a transport with the dialer and the bounds of base.
func newLeanTransport(base *http.Transport, log *slog.Logger) *leanTransport {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	most := base.MaxIdleConnsPerHost
	if most == 0 {
		most = http.DefaultMaxIdleConnsPerHost
	}
	return &leanTransport{base: base, log: log, dial: base.DialContext, most: most, idle: map[string][]*leanConn{}, loose: map[string]bool{}}
}

// RoundTrip implements [http.RoundTripper].
func (t *leanTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if !canPeek || !isOrdinary(r) {
		return t.base.RoundTrip(r)
	}
	resp, err := t.roundTrip(r)
	if err != nil && r.Body != nil {
		r.Body.Close() // as the interface demands
	}
	return resp, err
}

// isOrdinary tells whether a request is one that leanTransport makes itself.
func isOrdinary(r *http.Request) bool {
	if r.URL == nil || r.URL.Scheme != "http" || r.URL.Host == "" || r.Close || len(r.TransferEncoding) > 0 || len(r.Trailer) > 0 {
		return false
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
	default:
		return false
	}
	if r.Body != nil && r.Body != http.NoBody && (r.ContentLength <= 0 || r.ContentLength > leanMostBody) {
		return false
	}
	for i := range len(r.URL.Host) {
		if c := r.URL.Host[i]; c <= ' ' || c >= 0x7f || c == '%' {
			return false
		}
	}
	for name, values := range r.Header {
		if isHopByHop(name) || !isPlainName(name) {
			return false
		}
		for _, v := range values {
			if !isPlainText(v) {
				return false
			}
		}
	}
	return httptrace.ContextClientTrace(r.Context()) == nil
}

// isHopByHop tells whether a header says how a message travels, or what its answer
// may look like.
func isHopByHop(name string) bool {
	switch name {
	case "Accept-Encoding", "Connection", "Content-Length", "Expect", "Keep-Alive", "Proxy-Connection", "Range", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "":
		return true
	}
	return false
}

func isPlainName(name string) bool {
	for i := range len(name) {
		if c := name[i]; (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return true
}

func isPlainText(text string) bool {
	for i := range len(text) {
		if c := text[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

func (t *leanTransport) roundTrip(r *http.Request) (*http.Response, error) {
	addr, ctx := hostPort(r.URL), r.Context()
	for again := false; ; again = true {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		var c *leanConn
		if !again {
			c = t.take(addr)
		}
		reused := c != nil
		if c == nil {
			conn, err := t.dial(ctx, "tcp", addr)
			if err != nil {
				return nil, endOfContext(ctx, err)
			}
			c = newLeanConn(t, addr, conn)
		}
		resp, err := c.exchange(r)
		if err == nil {
			return resp, nil
		}
		// A connection that the other side has closed while it was idle: nobody has
		// looked at the request, or it may be repeated. One more try, on a new one.
		if !reused || again || !c.untouched(r) || ctx.Err() != nil {
			return nil, err
		}
		if r.Body != nil && r.Body != http.NoBody {
			body, err := r.GetBody()
			if err != nil {
				return nil, err
			}
			repeated := *r
			repeated.Body = body
			r = &repeated
		}
	}
}

// take gives an idle connection that is still good; nil when there is none.
func (t *leanTransport) take(addr string) *leanConn {
	for {
		t.mu.Lock()
		list := t.idle[addr]
		if len(list) == 0 {
			t.mu.Unlock()
			return nil
		}
		c := list[len(list)-1]
		list[len(list)-1] = nil
		t.idle[addr] = list[:len(list)-1]
		t.idling--
		t.mu.Unlock()
		if c.isQuiet() {
			return c
		}
		if c.unasked {
			t.distrust(addr)
		}
		c.conn.Close()
	}
}

// distrust keeps no connection to a host any more. It has sent a response that nobody has
// asked for, and the next one may come when a request is under way, whose response it would
// be taken for: that cannot be told from the outside.
func (t *leanTransport) distrust(addr string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.loose[addr] {
		return
	}
	t.loose[addr] = true
	for _, c := range t.idle[addr] {
		c.conn.Close()
	}
	t.idling -= len(t.idle[addr])
	delete(t.idle, addr)
	t.log.Warn("a service sends responses that nobody has asked for; each call to it has a connection of its own from now on", "host", addr)
}

// put keeps a connection for later.
func (t *leanTransport) put(c *leanConn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.loose[c.addr] || len(t.idle[c.addr]) >= t.most {
		c.conn.Close()
		return
	}
	if t.idling >= 2*t.most {
		t.closeOldest()
	}
	c.since = time.Now()
	t.idle[c.addr] = append(t.idle[c.addr], c)
	t.idling++
	if t.cleanup == nil {
		t.cleanup = time.AfterFunc(leanIdle, func() { t.closeIdle(leanIdle) })
	}
}

// closeOldest closes the connection that has been idle for longest. The caller holds
// the lock.
func (t *leanTransport) closeOldest() {
	var oldest *leanConn
	for _, list := range t.idle {
		if len(list) > 0 && (oldest == nil || list[0].since.Before(oldest.since)) {
			oldest = list[0]
		}
	}
	if oldest != nil {
		t.idle[oldest.addr] = slices.Delete(t.idle[oldest.addr], 0, 1)
		t.idling--
		oldest.conn.Close()
	}
}

// closeIdle closes the connections that have been idle for so long.
func (t *leanTransport) closeIdle(age time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for addr, list := range t.idle {
		old := 0
		for old < len(list) && time.Since(list[old].since) >= age {
			list[old].conn.Close()
			old++
		}
		t.idling -= old
		if t.idle[addr] = slices.Delete(list, 0, old); len(list) == old {
			delete(t.idle, addr)
		}
	}
	if t.cleanup != nil {
		t.cleanup.Stop()
		t.cleanup = nil
	}
	if t.idling > 0 {
		t.cleanup = time.AfterFunc(leanIdle/2, func() { t.closeIdle(leanIdle) })
	}
}

// CloseIdleConnections lets a client close what it does not use.
func (t *leanTransport) CloseIdleConnections() {
	t.closeIdle(0)
	t.base.CloseIdleConnections()
}

// A leanConn is a connection with at most one request under way.
type leanConn struct {
	t     *leanTransport
	addr  string
	conn  net.Conn
	raw   syscall.RawConn // nil when it cannot be looked at
	in    *bufio.Reader
	out   *bufio.Writer
	since time.Time // idle

	sent    int // bytes of the present request
	got     int // of its answer, up to the end of the header
	most    int // that got may be; 0 for any number
	peek    func(fd uintptr) bool
	pending bool // there was something to read
	unasked bool // and it was a response
}

func newLeanConn(t *leanTransport, addr string, conn net.Conn) *leanConn {
	c := &leanConn{t: t, addr: addr, conn: conn}
	c.in, c.out = bufio.NewReaderSize(c, 4<<10), bufio.NewWriterSize(c, 4<<10)
	if s, ok := conn.(syscall.Conn); ok {
		c.raw, _ = s.SyscallConn()
	}
	c.peek = func(fd uintptr) bool {
		c.pending, c.unasked = hasInput(fd)
		return true
	}
	return c
}

// errLongHeader refuses an answer whose header has no end.
var errLongHeader = fmt.Errorf("the header of the reply is longer than %d bytes", leanMostHeader)

// Read implements [io.Reader] for the buffer.
func (c *leanConn) Read(p []byte) (int, error) {
	if c.most > 0 {
		if c.got >= c.most {
			return 0, errLongHeader
		}
		p = p[:min(len(p), c.most-c.got)]
	}
	n, err := c.conn.Read(p)
	c.got += n
	return n, err
}

// Write implements [io.Writer] for the buffer.
func (c *leanConn) Write(p []byte) (int, error) {
	n, err := c.conn.Write(p)
	c.sent += n
	return n, err
}

// isQuiet tells whether an idle connection is open, and nothing has come that nobody
// has asked for: it would be taken for the answer to the next request.
func (c *leanConn) isQuiet() bool {
	if c.raw == nil || c.in.Buffered() > 0 {
		return false
	}
	c.pending = true
	return c.raw.Read(c.peek) == nil && !c.pending
}

// untouched tells whether a request that has failed may be made again: nothing of it
// was sent, or nothing has come back and it is one that may be repeated.
func (c *leanConn) untouched(r *http.Request) bool {
	if r.Body != nil && r.Body != http.NoBody && r.GetBody == nil {
		return false
	}
	if c.sent == 0 {
		return true
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return c.got == 0
	}
	_, keyed := r.Header["Idempotency-Key"]
	return c.got == 0 && keyed
}

// exchange sends a request and reads the header of the answer. The connection belongs
// to the body of the answer then; after an error it is closed.
func (c *leanConn) exchange(r *http.Request) (*http.Response, error) {
	ctx := r.Context()
	// Whoever waits for the connection is woken when ctx ends.
	stop := context.AfterFunc(ctx, func() { _ = c.conn.SetDeadline(time.Unix(1, 0)) })
	c.sent, c.got, c.most = 0, 0, leanMostHeader
	resp, err := c.talk(r)
	if err != nil {
		stop()
		c.conn.Close()
		return nil, endOfContext(ctx, err)
	}
	c.most = 0
	b := &leanBody{c: c, ctx: ctx, stop: stop, body: resp.Body, keep: !resp.Close}
	if resp.Body == http.NoBody || r.Method == http.MethodHead {
		b.end(true)
		return resp, nil
	}
	resp.Body = b
	if strings.EqualFold(resp.Header.Get("Content-Encoding"), "gzip") {
		resp.Body = &unzipped{leanBody: b}
		resp.Header.Del("Content-Encoding")
		resp.Header.Del("Content-Length")
		resp.ContentLength, resp.Uncompressed = -1, true
	}
	return resp, nil
}

// endOfContext gives the cause of an error that comes of the end of ctx.
func endOfContext(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if end, ok := ctx.Deadline(); ok && !time.Now().Before(end) {
		return context.DeadlineExceeded // which ctx is just about to find
	}
	return err
}

func (c *leanConn) talk(r *http.Request) (*http.Response, error) {
	sent := *r
	sent.Header = make(http.Header, len(r.Header)+1)
	maps.Copy(sent.Header, r.Header)
	if r.Method != http.MethodHead {
		sent.Header["Accept-Encoding"] = []string{"gzip"} // as net/http does
	}
	if err := sent.Write(c.out); err != nil {
		return nil, err
	}
	if err := c.out.Flush(); err != nil {
		return nil, err
	}
	for {
		if _, err := c.in.Peek(1); err != nil {
			if errors.Is(err, io.EOF) && c.got == 0 {
				err = errNoReply
			}
			return nil, err
		}
		resp, err := http.ReadResponse(c.in, r)
		switch {
		case err != nil:
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		case resp.StatusCode >= 200:
			return resp, nil
		case resp.StatusCode == http.StatusSwitchingProtocols:
			return nil, errors.New("the service wants another protocol, which nobody has asked for")
		}
	}
}

// errNoReply is an EOF in words: the service has closed the connection.
var errNoReply = fmt.Errorf("the service closed the connection without a reply: %w", io.EOF)

// A leanBody is the body of an answer. Its end gives the connection back.
type leanBody struct {
	c    *leanConn
	ctx  context.Context
	stop func() bool // of what watches ctx
	body io.Reader
	keep bool // the connection may be used again
	err  error
}

var errBodyClosed = errors.New("read on a closed response body")

// Read implements [io.Reader].
func (b *leanBody) Read(p []byte) (n int, err error) {
	if b.err != nil {
		return 0, b.err
	}
	n, err = b.body.Read(p)
	if err == nil {
		return n, nil
	}
	if !errors.Is(err, io.EOF) {
		err = endOfContext(b.ctx, err)
	}
	b.err = err
	b.end(errors.Is(err, io.EOF))
	return n, err
}

// Close implements [io.Closer]. What has not been read is not waited for.
func (b *leanBody) Close() error {
	if b.err == nil {
		b.err = errBodyClosed
		b.end(false)
	}
	return nil
}

// end gives the connection back, when all of the answer has been read, or closes it.
func (b *leanBody) end(whole bool) {
	undisturbed := b.stop()
	surplus := whole && b.c.in.Buffered() > 0
	if whole && b.keep && undisturbed && !surplus {
		b.c.t.put(b.c)
		return
	}
	b.c.conn.Close()
	if surplus && !b.c.saysFarewell() {
		b.c.t.distrust(b.c.addr)
	}
}

// saysFarewell tells whether what is left in the buffer is a 408, with which some services
// end a connection.
func (c *leanConn) saysFarewell() bool {
	const farewell = "HTTP/1.1 408"
	rest, _ := c.in.Peek(min(c.in.Buffered(), len(farewell)))
	return string(rest) == farewell
}

// An unzipped is a body that the service has compressed, as it was offered.
type unzipped struct {
	*leanBody
	zip *gzip.Reader
	bad error
}

// Read implements [io.Reader].
func (u *unzipped) Read(p []byte) (n int, err error) {
	if u.zip == nil && u.bad == nil {
		u.zip, u.bad = gzip.NewReader(u.leanBody)
	}
	if u.bad != nil {
		return 0, u.bad
	}
	if u.err != nil && !errors.Is(u.err, io.EOF) {
		return 0, u.err
	}
	return u.zip.Read(p)
}
