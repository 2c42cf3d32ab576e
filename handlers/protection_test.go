package handlers_test

import (
	"strings"
	"testing"
	"time"

	"procaas/cmd/procaas/addons"
	"procaas/dsl"
	"procaas/dsl/diag"
	"procaas/engine"
	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/engine/intake"
	"procaas/engine/memory"
	"procaas/engine/model"
	"procaas/engine/store"
	"procaas/engine/stub"
)

// collapsing is a service that gets slower the more requests are in flight, and does
// not notice that callers leave; at 56 requests at once nobody gets an answer in
// time. Both engines of the test have one.
const collapsing = `
services:
  - id: guarded
    routes: [{method: POST, path: /work, latency: 20ms, overload: {above: 10, factor: 2, per: 10}}]
    incidents: [{id: guarded-down, failure: {hang: 3s}}]
  - id: bare
    routes: [{method: POST, path: /work, latency: 20ms, overload: {above: 10, factor: 2, per: 10}}]
    incidents: [{id: bare-down, failure: {hang: 3s}}]
`

// stubborn calls the service until it answers, as fast as everybody does at first.
const stubborn = `
services:
  - {id: SERVICE, url: "http://127.0.0.1:1", timeout: 500ms, PROTECTION}
pipelines:
  - id: work
    stages:
      - id: call
        handlers:
          - id: post
            request: {service: SERVICE, path: /work, body: {}}
            retry: {attempts: 0, min-delay: 50ms, max-delay: 50ms, factor: 1, jitter: 0}
`

// A caller is an engine that calls one of the services.
type caller struct {
	*engine.Engine
	accepted int
}

func newCaller(t *testing.T, server *stub.Server, service, protection string) *caller {
	t.Helper()
	text := strings.NewReplacer("SERVICE", service, "PROTECTION", protection).Replace(stubborn)
	urls := map[string]string{service: server.URLs()[service]}
	b, found := dsl.Load([]diag.File{{Name: "work.yaml", Data: []byte(text)}},
		dsl.Options{Language: addons.Language(), Types: addons.Types(), ServiceURLs: urls})
	if b == nil {
		t.Fatalf("have %+v", found)
	}
	o := engine.DefaultOptions()
	o.Store, o.Types, o.Bundle, o.ServiceURLs, o.Drain = memory.New(nil).Ports(), addons.HandlerTypes(), b, urls, time.Millisecond
	return &caller{Engine: enginetest.Start(t, o)}
}

func (c *caller) submit(t *testing.T) {
	t.Helper()
	if _, err := c.Submit(t.Context(), []intake.Submission{{Event: model.Event{Type: "work"}}}); err != nil {
		t.Fatal(err)
	}
	c.accepted++
}

// succeeded counts the runs that have.
func (c *caller) succeeded(t *testing.T) int {
	t.Helper()
	p, err := c.Preview(t.Context(), store.RunFilter{Status: model.Succeeded})
	if err != nil {
		t.Fatal(err)
	}
	return p.Total
}

// Two engines repeat their calls as stubbornly, on real connections, through the
// same outage. The one that protects its service gets it up again; the other one
// keeps it down by the calls with which it asks whether it is up.
func TestProtectionGetsAServiceUpAgain(t *testing.T) {
	t.Parallel()
	spec, found := stub.Parse([]diag.File{{Name: "work.stub.yaml", Data: []byte(collapsing)}})
	if spec == nil {
		t.Fatalf("have %+v", found)
	}
	server, err := stub.Start(t.Context(), spec, stub.Options{FreePorts: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	guarded := newCaller(t, server, "guarded", "owner: nobody")
	bare := newCaller(t, server, "bare", "concurrency: fixed, retry-budget: 1")
	arrive := func(events int) {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for range events {
			guarded.submit(t)
			bare.submit(t)
			<-tick.C
		}
	}
	until := func(what string, holds func() bool) {
		t.Helper()
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for over := patience.Over(2 * time.Minute); !holds(); <-tick.C {
			if over() {
				t.Fatalf("waited in vain until %s; protected: %d of %d runs and %+v, not protected: %d of %d", what,
					guarded.succeeded(t), guarded.accepted, guarded.Services()[0], bare.succeeded(t), bare.accepted)
			}
		}
	}
	outage := func(on bool) {
		for _, id := range []string{"guarded-down", "bare-down"} {
			if err := server.SetIncident(id, on); err != nil {
				t.Fatal(err)
			}
		}
	}
	arrive(100)
	until("all is well", func() bool {
		return guarded.succeeded(t) == guarded.accepted && bare.succeeded(t) == bare.accepted
	})
	outage(true)
	arrive(250)
	outage(false)
	arrive(100)
	until("all runs of the engine that protects its service have "+
		"succeeded", func() bool { return guarded.succeeded(t) == guarded.accepted })
	worked, waited := guarded.succeeded(t), bare.succeeded(t)
	if 2*waited > worked {
		t.Errorf("want protection to make a difference: with it %d runs have succeeded, without it %d", worked, waited)
	}
	calls := map[string]int{}
	for _, c := range server.Record().Calls {
		calls[c.Service]++
	}
	t.Logf("protected: %d runs, %d calls; not protected: %d runs, %d calls", worked, calls["guarded"], waited, calls["bare"])
}
