package outbound

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// This file makes the typical requests of flows: small ones over plain HTTP/1.1. The caller's
// goroutine writes the request and reads the response, while net/http wakes two more goroutines for
// each request. Unusual requests use net/http.

const (
	leanBody = 32 << 10 // the most bytes of a request's body; the system takes that many at once
	leanIdle = 90 * time.Second

	leanBuffer = 1 << 10 // holds most responses whole
)

// Buffers of requests and responses. A call that waits for its response has none.
var (
	leanOuts = sync.Pool{New: func() any { return new([]byte) }}
	leanIns  = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, leanBuffer) }}
)

// A leanTransport keeps idle connections for requests.
type leanTransport struct {
	dial     func(ctx context.Context, network, addr string) (net.Conn, error)
	distrust func(host string) // called for hosts that have sent an unrequested response
	most     int               // idle connections per host; twice that in total

	mu     sync.Mutex             // guards the following
	idle   map[string][]*leanConn // by host:port; the most recently used one is last
	idling int
	sweep  *time.Timer // nil if nothing is idle
}

// A leanConn is a connection with at most one request in flight.
type leanConn struct {
	net.Conn
	t     *leanTransport
	addr  string
	raw   syscall.RawConn // nil if received data cannot be checked
	in    *bufio.Reader   // of the current response; otherwise nil
	since time.Time       // idle

	left int     // bytes that the header of the response may still have; negative in the body
	came bool    // a part of the response has arrived
	now  uintptr // what to read without waiting; 0: wait
}

// isLean reports whether leanTransport can make a request.
func isLean(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
	default:
		return false
	}
	if r.URL.Scheme != "http" || r.Close || len(r.TransferEncoding) > 0 || len(r.Trailer) > 0 ||
		hasBody(r) && (r.ContentLength <= 0 || r.ContentLength > leanBody) ||
		!isWord(cmp.Or(r.Host, r.URL.Host), "-._:[]") || !isLine(r.URL.RequestURI()) {
		return false
	}
	for name, values := range r.Header {
		switch name {
		case "Connection", "Content-Length", "Expect", "Host", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade":
			return false
		}
		if !isWord(name, "-_") || slices.ContainsFunc(values, func(v string) bool { return !isLine(v) }) {
			return false
		}
	}
	return true
}

func hasBody(r *http.Request) bool { return r.Body != nil && r.Body != http.NoBody }

// isWord reports whether text consists of letters, digits and the characters of more.
func isWord(text, more string) bool {
	for i := range len(text) {
		if c := text[i]; (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') && strings.IndexByte(more, c) < 0 {
			return false
		}
	}
	return text != ""
}

// isLine reports whether text has no control characters.
func isLine(text string) bool {
	for i := range len(text) {
		if c := text[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// errUnanswered is the end of a reused connection. The service may have closed it while it was
// idle.
var errUnanswered = errors.New("the connection has ended without a reply")

// roundTrip makes a request to addr. The error is errUnanswered if another connection may succeed.
func (t *leanTransport) roundTrip(r *http.Request, addr string) (*http.Response, error) {
	ctx := r.Context()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	c := t.take(addr)
	used := c != nil
	if !used {
		var err error
		if c, err = t.open(ctx, addr); err != nil {
			return nil, endOf(ctx, err)
		}
	}
	resp, err := c.exchange(r)
	if err != nil && used && !c.came && ctx.Err() == nil {
		return nil, fmt.Errorf("%w: %w", errUnanswered, err)
	}
	return resp, err
}

// open connects on another goroutine. Connecting needs a deep stack, which the caller's goroutine
// would otherwise keep while it waits for the response.
func (t *leanTransport) open(ctx context.Context, addr string) (c *leanConn, err error) {
	var dialling sync.WaitGroup
	dialling.Go(func() {
		var conn net.Conn
		if conn, err = t.dial(ctx, "tcp", addr); err == nil {
			c = t.newConn(conn, addr)
		}
	})
	dialling.Wait() // no longer than ctx
	return c, err
}

func (t *leanTransport) newConn(conn net.Conn, addr string) *leanConn {
	c := &leanConn{Conn: conn, t: t, addr: addr}
	if s, ok := conn.(syscall.Conn); ok {
		c.raw, _ = s.SyscallConn()
	}
	return c
}

// take returns an idle connection that still works, or nil.
func (t *leanTransport) take(addr string) *leanConn {
	for {
		t.mu.Lock()
		list := t.idle[addr]
		if len(list) == 0 {
			t.mu.Unlock()
			return nil
		}
		c := list[len(list)-1]
		t.idle[addr] = slices.Delete(list, len(list)-1, len(list))
		t.idling--
		t.mu.Unlock()
		if c.isQuiet() {
			return c
		}
		c.Close()
	}
}

// put keeps a connection for later.
func (t *leanTransport) put(c *leanConn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.idle[c.addr]) >= t.most {
		c.Close()
		return
	}
	if t.idling >= 2*t.most {
		t.closeOldest()
	}
	c.since = time.Now()
	t.idle[c.addr] = append(t.idle[c.addr], c)
	t.idling++
	if t.sweep == nil {
		t.sweep = time.AfterFunc(leanIdle, func() { t.closeIdle(leanIdle) })
	}
}

// closeOldest closes the connection that has been idle longest. The caller holds the lock.
func (t *leanTransport) closeOldest() {
	oldest := ""
	for addr, list := range t.idle {
		if len(list) > 0 && (oldest == "" || list[0].since.Before(t.idle[oldest][0].since)) {
			oldest = addr
		}
	}
	t.closeFirst(oldest, 1)
}

// closeIdle closes the connections that have been idle for at least age.
func (t *leanTransport) closeIdle(age time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for addr, list := range t.idle {
		old := slices.IndexFunc(list, func(c *leanConn) bool { return time.Since(c.since) < age })
		if old < 0 {
			old = len(list)
		}
		t.closeFirst(addr, old)
	}
	if t.sweep != nil {
		t.sweep.Stop()
		t.sweep = nil
	}
	if t.idling > 0 {
		t.sweep = time.AfterFunc(leanIdle/2, func() { t.closeIdle(leanIdle) })
	}
}

// closeFirst closes the n connections to addr that have been idle longest. The caller holds the
// lock.
func (t *leanTransport) closeFirst(addr string, n int) {
	for _, c := range t.idle[addr][:n] {
		c.Close()
	}
	t.idling -= n
	if t.idle[addr] = slices.Delete(t.idle[addr], 0, n); len(t.idle[addr]) == 0 {
		delete(t.idle, addr)
	}
}

// Read implements [io.Reader] for the buffer.
func (c *leanConn) Read(p []byte) (int, error) {
	if c.left >= 0 {
		if c.left == 0 {
			return 0, fmt.Errorf("the header of the reply is longer than %d bytes", mostHeader)
		}
		p = p[:min(len(p), c.left)]
	}
	n, err := c.read(p)
	if n > 0 {
		c.came = true
	}
	if c.left >= 0 {
		c.left -= n
	}
	return n, err
}

// errQuiet reports that nothing has come yet.
var errQuiet = errors.New("nothing has come")

func (c *leanConn) read(p []byte) (int, error) {
	if c.now == 0 {
		return c.Conn.Read(p)
	}
	n, _ := readNow(c.now, p)
	if n > 0 {
		return n, nil
	}
	return 0, errQuiet
}

// await waits for the response, and takes a buffer when it arrives.
func (c *leanConn) await() error {
	if c.raw == nil {
		c.begin()
		return nil
	}
	waited := false
	return c.raw.Read(func(fd uintptr) bool {
		c.begin()
		c.now = fd
		_, err := c.in.Peek(1)
		c.now = 0
		if err == nil || waited { // an ended connection reports that at the next read
			return true
		}
		c.end()
		waited = true
		return false
	})
}

// begin takes a buffer for a response.
func (c *leanConn) begin() {
	c.in, _ = leanIns.Get().(*bufio.Reader)
	c.in.Reset(c)
}

// end returns the buffer.
func (c *leanConn) end() {
	if c.in != nil {
		c.in.Reset(nil)
		leanIns.Put(c.in)
		c.in = nil
	}
}

// isQuiet reports whether an idle connection is open and has no data that would be taken for the
// next response.
func (c *leanConn) isQuiet() bool {
	if c.raw == nil {
		return false
	}
	var b [16]byte
	n, quiet := 0, false
	err := c.raw.Read(func(fd uintptr) bool {
		n, quiet = readNow(fd, b[:])
		return true
	})
	if n > 0 {
		c.report(b[:n])
	}
	return err == nil && quiet
}

// farewell matches the start of a 408, with which some services end an idle connection.
var farewell = regexp.MustCompile(`^HTTP/1\.[01] 408`)

// report reports an unrequested response.
func (c *leanConn) report(data []byte) {
	if !farewell.Match(data) {
		c.t.distrust(c.addr)
	}
}

// exchange sends a request and reads the header of the response. Then the connection belongs to the
// body of the response. After an error it is closed.
func (c *leanConn) exchange(r *http.Request) (*http.Response, error) {
	ctx := r.Context()
	// The end of ctx wakes a goroutine that waits for the connection.
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	c.left, c.came = mostHeader, false
	if trace := httptrace.ContextClientTrace(ctx); trace != nil && trace.GotConn != nil {
		trace.GotConn(httptrace.GotConnInfo{Conn: c})
	}
	resp, err := c.talk(r)
	if err != nil {
		stop()
		c.end()
		c.Close()
		return nil, endOf(ctx, err)
	}
	c.left = -1
	b := &leanReply{c: c, ctx: ctx, stop: stop, body: resp.Body, keep: !resp.Close && resp.StatusCode != http.StatusSwitchingProtocols}
	if resp.Body == http.NoBody || r.Method == http.MethodHead {
		b.end(true)
		return resp, nil
	}
	resp.Body = b
	if offersGzip(r) && strings.EqualFold(resp.Header.Get("Content-Encoding"), "gzip") {
		resp.Body = &unzipped{leanReply: b}
		resp.Header.Del("Content-Encoding")
		resp.Header.Del("Content-Length")
		resp.ContentLength, resp.Uncompressed = -1, true
	}
	return resp, nil
}

// endOf returns the cause of an error that the end of ctx has caused.
func endOf(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if end, ok := ctx.Deadline(); ok && !time.Now().Before(end) {
		return context.DeadlineExceeded // ctx is about to report it
	}
	return err
}

func (c *leanConn) talk(r *http.Request) (*http.Response, error) {
	refused, err := c.send(r)
	if err != nil {
		return nil, err
	}
	if err := c.await(); err != nil {
		return nil, cmp.Or(refused, err)
	}
	for {
		if _, err := c.in.Peek(1); err != nil {
			return nil, cmp.Or(refused, err)
		}
		resp, err := http.ReadResponse(c.in, r)
		if err != nil || resp.StatusCode >= 200 || resp.StatusCode == http.StatusSwitchingProtocols {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return resp, err
		}
	}
}

// send writes a request. The error refused is not final, because a service may answer before it has
// read everything.
func (c *leanConn) send(r *http.Request) (refused, err error) {
	out, _ := leanOuts.Get().(*[]byte)
	if *out, err = compose((*out)[:0], r); err == nil {
		_, refused = c.Write(*out)
	}
	if cap(*out) <= 8<<10 {
		leanOuts.Put(out)
	}
	return refused, err
}

// offersGzip reports whether the response may be compressed, by the rule of net/http.
func offersGzip(r *http.Request) bool {
	return r.Method != http.MethodHead && len(r.Header["Accept-Encoding"])+len(r.Header["Range"]) == 0
}

// compose appends a request to a buffer.
func compose(b []byte, r *http.Request) ([]byte, error) {
	add := func(texts ...string) {
		for _, text := range texts {
			b = append(b, text...)
		}
	}
	add(r.Method, " ", r.URL.RequestURI(), " HTTP/1.1\r\nHost: ", cmp.Or(r.Host, r.URL.Host), "\r\n")
	if _, named := r.Header["User-Agent"]; !named {
		add("User-Agent: Go-http-client/1.1\r\n")
	}
	for name, values := range r.Header {
		for _, v := range values {
			add(name, ": ", v, "\r\n")
		}
	}
	if offersGzip(r) {
		add("Accept-Encoding: gzip\r\n")
	}
	switch {
	case hasBody(r):
		b = append(strconv.AppendInt(append(b, "Content-Length: "...), r.ContentLength, 10), "\r\n\r\n"...)
		head := len(b)
		b = slices.Grow(b, int(r.ContentLength))[:head+int(r.ContentLength)]
		if _, err := io.ReadFull(r.Body, b[head:]); err != nil {
			return b, fmt.Errorf("read the body of the request: %w", err)
		}
		r.Body.Close()
	case r.Method == http.MethodPost, r.Method == http.MethodPut, r.Method == http.MethodPatch:
		add("Content-Length: 0\r\n\r\n")
	default:
		add("\r\n")
	}
	return b, nil
}

// A leanReply is the body of a response. Its end returns the connection.
type leanReply struct {
	c    *leanConn
	ctx  context.Context
	stop func() bool // stops watching ctx
	body io.Reader
	keep bool // the connection may be reused
	err  error
}

// Read implements [io.Reader].
func (b *leanReply) Read(p []byte) (n int, err error) {
	if b.err != nil {
		return 0, b.err
	}
	n, err = b.body.Read(p)
	if err == nil {
		return n, nil
	}
	if !errors.Is(err, io.EOF) {
		err = endOf(b.ctx, err)
	}
	b.err = err
	b.end(errors.Is(err, io.EOF))
	return n, err
}

// Close implements [io.Closer]. It does not wait for the unread rest.
func (b *leanReply) Close() error {
	if b.err == nil {
		b.err = http.ErrBodyReadAfterClose
		b.end(false)
	}
	return nil
}

// end keeps the connection if the whole response has been read, or else closes it.
func (b *leanReply) end(whole bool) {
	undisturbed := b.stop()
	if n := b.c.in.Buffered(); whole && n > 0 {
		more, _ := b.c.in.Peek(n)
		b.c.report(more)
		whole = false
	}
	b.c.end()
	if whole && b.keep && undisturbed {
		b.c.t.put(b.c)
		return
	}
	b.c.Close()
}

// An unzipped is a body that the service has compressed, as offered.
type unzipped struct {
	*leanReply
	zip *gzip.Reader
	bad error
}

// Read implements [io.Reader].
func (u *unzipped) Read(p []byte) (n int, err error) {
	if u.zip == nil && u.bad == nil {
		u.zip, u.bad = gzip.NewReader(u.leanReply)
	}
	if u.bad != nil {
		return 0, u.bad
	}
	if u.err != nil && !errors.Is(u.err, io.EOF) {
		return 0, u.err
	}
	return u.zip.Read(p)
}
