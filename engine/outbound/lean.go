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
	"net/textproto"
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

	leanBuffer = 4 << 10 // as in net/http, since it bounds the trailer of a response
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
	asItIs   bool              // requests and responses are not compressed on the way
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
	used  bool            // it was kept after a request

	// Methods as functions, made once for all requests.
	interrupt       func()                // ends what waits for the connection
	onRead, onWrite func(fd uintptr) bool // poll and write

	left    int     // bytes that the header of the response may still have; negative in the body
	sent    bool    // a part of the request may have been sent
	came    bool    // a part of the response has arrived
	now     uintptr // what to read without waiting; 0: wait
	polling polling
	writing writing
	unasked [16]byte // what has come while it was idle

	rest chan struct{} // closed when the rest of a request that did not fit has been written; otherwise nil
}

// A polling is what the polls for the response to a request have done so far.
type polling struct {
	request *http.Request
	asked   bool  // the request was sent
	waited  bool  // a read had to wait
	refused error // of sending the request; the response may be there all the same
	end     error // of the last read
}

// A writing is what the system takes of a text without waiting.
type writing struct {
	text []byte
	n    int
	err  error
}

// isLean reports whether leanTransport can make a request.
func isLean(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
	default:
		return false
	}
	if r.URL.Scheme != "http" || r.Close || len(r.TransferEncoding) > 0 || len(r.Trailer) > 0 {
		return false
	}
	if hasBody(r) && (r.ContentLength <= 0 || r.ContentLength > leanBody) {
		return false
	}
	// Nothing that could end the line, or begin another header.
	if !isWord(cmp.Or(r.Host, r.URL.Host), "-._:[]") || !isLine(r.URL.RequestURI()) {
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
		c := text[i]
		isLetter := 'a' <= c|0x20 && c|0x20 <= 'z'
		isDigit := '0' <= c && c <= '9'
		if !isLetter && !isDigit && strings.IndexByte(more, c) < 0 {
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
// idle. errUnsent is such an end before anything of the request was sent. errStale is one that was found before
// anything of the request was read, so any other connection can make it.
var (
	errUnanswered = errors.New("the connection has ended without a reply")
	errUnsent     = fmt.Errorf("%w, before the request", errUnanswered)
	errStale      = errors.New("the connection has ended while it was idle")
)

// roundTrip makes a request to addr. The error is errUnanswered if another connection may succeed.
func (t *leanTransport) roundTrip(r *http.Request, addr string) (*http.Response, error) {
	ctx := r.Context()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	for c := t.take(addr); c != nil; c = t.take(addr) {
		resp, err := c.exchange(r)
		switch {
		case errors.Is(err, errStale):
			continue
		case err == nil, c.came, ctx.Err() != nil, errors.Is(err, errBody):
			return resp, err
		case !c.sent:
			return nil, fmt.Errorf("%w: %w", errUnsent, err)
		}
		return nil, fmt.Errorf("%w: %w", errUnanswered, err)
	}
	c, err := t.open(ctx, addr)
	if err != nil {
		return nil, endOf(ctx, err)
	}
	return c.exchange(r)
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
	c.interrupt = func() { _ = c.SetDeadline(time.Unix(1, 0)) }
	c.onRead, c.onWrite = c.poll, c.write
	return c
}

// take returns the connection that was used last, or nil. The service may have ended it since.
func (t *leanTransport) take(addr string) *leanConn {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := t.idle[addr]
	if len(list) == 0 {
		return nil
	}
	c := list[len(list)-1]
	t.idle[addr] = slices.Delete(list, len(list)-1, len(list))
	t.idling--
	return c
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
	c.since, c.used = time.Now(), true
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
	t.idle[addr] = slices.Delete(t.idle[addr], 0, n)
	if len(t.idle[addr]) == 0 {
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
	return readNow(c.now, p)
}

// poll waits for the response, and takes a buffer when it arrives. It returns true when there is
// something to read, or when the exchange has failed. On a reused connection it first sends the request.
//
// A poll must not wait unless the connection was quiet after the poll had begun, since the system
// reports an arrival or an end only once.
func (c *leanConn) poll(fd uintptr) (done bool) {
	p := &c.polling
	if !p.asked {
		p.asked = true
		if !c.isQuiet(fd) {
			p.end = errStale
			return true
		}
		p.refused, p.end = c.send(p.request)
		if p.end != nil {
			return true
		}
		if p.refused == nil {
			return false // the connection was quiet before the request was sent
		}
	}
	c.begin()
	c.now = fd
	_, p.end = c.in.Peek(1)
	c.now = 0
	if p.waited || !errors.Is(p.end, errQuiet) {
		return true // if it is still quiet, the next read waits for what the system has reported
	}
	c.end()
	p.waited = true
	return false
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
func (c *leanConn) isQuiet(fd uintptr) bool {
	n, err := readNow(fd, c.unasked[:])
	if n > 0 {
		c.report(c.unasked[:n])
	}
	return errors.Is(err, errQuiet)
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
	stop := whenEnded(ctx, c.interrupt)
	c.left, c.sent, c.came = mostHeader, false, false
	resp, err := c.talk(r)
	if err != nil {
		stop()
		c.end()
		c.finish(false)
		return nil, endOf(ctx, err)
	}
	c.left = -1
	b := &leanReply{c: c, ctx: ctx, stop: stop, body: resp.Body, keep: !resp.Close && resp.StatusCode != http.StatusSwitchingProtocols}
	if resp.Body == http.NoBody || r.Method == http.MethodHead {
		b.end(true)
		return resp, nil
	}
	resp.Body = b
	if c.t.offersGzip(r) && strings.EqualFold(resp.Header.Get("Content-Encoding"), "gzip") {
		resp.Body = &unzipped{leanReply: b}
		resp.Header.Del("Content-Encoding")
		resp.Header.Del("Content-Length")
		resp.ContentLength, resp.Uncompressed = -1, true
	}
	return resp, nil
}

// whenEnded is [context.AfterFunc], which allocates more than a context that calls functions itself.
func whenEnded(ctx context.Context, f func()) (stop func() bool) {
	if c, ok := ctx.(interface{ AfterFunc(f func()) func() bool }); ok {
		return c.AfterFunc(f)
	}
	return context.AfterFunc(ctx, f)
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
	refused, err := c.ask(r)
	if err != nil {
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
		if trace := httptrace.ContextClientTrace(r.Context()); trace != nil && trace.Got1xxResponse != nil {
			if err := trace.Got1xxResponse(resp.StatusCode, textproto.MIMEHeader(resp.Header)); err != nil {
				return nil, err
			}
		}
	}
}

// ask sends a request and waits for the response to begin.
func (c *leanConn) ask(r *http.Request) (refused, err error) {
	c.polling = polling{request: r}
	if !c.used {
		c.polling.asked = true
		if c.polling.refused, err = c.send(r); err != nil {
			return nil, err
		}
	}
	if c.raw == nil {
		c.begin()
		return c.polling.refused, nil
	}
	err = c.raw.Read(c.onRead)
	p := c.polling
	c.polling = polling{}
	if err == nil && !errors.Is(p.end, errQuiet) {
		err = p.end
	}
	return p.refused, err
}

// send writes a request. What the system does not take at once is written by another goroutine, so
// that a service may answer before it reads everything. For the same reason the error refused is not
// final.
func (c *leanConn) send(r *http.Request) (refused, err error) {
	if trace := httptrace.ContextClientTrace(r.Context()); trace != nil && trace.GotConn != nil {
		trace.GotConn(httptrace.GotConnInfo{Conn: c})
	}
	out, _ := leanOuts.Get().(*[]byte)
	if *out, err = c.t.compose((*out)[:0], r); err != nil {
		c.recycle(out)
		return nil, err
	}
	n, refused := c.writeNow(*out)
	c.sent = n > 0 || refused == nil
	if n == len(*out) || refused != nil {
		c.recycle(out)
		return refused, nil
	}
	rest := make(chan struct{})
	c.rest = rest
	go func() {
		defer close(rest)
		_, _ = c.Write((*out)[n:]) // an error is one of the connection, which the response reports
		c.recycle(out)
	}()
	return nil, nil
}

// writeNow writes what the system takes at once.
func (c *leanConn) writeNow(b []byte) (n int, err error) {
	if c.raw == nil {
		return 0, nil
	}
	c.writing = writing{text: b}
	err = c.raw.Write(c.onWrite)
	w := c.writing
	c.writing = writing{}
	if errors.Is(w.err, errQuiet) {
		return 0, nil
	}
	return w.n, cmp.Or(err, w.err)
}

// write writes once, without waiting.
func (c *leanConn) write(fd uintptr) (done bool) {
	w := &c.writing
	w.n, w.err = writeNow(fd, w.text)
	return true
}

// recycle keeps the buffer of a request that was written, unless it is large.
func (c *leanConn) recycle(out *[]byte) {
	if cap(*out) <= 8<<10 {
		leanOuts.Put(out)
	}
}

// finish keeps the connection for later, or closes it. It closes it if the service has answered
// before it has read the whole request.
func (c *leanConn) finish(keep bool) {
	rest := c.rest
	if rest != nil {
		select {
		case <-rest:
			c.rest = nil
		default:
			keep = false
		}
	}
	if keep && c.raw != nil {
		c.t.put(c)
		return
	}
	c.Close()
	if rest != nil {
		<-rest // soon, as the connection is closed
	}
}

// offersGzip reports whether the response may be compressed, by the rule of net/http.
func (t *leanTransport) offersGzip(r *http.Request) bool {
	return !t.asItIs && r.Method != http.MethodHead && len(r.Header["Accept-Encoding"])+len(r.Header["Range"]) == 0
}

// compose appends a request to a buffer.
func (t *leanTransport) compose(b []byte, r *http.Request) ([]byte, error) {
	add := func(texts ...string) {
		for _, text := range texts {
			b = append(b, text...)
		}
	}
	add(r.Method, " ", r.URL.RequestURI(), " HTTP/1.1\r\nHost: ", cmp.Or(r.Host, r.URL.Host), "\r\n")
	agent, named := r.Header["User-Agent"]
	switch {
	case !named:
		add("User-Agent: Go-http-client/1.1\r\n")
	case len(agent) > 0 && agent[0] != "":
		add("User-Agent: ", agent[0], "\r\n")
	}
	for name, values := range r.Header {
		if name == "User-Agent" {
			continue
		}
		for _, v := range values {
			add(name, ": ", v, "\r\n")
		}
	}
	if t.offersGzip(r) {
		add("Accept-Encoding: gzip\r\n")
	}
	switch {
	case hasBody(r):
		b = append(strconv.AppendInt(append(b, "Content-Length: "...), r.ContentLength, 10), "\r\n\r\n"...)
		head := len(b)
		b = slices.Grow(b, int(r.ContentLength))[:head+int(r.ContentLength)]
		if err := readBody(r.Body, b[head:]); err != nil {
			return b, err
		}
	case r.Method == http.MethodPost, r.Method == http.MethodPut, r.Method == http.MethodPatch:
		add("Content-Length: 0\r\n\r\n")
	default:
		add("\r\n")
	}
	return b, nil
}

// errBody is the error of a request whose body cannot be sent.
var errBody = errors.New("read the body of the request")

// readBody fills b with a body of this length, and closes it.
func readBody(body io.ReadCloser, b []byte) error {
	if _, err := io.ReadFull(body, b); err != nil {
		return fmt.Errorf("%w: %w", errBody, err)
	}
	if n, _ := io.ReadFull(body, make([]byte, 1)); n > 0 {
		return fmt.Errorf("%w: it is longer than its length, %d bytes", errBody, len(b))
	}
	body.Close()
	return nil
}

// A leanReply is the body of a response. Its end returns the connection.
type leanReply struct {
	c    *leanConn
	ctx  context.Context
	stop func() bool // stops watching ctx
	body io.Reader
	keep bool // the connection may be reused

	reading sync.Mutex // guards err, and body while it is read
	err     error

	state  sync.Mutex // guards the following, and the connection's deadline
	ended  bool       // the connection is not ours any more
	closed bool       // by the caller
}

// Read implements [io.Reader].
func (b *leanReply) Read(p []byte) (n int, err error) {
	b.reading.Lock()
	defer b.reading.Unlock()
	if b.err != nil {
		return 0, b.err
	}
	n, err = b.body.Read(p)
	if err == nil {
		return n, nil
	}
	whole := errors.Is(err, io.EOF)
	if closed := b.end(whole); !whole {
		err = endOf(b.ctx, err)
		if closed {
			err = http.ErrBodyReadAfterClose
		}
	}
	b.err = err
	return n, err
}

// Close implements [io.Closer]. It does not wait for the unread rest, and ends a Read that does.
func (b *leanReply) Close() error {
	b.state.Lock()
	b.closed = true
	if !b.ended {
		_ = b.c.SetDeadline(time.Unix(1, 0))
	}
	b.state.Unlock()
	b.reading.Lock()
	defer b.reading.Unlock()
	if b.err == nil {
		b.err = http.ErrBodyReadAfterClose
		b.end(false)
	}
	return nil
}

// isClosed reports whether the caller has closed the body.
func (b *leanReply) isClosed() bool {
	b.state.Lock()
	defer b.state.Unlock()
	return b.closed
}

// end keeps the connection if the whole response has been read, or else closes it. It reports
// whether the caller has closed the body before.
func (b *leanReply) end(whole bool) (closed bool) {
	undisturbed := b.stop()
	if n := b.c.in.Buffered(); whole && n > 0 {
		more, _ := b.c.in.Peek(n)
		b.c.report(more)
		whole = false
	}
	b.c.end()
	b.state.Lock()
	b.ended = true
	closed = b.closed
	b.state.Unlock()
	b.c.finish(whole && b.keep && undisturbed && !closed)
	return closed
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
	if u.isClosed() {
		return 0, http.ErrBodyReadAfterClose
	}
	if u.bad != nil {
		return 0, u.bad
	}
	return u.zip.Read(p)
}
