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

	"procaas/dsl/cluster"
	"procaas/engine"
	"procaas/engine/clock"
)

// ProxyOptions say how a [Proxy] passes requests on. Follower and Key are needed.
type ProxyOptions struct {
	// Follower must be running: the proxy only reads what it knows.
	Follower *Follower

	// Key is where requests have their key.
	Key cluster.KeyPlace

	// Patience is how long a request waits for a worker that serves its partition;
	// [DefaultPatience] when 0. It does not bound the worker's own work.
	Patience time.Duration

	// Replay is how large a body may be that is kept to be sent again, in bytes. A
	// larger one is sent when a worker has said that it wants it, and then only once.
	// [DefaultReplay] when 0.
	Replay int64

	Transport http.RoundTripper // [NewTransport] when nil
	Log       *slog.Logger      // nothing is logged when nil

	// Observe hears of each request that has ended: its status, and how often it was
	// sent. Nobody hears of them when nil.
	Observe func(status, attempts int)
}

// The bounds of a [Proxy] that sets none itself.
const (
	DefaultPatience = 10 * time.Second
	DefaultReplay   = 1 << 20
)

// The codes of problems that a proxy answers with.
const (
	CodeMissingKey  = "missing_key"   // 400
	CodeMissingBody = "missing_body"  // 400: it broke off
	CodeNoWorker    = "no_worker"     // 503: no worker served the partition in time
	CodeFailed      = "worker_failed" // 502: it is unknown what the worker has done
)

// NewTransport makes the connections of a proxy to its workers. They are never led
// through another proxy.
func NewTransport() *http.Transport {
	return &http.Transport{
		MaxIdleConnsPerHost: 256, MaxIdleConns: 4096, IdleConnTimeout: time.Minute,
		ExpectContinueTimeout: 10 * time.Second, DisableCompression: true, ResponseHeaderTimeout: time.Minute,
	}
}

// A Proxy passes requests on to the workers that serve their keys. Requests that meet a
// partition on its way to another worker are sent again, until a worker takes them.
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
	if o.Transport == nil {
		o.Transport = NewTransport()
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
			// A caller must not say which partition its key is in; the proxy does, for each attempt.
			r.Out.Header.Del(engine.HeaderPartition)
			r.Out.Header.Del(engine.HeaderAssignment)
			// The reverse proxy takes the header out before; it is kept, and the caller's address
			// added to it.
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

// passing is what a request carries through the proxy.
type passing struct {
	key      string
	attempts atomic.Int64
}

type passingKey struct{}

// attemptsOf returns how often a request was sent to a worker; 0 for one that never was.
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
	p.reverse.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), passingKey{}, &passing{key: key})))
}

// failed answers a request that no worker has answered.
func (p *Proxy) failed(w http.ResponseWriter, r *http.Request, err error) {
	if errors.As(err, new(*bodyError)) {
		p.refuse(w, http.StatusBadRequest, CodeMissingBody, "The body has not come", err.Error())
		return
	}
	attempts := attemptsOf(r.Context())
	if errors.Is(r.Context().Err(), context.Canceled) {
		// Perhaps nobody is there to read it; but a caller that has closed only its own half
		// is, and to it no answer would be a 200.
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
	p.o.Log.Warn("a worker failed", "attempts", attempts, "error", err)
	p.o.Observe(http.StatusBadGateway, attempts)
	p.problem(w, http.StatusBadGateway, CodeFailed, "The worker has not answered", "it is unknown whether the request took effect; "+
		"requests that may be repeated are, when their method or the header Idempotency-Key says so")
}

// refuse answers a request that is sent to no worker.
func (p *Proxy) refuse(w http.ResponseWriter, status int, code, title, detail string) {
	p.o.Observe(status, 0)
	p.problem(w, status, code, title, detail)
}

// problem answers as the API does, so that callers need to read one kind of error only.
func (p *Proxy) problem(w http.ResponseWriter, status int, code, title, detail string) {
	body, err := json.Marshal(map[string]any{
		"type": "urn:procaas:problem:" + code, "title": title, "status": status, "detail": detail, "code": code,
	})
	if err != nil {
		panic(fmt.Errorf("encode a problem: %w", err))
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // a failure is the client's: it has gone
}

// A noWorkerError says that no worker took a request in time, and so none has seen it.
type noWorkerError struct {
	partition int   // -1 while no assignment is known
	last      error // why the last attempt came to nothing
}

// Error implements error.
func (e *noWorkerError) Error() string {
	return fmt.Sprintf("no worker took the request for partition %d in time: %v", e.partition, e.last)
}

var errNotHeld = errors.New("the worker does not serve it")

// The pauses before a request is sent again.
const (
	leastRetry = 2 * time.Millisecond
	mostRetry  = 200 * time.Millisecond
)

// RoundTrip implements [http.RoundTripper] for the reverse proxy: it sends a request
// until a worker takes it.
func (p *Proxy) RoundTrip(r *http.Request) (*http.Response, error) {
	x := r.Context().Value(passingKey{}).(*passing)
	body, err := p.bodyOf(r)
	if err != nil {
		return nil, err
	}
	patience, cancel := context.WithTimeout(r.Context(), p.o.Patience)
	defer cancel()
	none := &noWorkerError{partition: -1, last: ErrUnknown}
	var reached error // of a worker that may have done something
	for pause := leastRetry; ; pause = min(2*pause, mostRetry) {
		to, err := p.o.Follower.Route(x.key)
		if to.Version > 0 {
			none.partition = to.Partition
		}
		if err == nil {
			var reply *http.Response
			x.attempts.Add(1)
			if reply, err = p.send(r, to, body); err == nil {
				return reply, nil
			}
			if !errors.Is(err, errNotHeld) && !repeatable(r, err) || body.spent() {
				return nil, err
			}
			if !errors.Is(err, errNotHeld) && !errors.As(err, new(*unsentError)) {
				reached = err
			}
		}
		none.last = err
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

// await waits for a newer assignment, for a while: the worker may be about to take what
// it has been given.
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
	ctx := r.Context()
	if harmless(r) {
		var settled func()
		// Others cannot be sent again, so nothing would be won by leaving a worker that hangs.
		ctx, settled = p.whileOwner(ctx, to)
		defer settled()
	}
	out := r.Clone(httptrace.WithClientTrace(ctx, trace))
	out.URL.Scheme, out.URL.Host = base.Scheme, base.Host
	if prefix := strings.TrimSuffix(base.EscapedPath(), "/"); prefix != "" {
		out.URL.RawPath = prefix + r.URL.EscapedPath()
		out.URL.Path = strings.TrimSuffix(base.Path, "/") + r.URL.Path
	}
	out.Header.Set(engine.HeaderPartition, strconv.Itoa(to.Partition))
	out.Header.Set(engine.HeaderAssignment, strconv.FormatInt(to.Version, 10))
	sent := body.attempt(out)
	reply, err := p.o.Transport.RoundTrip(out)
	sent.seal()
	switch {
	case err != nil && !connected:
		return nil, &unsentError{err}
	case err != nil:
		return nil, err
	// Without the header the 421 is the service's own answer, and the caller's to read.
	case reply.StatusCode == http.StatusMisdirectedRequest && reply.Header.Get(engine.HeaderAssignment) != "":
		_, _ = io.CopyN(io.Discard, reply.Body, 4<<10) // so that the connection can be used again
		return nil, errors.Join(errNotHeld, reply.Body.Close())
	}
	return reply, nil
}

// An unsentError says that a request has not reached its worker.
type unsentError struct{ error }

func (e *unsentError) Unwrap() error { return e.error }

// lastWord is how long a worker may still answer whose partition is another one's.
const lastWord = 2 * time.Second

// whileOwner returns a context that ends when the partition has gone to another worker, and
// the one that was asked has not answered for a while after that: it may hang. settled
// ends the watch, and leaves the context as it is.
func (p *Proxy) whileOwner(ctx context.Context, to Route) (owned context.Context, settled func()) {
	owned, leave := context.WithCancel(ctx) // which ends with the request at the latest
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

// repeatable reports whether a request may be sent again after an error: no worker has seen
// it, or it does no harm twice.
func repeatable(r *http.Request, err error) bool {
	return errors.As(err, new(*unsentError)) || harmless(r)
}

// harmless reports whether a request may be made twice: its method is idempotent by RFC 9110,
// or its sender has made it so.
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
