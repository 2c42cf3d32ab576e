package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"procaas/engine/api/wire"
	"procaas/engine/clock"
	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/engine/model"
)

const hung = `
services: [{id: hung, url: URL}]
pipelines:
  - id: work
    stages:
      - {id: a, handlers: [{id: tell, critical: false, request: {service: hung, path: /tell, method: POST}}]}
      - {id: b, handlers: [{id: pay, deadline: 3m, timeout: 3m, request: {service: hung, path: /pay, method: POST}}]}
`

// TestHungServiceCostsItsDeadline lets a service hang. What the run can do without holds it up for one
// attempt of two seconds, and a node that takes over after kill -9 has less time left for the other
// call than the one that is dead.
func TestHungServiceCostsItsDeadline(t *testing.T) {
	t.Parallel()
	ctx, cancel := patience.Context(t.Context(), 3*time.Minute)
	defer cancel()
	for !hangs(ctx, t) {
		t.Log("the node stood still for the two seconds in which it could have called: again")
	}
}

// hangs plays the test once. It returns false if the deadline of the first handler had passed before its call.
func hangs(ctx context.Context, t *testing.T) bool {
	t.Helper()
	told, paid := make(chan string, 100), make(chan string, 100)
	answer := make(chan struct{})
	service := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		left := r.Header.Get("X-Procaas-Time-Left")
		if r.URL.Path == "/tell" {
			told <- left
			<-r.Context().Done()
			return
		}
		paid <- left
		select {
		case <-answer:
		case <-r.Context().Done():
		}
	}))
	defer service.CloseClientConnections()
	c := newCrashing(t, "sqlite:"+filepath.Join(t.TempDir(), "hung.db"), hung, service.URL)
	server := c.start(ctx)
	receipt, err := c.client.SubmitEvent(ctx, wire.Event{Type: "work", ID: "1", Source: "test"})
	if err != nil {
		t.Fatal(err)
	}
	left := func(from chan string, most time.Duration) time.Duration {
		t.Helper()
		select {
		case text := <-from:
			ms, err := strconv.Atoi(text)
			// The clock of a machine may be set back by some milliseconds.
			if d := time.Duration(ms) * time.Millisecond; err == nil && d > 0 && d <= most+100*time.Millisecond {
				return d
			}
			t.Fatalf("want at most %s left, have %q", most, text)
		case <-ctx.Done():
			t.Fatal("the call does not come")
		}
		return 0
	}
	first := left(paid, 3*time.Minute) // by then, the other handler has been given up
	if len(told) == 0 {
		server.kill()
		return false
	}
	left(told, 2*time.Second)
	server.kill()
	server = c.start(ctx)
	if second := left(paid, 3*time.Minute); second >= first {
		t.Errorf("the dead node had %s left, and the next one has %s", first, second)
	}
	close(answer)
	v := c.await(ctx, receipt.Run, model.Succeeded, "")
	if h := v.Handlers[0]; h.Attempts != 1 || !strings.Contains(h.Error, "the deadline of handler work/a/tell, 2s, has passed during attempt 1") {
		t.Errorf("want tell left out at its deadline, have %+v", h)
	}
	if len(told) > 0 {
		t.Errorf("want no call after the deadline, have %d", len(told))
	}
	server.terminate()
	return true
}

const detached = `
services: [{id: shop, url: URL}]
pipelines:
  - id: work
    shared-state: {mailed: false}
    stages:
      - id: a
        handlers:
          - id: mail
            critical: false
            detached: true
            deadline: 3m
            timeout: 3m
            request: {service: shop, path: /mail, method: POST}
            result: {mailed: true}
      - {id: b, handlers: [{id: keep, request: {service: shop, path: /keep, method: POST}}]}
`

// TestDetachedHandlerSurvivesKill9 kills a node while a run has only its detached handler left. The next stage has not waited
// for it. The run has not ended without it. The next node calls it again with the same key, and calls nothing else again.
func TestDetachedHandlerSurvivesKill9(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		detachedUnderKill9(t, "sqlite:"+filepath.Join(t.TempDir(), "detached.db"))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		detachedUnderKill9(t, enginetest.MigratedPostgres(t))
	})
}

func detachedUnderKill9(t *testing.T, store string) {
	ctx, cancel := patience.Context(t.Context(), 3*time.Minute)
	defer cancel()
	mails, kept := make(chan string, 100), make(chan string, 100)
	answer := make(chan struct{})
	service := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/keep" {
			kept <- r.Header.Get("Idempotency-Key")
			return
		}
		_, _ = io.Copy(io.Discard, r.Body) // otherwise nobody sees that the node has died
		mails <- r.Header.Get("Idempotency-Key")
		select {
		case <-answer:
		case <-r.Context().Done():
		}
	}))
	defer service.Close()
	c := newCrashing(t, store, detached, service.URL)
	server := c.start(ctx)
	receipt, err := c.client.SubmitEvent(ctx, wire.Event{Type: "work", ID: "1", Source: "test"})
	if err != nil {
		t.Fatal(err)
	}
	next := func(from chan string) string {
		t.Helper()
		select {
		case key := <-from:
			return key
		case <-ctx.Done():
			t.Fatal("the call does not come")
			return ""
		}
	}
	first := next(mails)
	next(kept)
	for done := false; !done; { // until the outcome of keep is stored
		v, err := c.client.Run(ctx, receipt.Run)
		if err != nil {
			t.Fatal(err)
		}
		if v.Status != model.Running {
			t.Fatalf("want the run running until the mail is sent, have %s", v.Status)
		}
		for _, h := range v.Handlers {
			done = done || h.Path == "work/b/keep" && h.Outcome == model.OutcomeSucceeded
		}
		if !done && !clock.Pause(ctx, 10*time.Millisecond) {
			t.Fatalf("the second stage does not end: %+v", v)
		}
	}
	server.kill()
	server = c.start(ctx)
	if again := next(mails); again != first {
		t.Errorf("the mail was called with key %s, and then with %s", first, again)
	}
	close(answer)
	v := c.await(ctx, receipt.Run, model.Succeeded, "")
	if v.SharedState["mailed"] != true || len(kept) > 0 || len(mails) > 0 {
		t.Errorf("want no further call, have %d and %d; %v", len(kept), len(mails), v.SharedState)
	}
	server.terminate()
}
