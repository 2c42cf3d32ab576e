package simulate

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"time"

	"procaas/dsl/tree"
	"procaas/engine/clock"
	"procaas/engine/core"
)

// These bound what a real run takes from its machine.
const (
	mostRealClients = 5000
	mostRealSpan    = 10 * time.Minute
	mostRealOpen    = 20_000 // attempts from the outage on, since their connections may all stay open
)

// CheckReal returns an error for a scenario that is too large for real connections.
func (s Scenario) CheckReal() error {
	clients := s.Clients
	if s.Fault == FaultSpike {
		clients *= spike
	}
	switch span := s.Before + s.Outage + s.After; {
	case clients > mostRealClients:
		return fmt.Errorf("want at most %d clients for a real run, have %d: take fewer", mostRealClients, clients)
	case span > mostRealSpan:
		return fmt.Errorf("want at most %v for a real run, have %v: take less time", mostRealSpan, span)
	case int64(clients)*int64((s.Outage+s.After)/s.Timeout) > mostRealOpen:
		return fmt.Errorf("more than %d connections may be open at the end: take a shorter outage, less time after it, or fewer clients",
			mostRealOpen)
	}
	return nil
}

// CompareReal is [Compare], and runs the policies of independent clients over real connections, too.
// The report has the real result of a policy after the simulated one. The real runs follow each
// other, and each takes the time of the scenario.
func CompareReal(ctx context.Context, s Scenario, policies []Policy, seeds int) (Report, error) {
	r := Report{Scenario: s}
	for _, p := range policies {
		r.add(JudgeAll(s, p, seeds), delaysOf(s, p.Retry))
		if p.Limited {
			continue
		}
		samples, err := Real(ctx, s, p.Retry)
		if err != nil {
			return r, fmt.Errorf("%s: %w", p.Name, err)
		}
		p.Name += ", real"
		v := judge(s, p, samples)
		v.Real = true
		r.add(v, nil)
	}
	return r, nil
}

// Real is [Backoff] over real connections on the loopback interface, in real time: an HTTP server
// and clients that connect for each request. A stopped server accepts and answers nothing, so the
// system keeps connections in its backlog and retries those beyond it. It ends after the time of
// the scenario, or with ctx.
func Real(ctx context.Context, s Scenario, policy tree.Retry) ([]Sample, error) {
	r := &reality{
		Scenario: s, policy: policy, began: time.Now(), back: make(chan struct{}), over: make(chan struct{}),
		samples: make([]Sample, int((s.Before+s.Outage+s.After)/time.Second)),
	}
	close(r.back)
	ctx, r.fail = context.WithCancelCause(ctx)
	defer r.fail(nil)
	r.server = &http.Server{
		Handler: http.HandlerFunc(r.serve), ReadHeaderTimeout: mostRealSpan, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0),
	}
	r.server.SetKeepAlivesEnabled(false)
	span, end := context.WithTimeout(ctx, time.Duration(len(r.samples))*time.Second)
	defer end()
	if err := r.open(); err != nil {
		return nil, err
	}
	r.address = r.listener.Addr().String()
	var clients sync.WaitGroup
	start := func(lives context.Context, from, to int) {
		for i := from; i < to; i++ {
			rnd := rand.New(rand.NewPCG(s.Seed, uint64(i)))
			clients.Go(func() { r.client(span, lives, rnd) })
		}
	}
	start(span, 0, s.Clients)
	clients.Go(func() { r.answer(span) })
	if clock.Pause(span, s.Before) && s.Outage > 0 {
		fault, over := context.WithTimeout(span, s.Outage)
		r.begin()
		if s.Fault == FaultSpike {
			start(fault, s.Clients, spike*s.Clients)
		}
		<-fault.Done()
		over()
		r.resume()
	}
	<-span.Done()
	r.close()
	clients.Wait()
	r.exchanges.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return r.samples, nil
}

// A reality is a real service with its clients.
type reality struct {
	Scenario
	policy tree.Retry
	began  time.Time
	fail   context.CancelCauseFunc

	exchanges sync.WaitGroup // attempts, including those of clients that have left
	servers   sync.WaitGroup
	address   string
	listener  net.Listener
	server    *http.Server
	over      chan struct{} // closed at the end

	mu       sync.Mutex // guards the following
	faulty   bool
	back     chan struct{} // closed while the service is not stopped
	repeated int
	underway []served // in the service, in the order of their start
	samples  []Sample
}

// A served is a request in the service.
type served struct {
	taken time.Time
	done  chan struct{}
}

// count changes the sample of the current second.
func (r *reality) count(change func(*Sample)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if second := int(time.Since(r.began) / time.Second); second < len(r.samples) {
		change(&r.samples[second])
	}
}

// open starts the service at a port below those that the system gives to others, which may be taken when the service comes back.
func (r *reality) open() (err error) {
	for range 100 {
		if err = r.listen(fmt.Sprint("127.0.0.1:", 10_000+rand.IntN(22_000))); err == nil {
			return nil
		}
	}
	return err
}

// listen starts the service at an address.
func (r *reality) listen(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	if err := setBacklog(l, r.Backlog); err != nil {
		return errors.Join(fmt.Errorf("set the backlog: %w", err), l.Close())
	}
	r.listener = l
	r.servers.Go(func() {
		if err := r.server.Serve(gate{l, r}); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			r.fail(err)
		}
	})
	return nil
}

// A gate is a listener that accepts nothing while the service is stopped.
type gate struct {
	net.Listener
	r *reality
}

func (g gate) Accept() (net.Conn, error) {
	conn, err := g.Listener.Accept()
	g.r.mu.Lock()
	back := g.r.back
	g.r.mu.Unlock()
	<-back
	return conn, err
}

// begin begins the fault.
func (r *reality) begin() {
	r.mu.Lock()
	r.faulty = true
	if r.Fault == FaultStopped {
		r.back = make(chan struct{})
	}
	r.mu.Unlock()
	if r.Fault == FaultRefused {
		_ = r.listener.Close() // requests in the service continue
	}
}

// resume ends the fault.
func (r *reality) resume() {
	r.mu.Lock()
	r.faulty = false
	if r.Fault == FaultStopped {
		close(r.back)
	}
	r.mu.Unlock()
	if r.Fault == FaultRefused {
		if err := r.listen(r.address); err != nil {
			r.fail(err)
		}
	}
}

// close ends the service and all its requests.
func (r *reality) close() {
	close(r.over)
	_ = r.server.Close() // its requests have no results
	r.servers.Wait()
}

// duringFault is the path of requests that were sent during the fault.
const duringFault = "/during-fault"

// serve holds a request until its turn. It does not notice that the client has left.
func (r *reality) serve(w http.ResponseWriter, req *http.Request) {
	one := served{time.Now(), make(chan struct{})}
	r.count(func(s *Sample) {
		r.underway = append(r.underway, one)
		if req.URL.Path == duringFault && !r.faulty {
			s.Late++
		}
		s.Concurrency = max(s.Concurrency, len(r.underway))
	})
	select {
	case <-one.done:
	case <-r.over:
	}
	w.WriteHeader(http.StatusNoContent)
}

// answer answers requests in order, as [world] does, until ctx ends.
func (r *reality) answer(ctx context.Context) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		r.count(func(s *Sample) {
			s.Concurrency, s.Repeated = max(s.Concurrency, len(r.underway)), r.repeated
			for len(r.underway) > 0 && !(r.faulty && r.Fault == FaultStopped) &&
				time.Since(r.underway[0].taken) >= r.latency(len(r.underway), r.faulty) {
				close(r.underway[0].done)
				r.underway = slices.Delete(r.underway, 0, 1)
			}
		})
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// client waits, calls, and if nobody answers pauses and calls again, until ctx ends. It sends no new
// request after the end of lives.
func (r *reality) client(ctx, lives context.Context, rnd *rand.Rand) {
	for clock.Pause(lives, time.Duration(rnd.ExpFloat64()*float64(r.Think))) {
		if r.request(ctx, rnd) > 0 {
			r.count(func(*Sample) { r.repeated-- })
		}
	}
}

// request sends a request until it is answered, and returns how often it failed.
func (r *reality) request(ctx context.Context, rnd *rand.Rand) (failures int) {
	var delay time.Duration
	for !r.attempt(ctx) && ctx.Err() == nil {
		failures++
		if failures == 1 {
			r.count(func(*Sample) { r.repeated++ })
		}
		if r.policy.Attempts > 0 && failures >= r.policy.Attempts {
			r.count(func(s *Sample) { s.GivenUp++ })
			break
		}
		delay = core.NextDelay(r.policy, core.RetryInputs{Number: failures, Before: delay, Noise: rnd.NormFloat64()})
		if !clock.Pause(ctx, delay) {
			break
		}
	}
	return failures
}

// attempt sends a request, and reports whether it was answered in time.
func (r *reality) attempt(ctx context.Context) bool {
	call, leave := context.WithCancel(ctx)
	defer leave()
	connect := ctx // it continues without its client
	if r.Abandon {
		connect = call
	}
	path := "/"
	r.count(func(s *Sample) {
		s.Attempts++
		if r.faulty {
			path = duringFault
		}
	})
	answered := make(chan error, 1)
	r.exchanges.Go(func() { answered <- r.exchange(connect, call, path) })
	late := time.NewTimer(r.Timeout)
	defer late.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-late.C:
		r.count(func(s *Sample) { s.Timeouts++ })
		return false
	case err := <-answered:
		switch {
		case ctx.Err() != nil:
		case err == nil:
			r.count(func(s *Sample) { s.Good++ })
		case errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.EADDRNOTAVAIL):
			r.fail(fmt.Errorf("this process cannot open more connections: take fewer clients or a shorter outage, "+
				"or raise the limit of open files, ulimit -n (%w)", err))
		default:
			r.count(func(s *Sample) { s.Refused++ })
		}
		return err == nil
	}
}

// exchange connects, sends a request, and reads the answer until call ends.
func (r *reality) exchange(connect, call context.Context, path string) error {
	var dialer net.Dialer
	conn, err := dialer.DialContext(connect, "tcp", r.address)
	if err != nil {
		return err
	}
	defer conn.Close()
	req, err := http.NewRequestWithContext(call, http.MethodGet, "http://"+r.address+path, http.NoBody)
	if err != nil {
		return err
	}
	if err := req.Write(conn); err != nil { // a few bytes, which the system takes at once
		return err
	}
	defer context.AfterFunc(call, func() { _ = conn.Close() })()
	reply, err := http.ReadResponse(bufio.NewReader(conn), req)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, reply.Body)
	return err
}
