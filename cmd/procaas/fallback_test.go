package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"procaas/engine/api/client"
	"procaas/engine/api/problem"
	"procaas/engine/api/wire"
	"procaas/engine/checkpoint"
	"procaas/engine/clock"
	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/engine/fallback"
	"procaas/engine/model"
)

// incidentFlows are two pipelines that call the same service for something that
// they can do without, one of them by its address.
const incidentFlows = `services: [{id: core, url: %[1]s}, {id: bonus, url: %[2]s}]
pipelines:
  - id: order
    shared-state: {bonus: null}
    stages:
      - {id: first, handlers: [{id: save, request: {service: core, path: /}}]}
      - id: last
        handlers:
          - id: bonus
            critical: false
            request: {service: bonus, path: /}
            result: {bonus: 1}
            retry: {attempts: 1}
            fallback: {duration: 20s, result: {bonus: 0}}
      - {id: end, handlers: [{id: save-bonus, request: {service: core, path: /, query: {bonus: !$ shared-state.bonus}}}]}
  - id: visit
    stages:
      - {id: first, handlers: [{id: save, request: {service: core, path: /}}]}
      - id: last
        handlers:
          - {id: gift, critical: false, request: {url: "%[2]s/gift"}, retry: {attempts: 1}, fallback: {duration: 20s}}
`

// A sickService is a service that fails while it is down, and remembers when it was called.
type sickService struct {
	down atomic.Bool

	mu    sync.Mutex // guards calls
	calls []time.Time
}

func (s *sickService) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, time.Now())
	if s.down.Load() {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprint(w, "{}")
}

// between counts the calls of a time.
func (s *sickService) between(from, to time.Time) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, at := range s.calls {
		if at.After(from) && at.Before(to) {
			n++
		}
	}
	return n
}

// An incident is nodes that share a PostgreSQL, reached through proxies, under
// load, and the services that they call.
type incident struct {
	t           *testing.T
	dsn, dir    string
	core, bonus sickService
	nodes       []*client.Client
	stops       []func()
	proxies     []*enginetest.Proxy
	calm        atomic.Bool // the API need not answer

	mu   sync.Mutex // guards runs
	runs []string
}

func newIncident(t *testing.T) *incident {
	i := &incident{t: t, dsn: enginetest.MigratedPostgres(t), dir: t.TempDir()}
	core, bonus := httptest.NewServer(&i.core), httptest.NewServer(&i.bonus)
	t.Cleanup(core.Close)
	t.Cleanup(bonus.Close)
	yaml := fmt.Sprintf(incidentFlows, core.URL, bonus.URL)
	if err := os.WriteFile(filepath.Join(i.dir, "a.yaml"), []byte(yaml), 0o644); err != nil {
		t.Fatal(err)
	}
	i.start()
	return i
}

// start starts two nodes.
func (i *incident) start() {
	i.t.Helper()
	i.nodes, i.stops, i.proxies = nil, nil, nil
	for range 2 {
		db, err := url.Parse(i.dsn)
		if err != nil {
			i.t.Fatal(err)
		}
		proxy, err := enginetest.StartProxy(db.Host)
		if err != nil {
			i.t.Fatal(err)
		}
		i.t.Cleanup(func() { _ = proxy.Close() })
		through, err := proxy.Through(i.dsn)
		if err != nil {
			i.t.Fatal(err)
		}
		address, stop := startNodeUntil(i.t, through, i.dir)
		i.nodes, i.stops, i.proxies = append(i.nodes, client.New(address, "")), append(i.stops, stop), append(i.proxies, proxy)
	}
}

// load submits events to both nodes, about 20 a second, until stop.
func (i *incident) load() (stop func()) {
	ctx, cancel := context.WithCancel(i.t.Context())
	var load sync.WaitGroup
	for n, node := range i.nodes {
		load.Go(func() {
			for k := n; ctx.Err() == nil; k++ {
				e := wire.Event{ID: fmt.Sprintf("%d-%d", n, time.Now().UnixNano()), Source: "load", Type: []string{"order", "visit"}[k%2]}
				r, err := node.SubmitEvent(ctx, e)
				// On a busy machine the store may be late, too.
				for late := (*problem.Problem)(nil); errors.As(err, &late) && late.Code == problem.StoreUnavailable && clock.Pause(ctx, 100*time.Millisecond); {
					r, err = node.SubmitEvent(ctx, e)
				}
				switch {
				case err == nil:
					i.mu.Lock()
					i.runs = append(i.runs, r.Run)
					i.mu.Unlock()
				case ctx.Err() == nil && !i.calm.Load():
					i.t.Error(err)
				}
				clock.Pause(ctx, 100*time.Millisecond)
			}
		})
	}
	stop = sync.OnceFunc(func() { cancel(); load.Wait() })
	i.t.Cleanup(stop)
	return stop
}

// fallbacks returns the state of the two handlers, as a node sees it.
func (i *incident) fallbacks(node int) []fallback.View {
	i.t.Helper()
	handlers, err := i.nodes[node].Handlers(i.t.Context())
	if err != nil {
		i.t.Fatal(err)
	}
	var out []fallback.View
	for _, h := range handlers {
		if h.Fallback != nil {
			out = append(out, *h.Fallback)
		}
	}
	return out
}

// wait waits until both handlers are in a state on both nodes.
func (i *incident) wait(state string) []fallback.View {
	i.t.Helper()
	over := patience.Over(2 * time.Minute)
	for {
		seen := append(i.fallbacks(0), i.fallbacks(1)...)
		all := len(seen) == 4
		for _, v := range seen {
			all = all && v.State == state
		}
		switch {
		case all:
			return seen
		case over():
			i.t.Fatalf("want all handlers %s, have %+v", state, seen)
		}
		clock.Pause(i.t.Context(), 20*time.Millisecond)
	}
}

// TestIncidentEndsByItselfOnTwoNodes breaks a service that orders can do without,
// restarts both nodes and cuts PostgreSQL off meanwhile, and then mends it. Nobody does
// anything about it, and no run fails.
func TestIncidentEndsByItselfOnTwoNodes(t *testing.T) {
	t.Parallel()
	i := newIncident(t)
	stop := i.load()
	i.wait(fallback.In)
	clock.Pause(t.Context(), 3*time.Second)
	i.bonus.down.Store(true)
	began := time.Now()
	seen := i.wait(fallback.Out)
	out := time.Now()
	until := seen[0].Until.Add(-50 * time.Millisecond) // as far as clocks are compared
	for _, v := range seen {
		if v.Service != "bonus" || !v.Until.Equal(*seen[0].Until) || *v.Ratio > 0.9 || v.Reason == "" {
			t.Errorf("want one outage of the service on both nodes, have %+v", v)
		}
	}
	t.Logf("out on both nodes after %v and %d failures", out.Sub(began), i.bonus.between(began, out))

	// Both nodes restart. The service is still down, so a slow machine only sees a later outage.
	stop()
	for _, stop := range i.stops {
		stop()
	}
	i.start()
	stop = i.load()
	for _, v := range i.wait(fallback.Out) {
		if !v.Until.Equal(*seen[0].Until) && time.Now().Before(until) {
			t.Errorf("want it out as before the restart, have %+v", v)
		}
	}

	// The store is away for longer than a node may make calls without it.
	i.calm.Store(true)
	const away, lease = 8 * time.Second, 4 * time.Second
	begins := time.Now() // the machine may stop between this and the next line that asks for the time
	for _, p := range i.proxies {
		p.Refuse(away)
	}
	cut := time.Now()
	clock.Pause(t.Context(), away)
	if n := i.core.between(cut.Add(lease+time.Second/2), begins.Add(away)); n != 0 {
		t.Errorf("want no call of anything while switches cannot be known, have %d", n)
	}
	i.wait(fallback.Out)
	i.calm.Store(false)
	i.bonus.down.Store(false)
	if n := i.bonus.between(out.Add(time.Second), until); n != 0 { // calls that had begun may arrive late
		t.Errorf("want no call while it is out, have %d", n)
	}

	i.wait(fallback.In)
	in := time.Now()
	t.Logf("back %v after its time", in.Sub(until))
	if probes := i.bonus.between(until, until.Add(2*time.Second)); probes > 3 {
		t.Errorf("want one probe a second, have %d in two", probes)
	}
	clock.Pause(t.Context(), 2*time.Second)
	stop()
	if n := i.bonus.between(in, time.Now()); n == 0 {
		t.Error("want calls again when it is back")
	}
	i.check()
}

// check compares the runs with what was promised: none is lost or has failed, and
// those that went without the bonus say why.
func (i *incident) check() {
	i.t.Helper()
	skipped := 0
	for _, run := range i.runs {
		v := i.settled(run)
		if v.Status != model.Succeeded {
			i.t.Errorf("run %s is %s: %s", run, v.Status, v.Error)
			continue
		}
		for _, h := range v.Handlers {
			switch {
			case h.Outcome == model.OutcomeSkipped && strings.HasPrefix(h.Reason, "fallback "):
				skipped++
				if h.Path == "order/last/bonus" && fmt.Sprint(v.SharedState["bonus"]) != "0" {
					i.t.Errorf("run %s: want the fallback's result, have %v", run, v.SharedState)
				}
			case h.Outcome != model.OutcomeSucceeded && !strings.Contains(h.Error, "500 from GET"):
				i.t.Errorf("run %s: handler %s is %s: %s %s", run, h.Path, h.Outcome, h.Error, h.Reason)
			}
		}
	}
	if skipped < 20 {
		i.t.Errorf("only %d of %d runs were spared the calls: the test shows nothing", skipped, len(i.runs))
	}
}

// settled waits for the end of a run.
func (i *incident) settled(run string) checkpoint.RunView {
	i.t.Helper()
	over := patience.Over(time.Minute)
	for {
		v, err := i.nodes[0].Run(i.t.Context(), run)
		if err != nil {
			i.t.Fatal(err)
		}
		if v.Status.Ended() || over() {
			return v
		}
		clock.Pause(i.t.Context(), 20*time.Millisecond)
	}
}
