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

// This file makes the requests that flows consist of: small ones over plain HTTP/1.1. The goroutine of the caller writes
// the request and reads the response, where net/http wakes two others for each. All that is out of the ordinary goes by
// net/http.

const (
	leanBody = 32 << 10 // most bytes of a request's body; the system takes so many at once
	leanIdle = 90 * time.Second

	leanBuffer = 1 << 10 // takes most responses whole
)

// Buffers of requests and responses. A call that waits for its response has neither.
var (
	leanOuts = sync.Pool{New: func() any { return new([]byte) }}
	leanIns  = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, leanBuffer) }}
)

// A leanTransport keeps the connections on which callers make requests.
type leanTransport struct {
	dial     func(ctx context.Context, network, addr string) (net.Conn, error)
	distrust func(host string) // told of hosts that have sent what nobody has asked for
	most     int               // idle connections to one host; twice that in all

	mu     sync.Mutex             // guards the following
	idle   map[string][]*leanConn // by host:port; the one that was used last is the last
	idling int
	sweep  *time.Timer // nil while nothing is idle
}

// A leanConn is a connection with at most one request under way.
type leanConn struct {
	net.Conn
	t     *leanTransport
	addr  string
	raw   syscall.RawConn // nil when what has come cannot be seen
	in    *bufio.Reader   // of the response that comes; nil elsewhere
	since time.Time       // idle

	left int     // bytes that the header of the response may still have; negative in the body
	came bool    // some of the response
	now  uintptr // what to read of without waiting; 0: wait
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

// isWord reports whether text consists of letters, digits and what more has.
func isWord(text, more string) bool {
	for i := range len(text) {
		if c := text[i]; (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') && strings.IndexByte(more, c) < 0 {
			return false
		}
	}
	return text != ""
}

// isLine reports whether text is without control characters.
func isLine(text string) bool {
	for i := range len(text) {
		if c := text[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// errUnanswered is the end of a connection that was used before: the service may have closed it while it was idle.
var errUnanswered = errors.New("the connection has ended without a reply")

// roundTrip makes a request to addr. The error is errUnanswered when another connection may do better.
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

// open makes a connection, on a goroutine of its own: that takes a deep stack, which the goroutine of the caller would
// keep for as long as it waits for the response.
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

// take returns an idle connection that is still good; nil when there is none.
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

// closeOldest closes the connection that has been idle for longest. The caller holds the lock.
func (t *leanTransport) closeOldest() {
	oldest := ""
	for addr, list := range t.idle {
		if len(list) > 0 && (oldest == "" || list[0].since.Before(t.idle[oldest][0].since)) {
			oldest = addr
		}
	}
	t.closeFirst(oldest, 1)
}

// closeIdle closes the connections that have been idle for so long.
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

// closeFirst closes the n connections to addr that have been idle for longest. The caller holds the lock.
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

// await waits for the response, and takes a buffer when it has come.
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
		if err == nil || waited { // a connection that has ended says so when it is read again
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

// end gives the buffer back.
func (c *leanConn) end() {
	if c.in != nil {
		c.in.Reset(nil)
		leanIns.Put(c.in)
		c.in = nil
	}
}

// isQuiet reports whether an idle connection is open, and nothing has come on it that would be taken for the response to
// the next request.
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

// farewell is how a 408 begins, with which some services end an idle connection.
var farewell = regexp.MustCompile(`^HTTP/1\.[01] 408`)

// report tells of what nobody has asked for.
func (c *leanConn) report(data []byte) {
	if !farewell.Match(data) {
		c.t.distrust(c.addr)
	}
}

// exchange sends a request and reads the header of the response. The connection belongs to the body of the response then;
// after an error it is closed.
func (c *leanConn) exchange(r *http.Request) (*http.Response, error) {
	ctx := r.Context()
	// Whoever waits for the connection is woken when ctx ends.
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

// endOf returns the cause of an error that comes of the end of ctx.
func endOf(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if end, ok := ctx.Deadline(); ok && !time.Now().Before(end) {
		return context.DeadlineExceeded // which ctx is just about to find
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

// send writes a request. The error refused is not the last word: a service may have answered before it had read all.
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

// offersGzip reports whether the response may be compressed for the way, as net/http decides it.
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

// A leanReply is the body of a response. Its end gives the connection back.
type leanReply struct {
	c    *leanConn
	ctx  context.Context
	stop func() bool // of what watches ctx
	body io.Reader
	keep bool // the connection may be used again
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

// Close implements [io.Closer]. What has not been read is not waited for.
func (b *leanReply) Close() error {
	if b.err == nil {
		b.err = http.ErrBodyReadAfterClose
		b.end(false)
	}
	return nil
}

// end gives the connection back, when all of the response has been read, or closes it.
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

// An unzipped is a body that the service has compressed, as it was offered.
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
