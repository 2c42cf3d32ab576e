package route

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"procaas/engine"
	"procaas/engine/budget"
	"procaas/engine/clock"
	"procaas/handlers/balancer/language"
)

// ProxyOptions configures a [Proxy]. Follower, Key and Transport are required.
type ProxyOptions struct {
	// Follower must be running. The proxy only reads it.
	Follower *Follower

	// Key says where requests have their key.
	Key language.KeyPlace

	// Patience is how long a request waits for a worker that serves its partition. 0 means
	// [DefaultPatience]. It does not bound the worker's own work.
	Patience time.Duration

	// Silence is how long a worker may be silent before and within its answer, and a caller within
	// its body or while it should read. 0 means [DefaultSilence]. It does not bound connections that use another protocol.
	Silence time.Duration

	// Replay is the largest body in bytes that is kept to be sent again. A larger one is sent only
	// once, after a worker has asked for it. So are streams, and bodies that do not fit into Memory.
	// 0 means [DefaultReplay].
	Replay int64

	Memory    *budget.Memory    // has the kept bodies; nil for no limit
	Transport http.RoundTripper // required; makes the requests as they are
	Log       *slog.Logger      // nothing is logged when nil

	// Observe receives the status of each ended request, and how often it was sent. It may be nil.
	Observe func(status, attempts int)
}

// These are the defaults of a [Proxy].
const (
	DefaultPatience = 10 * time.Second
	DefaultSilence  = time.Minute
	DefaultReplay   = 1 << 20
)

// These are the problem codes of a proxy.
const (
	CodeMissingKey  = "missing_key"   // 400
	CodeMissingBody = "missing_body"  // 400: the body broke off
	CodeNoWorker    = "no_worker"     // 503: no worker served the partition in time
	CodeFailed      = "worker_failed" // 502, or 504 after silence: it is unknown what the worker has done
)

// A Proxy passes requests on to the workers of their keys. While a partition moves, it resends its
// requests until a worker accepts them. A request that a worker may have read is sent once more at
// most: to another worker, and only if a retry is harmless.
type Proxy struct {
	o       ProxyOptions
	reverse httputil.ReverseProxy
}

// NewProxy makes a proxy.
func NewProxy(o ProxyOptions) *Proxy {
	if o.Patience <= 0 {
		o.Patience = DefaultPatience
	}
	if o.Replay <= 0 {
		o.Replay = DefaultReplay
	}
	if o.Silence <= 0 {
		o.Silence = DefaultSilence
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Observe == nil {
		o.Observe = func(int, int) {}
	}
	p := &Proxy{o: o}
	p.reverse = httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			// The proxy sets the partition for each attempt. A caller must not.
			r.Out.Header.Del(engine.HeaderPartition)
			r.Out.Header.Del(engine.HeaderAssignment)
			// The reverse proxy has removed what net/url cannot parse, and the values of trailers come
			// with the end of the body.
			r.Out.URL.RawQuery, r.Out.Trailer = r.In.URL.RawQuery, r.In.Trailer
			// The reverse proxy has removed the header. Keep it, and add the caller's address.
			r.Out.Header["X-Forwarded-For"] = r.In.Header["X-Forwarded-For"]
			r.SetXForwarded()
		},
		Transport: p, ErrorLog: slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug), ErrorHandler: p.failed,
		ModifyResponse: func(r *http.Response) error {
			p.o.Observe(r.StatusCode, attemptsOf(r.Request.Context()))
			return nil
		},
	}
	return p
}

// passing is the state of a request in the proxy.
type passing struct {
	key      string
	kept     *budget.Holder // of the body
	attempts atomic.Int64
}

type passingKey struct{}

// attemptsOf returns how often a request was sent to a worker.
func attemptsOf(ctx context.Context) int {
	x, _ := ctx.Value(passingKey{}).(*passing)
	if x == nil {
		return 0
	}
	return int(x.attempts.Load())
}

// ServeHTTP implements [http.Handler].
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key, err := keyOf(r, p.o.Key)
	if err != nil {
		p.refuse(w, http.StatusBadRequest, CodeMissingKey, "The request has no key", err.Error())
		return
	}
	kept := p.o.Memory.Hold(budget.Proxied)
	defer kept.Close()
	out := http.NewResponseController(w)
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = &steadyBody{ReadCloser: r.Body, out: out, silence: p.o.Silence}
	}
	_ = out.EnableFullDuplex()                               // a worker may answer a stream before it ends
	defer func() { _ = out.SetWriteDeadline(time.Time{}) }() // for the next request of the connection
	p.reverse.ServeHTTP(&steadyWriter{w, out, p.o.Silence}, r.WithContext(context.WithValue(r.Context(), passingKey{}, &passing{key: key, kept: kept})))
}

// failed answers a request that no worker has answered.
func (p *Proxy) failed(w http.ResponseWriter, r *http.Request, err error) {
	if errors.As(err, new(*bodyError)) {
		p.refuse(w, http.StatusBadRequest, CodeMissingBody, "The body has not come", err.Error())
		return
	}
	attempts := attemptsOf(r.Context())
	if errors.Is(r.Context().Err(), context.Canceled) {
		// Possibly nobody reads it. But a caller that has closed only its own half does, and would
		// take no answer for a 200.
		p.o.Observe(499, attempts)
		p.problem(w, http.StatusBadGateway, CodeFailed, "The caller hung up before the answer", "it is unknown whether the request took effect")
		return
	}
	if none, ok := errors.AsType[*noWorkerError](err); ok {
		p.o.Log.Warn("no worker in time", "partition", none.partition, "attempts", attempts, "error", err)
		w.Header().Set("Retry-After", "1")
		p.o.Observe(http.StatusServiceUnavailable, attempts)
		p.problem(w, http.StatusServiceUnavailable, CodeNoWorker, "No worker serves the partition", none.Error())
		return
	}
	status := http.StatusBadGateway
	if errors.Is(err, errSilent) {
		status = http.StatusGatewayTimeout
	}
	p.o.Log.Warn("a worker failed", "attempts", attempts, "error", err)
	p.o.Observe(status, attempts)
	p.problem(w, status, CodeFailed, "The worker has not answered", "it is unknown whether the request took effect; "+
		"send it again if a retry is harmless")
}

// refuse answers a request that is not sent to a worker.
func (p *Proxy) refuse(w http.ResponseWriter, status int, code, title, detail string) {
	p.o.Observe(status, 0)
	p.problem(w, status, code, title, detail)
}

// problem answers like the API, so that callers read only one kind of error.
func (p *Proxy) problem(w http.ResponseWriter, status int, code, title, detail string) {
	body, err := json.Marshal(map[string]any{
		"type": "urn:procaas:problem:" + code, "title": title, "status": status, "detail": detail, "code": code,
	})
	if err != nil {
		panic(fmt.Errorf("encode a problem: %w", err))
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // an error means that the client has gone
}

// A noWorkerError says that no worker accepted a request in time, so none has seen it.
type noWorkerError struct {
	partition int   // -1 while no assignment is known
	last      error // why the last attempt failed
}

// Error implements error.
func (e *noWorkerError) Error() string {
	return fmt.Sprintf("no worker took the request for partition %d in time: %v", e.partition, e.last)
}

var errNotHeld = errors.New("the worker does not serve it")

// These are the pauses before a request is sent again.
const (
	leastRetry = 2 * time.Millisecond
	mostRetry  = 200 * time.Millisecond
)

// RoundTrip implements [http.RoundTripper] for the reverse proxy. It sends a request until a worker
// accepts it.
func (p *Proxy) RoundTrip(r *http.Request) (*http.Response, error) {
	x := r.Context().Value(passingKey{}).(*passing)
	body, err := p.bodyOf(r, x.kept)
	if err != nil {
		return nil, err
	}
	patience, cancel := context.WithTimeout(r.Context(), p.o.Patience)
	defer cancel()
	none := &noWorkerError{partition: -1, last: ErrUnknown}
	var reached error // a worker may have read the request, and this is how it failed
	reader := ""      // the URL of that worker
	for pause := leastRetry; ; pause = min(2*pause, mostRetry) {
		to, err := p.o.Follower.Route(x.key)
		if to.Version > 0 {
			none.partition = to.Partition
		}
		switch {
		case err != nil:
		case reached != nil && to.Worker.URL == reader:
			if p.answers(patience, to) {
				return nil, reached // it lives, and would do it twice
			}
		default:
			var reply *http.Response
			x.attempts.Add(1)
			if reply, err = p.send(r, to, body); err == nil {
				return reply, nil
			}
			unread := errors.Is(err, errNotHeld) || errors.As(err, new(*unsentError))
			if body.spent() || !unread && (reached != nil || !harmless(r)) {
				return nil, err
			}
			if !unread {
				reached, reader, pause = err, to.Worker.URL, leastRetry
			}
		}
		if err != nil {
			none.last = err
		}
		p.await(patience, to.Version, pause)
		if r.Context().Err() != nil {
			return nil, r.Context().Err()
		}
		switch {
		case patience.Err() == nil:
		case reached != nil:
			return nil, reached
		default:
			return nil, none
		}
	}
}

// answers reports whether a worker lives.
func (p *Proxy) answers(ctx context.Context, to Route) bool {
	ctx, cancel := context.WithTimeout(ctx, lastWord)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(to.Worker.URL, "/")+"/ping", nil)
	if err != nil {
		return false
	}
	reply, err := p.o.Transport.RoundTrip(r)
	if err != nil {
		return false
	}
	reply.Body.Close()
	return true
}

// await waits a while for a newer assignment. The worker may also be about to serve its new
// partition.
func (p *Proxy) await(ctx context.Context, after int64, pause time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, pause)
	defer cancel()
	_, _ = p.o.Follower.Newer(ctx, after)
}

// send makes one attempt.
func (p *Proxy) send(r *http.Request, to Route, body *replay) (*http.Response, error) {
	base, err := url.Parse(to.Worker.URL)
	if err != nil {
		return nil, &unsentError{err}
	}
	connected := false
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected = true }}
	ctx, watch := watchFor(r.Context(), p.o.Silence)
	if harmless(r) {
		var settled func()
		// Other requests cannot be sent again, so leaving a worker that hangs would not help.
		ctx, settled = p.whileOwner(ctx, to)
		defer settled()
	}
	out := r.Clone(httptrace.WithClientTrace(ctx, trace))
	out.Trailer = r.Trailer // its values come with the end of the body
	out.URL.Scheme, out.URL.Host = base.Scheme, base.Host
	if prefix := strings.TrimSuffix(base.EscapedPath(), "/"); prefix != "" {
		out.URL.RawPath = prefix + r.URL.EscapedPath()
		out.URL.Path = strings.TrimSuffix(base.Path, "/") + r.URL.Path
	}
	out.Header.Set(engine.HeaderPartition, strconv.Itoa(to.Partition))
	out.Header.Set(engine.HeaderAssignment, strconv.FormatInt(to.Version, 10))
	sent := body.attempt(out, watch)
	reply, err := p.o.Transport.RoundTrip(out)
	sent.seal()
	if err != nil {
		watch.end()
		if !connected {
			return nil, &unsentError{err}
		}
		return nil, err
	}
	watch.over(reply)
	switch {
	// Without the header the 421 is the service's own answer, which the caller gets.
	case reply.StatusCode == http.StatusMisdirectedRequest && reply.Header.Get(engine.HeaderAssignment) != "":
		_, _ = io.CopyN(io.Discard, reply.Body, 4<<10) // so that the connection can be reused
		return nil, errors.Join(errNotHeld, reply.Body.Close())
	}
	return reply, nil
}

// An unsentError says that a request has not reached its worker.
type unsentError struct{ error }

func (e *unsentError) Unwrap() error { return e.error }

// lastWord is how long a worker may still answer after another one has got its partition.
const lastWord = 2 * time.Second

// whileOwner returns a context that ends a while after the partition has gone to another worker, if
// the old one has not answered. It may hang. settled ends the watch without ending the context.
func (p *Proxy) whileOwner(ctx context.Context, to Route) (owned context.Context, settled func()) {
	owned, leave := context.WithCancel(ctx) // it ends with the request at the latest
	watched, settled := context.WithCancel(ctx)
	go func() {
		for after := to.Version; ; {
			a, err := p.o.Follower.Newer(watched, after)
			if err != nil {
				return
			}
			if now, _ := a.Owner(to.Partition); now.URL != to.Worker.URL {
				break
			}
			after = a.Version
		}
		if clock.Pause(watched, lastWord); watched.Err() == nil {
			leave()
		}
	}()
	return owned, settled
}

// harmless reports whether a request may be repeated: its method is idempotent by RFC 9110, or its
// sender has made it so.
func harmless(r *http.Request) bool {
	if r.Header.Get("Idempotency-Key") != "" {
		return true
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodPut, http.MethodDelete, http.MethodTrace:
		return true
	}
	return false
}
