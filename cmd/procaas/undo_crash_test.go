package main

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"procaas/engine/clock"
	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/engine/model"
	"procaas/engine/store"
)

const trips = `
services: [{id: travel, url: URL}]
templates:
  - id: book
    parameters: {what: {type: string}, run: {type: string}}
    handler:
      request: {service: travel, path: !$ "'/' + params.what", method: POST, headers: {X-Run: !$ params.run}}
      compensate:
        request: {service: travel, path: !$ "'/' + params.what", method: DELETE, headers: {X-Run: !$ params.run}}
        timeout: 1m
        on-error: [{on: 404, then: continue}]
pipelines:
  - id: trip
    stages:
      - {id: s, handlers: [{id: flight, use: {template: book, with: {what: flight, run: !$ event.id}}}]}
      - {id: t, handlers: [{id: hotel, call: {pipeline: hotel, with: {run: !$ event.id}}}]}
      - {id: u, handlers: [{id: car, use: {template: book, with: {what: car, run: !$ event.id}}}]}
      - {id: v, handlers: [{id: pay, request: {service: travel, path: /pay, method: POST}}]}
  - id: hotel
    inputs: {run: {type: string}}
    stages:
      - {id: a, handlers: [{id: room, use: {template: book, with: {what: room, run: !$ inputs.run}}}]}
      - {id: b, handlers: [{id: meal, use: {template: book, with: {what: meal, run: !$ inputs.run}}}]}
`

// undoOrder is the order in which a trip is undone.
var undoOrder = []string{"car", "meal", "room", "flight"}

// A travelService books, never takes money, and leaves one compensation of each run without an answer until it is free.
type travelService struct {
	mu     sync.Mutex // guards the following
	undone map[string][]string
	keys   map[string]map[string]bool // of compensations, by run and what
	stuck  int
	free   bool
	broken string // run whose room cannot be given back
}

func (s *travelService) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	run, what := r.Header.Get("X-Run"), strings.TrimPrefix(r.URL.Path, "/")
	switch {
	case what == "pay":
		w.WriteHeader(http.StatusPaymentRequired)
		return
	case r.Method == http.MethodPost:
		return
	}
	s.mu.Lock()
	n, _ := strconv.Atoi(run)
	stuck := !s.free && undoOrder[n%len(undoOrder)] == what
	broken := s.broken == run && what == "room"
	at := run + " " + what
	if s.keys[at] == nil {
		s.keys[at] = map[string]bool{}
	}
	s.keys[at][r.Header.Get("Idempotency-Key")] = true
	if stuck {
		s.stuck++
	} else {
		s.undone[run] = append(s.undone[run], what)
	}
	s.mu.Unlock()
	switch {
	case stuck:
		<-r.Context().Done() // until the node is dead
	case broken:
		w.WriteHeader(http.StatusForbidden)
	case what == "car":
		w.WriteHeader(http.StatusNotFound) // nothing is there to undo any more
	}
}

// TestCompensationSurvivesKill9 kills a serving node while its runs undo what they have done, each at another step, also
// inside a call that had succeeded. Afterwards each run has undone all, the latest first, each step by one key. Nothing is
// undone again, except the step whose answer the node did not get. A run with a compensation that fails is listed, and its
// retry repeats only that.
func TestCompensationSurvivesKill9(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		undoUnderKill9(t, "sqlite:"+filepath.Join(t.TempDir(), "undo.db"))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		undoUnderKill9(t, enginetest.MigratedPostgres(t))
	})
}

func undoUnderKill9(t *testing.T, at string) {
	const runs = 8
	ctx, cancel := patience.Context(t.Context(), 3*time.Minute)
	defer cancel()
	travel := &travelService{undone: map[string][]string{}, keys: map[string]map[string]bool{}, broken: "5"}
	service := httptest.NewServer(travel)
	defer service.CloseClientConnections()
	c := newCrashing(t, at, trips, service.URL)
	server := c.start(ctx)
	ids := c.submitEach(ctx, "trip", runs)
	for stuck := 0; stuck < runs; {
		if !clock.Pause(ctx, 5*time.Millisecond) {
			t.Fatalf("want all runs in the middle of undoing, have %d", stuck)
		}
		travel.mu.Lock()
		stuck = travel.stuck
		travel.mu.Unlock()
	}
	server.kill()
	travel.mu.Lock()
	travel.free = true
	travel.mu.Unlock()
	server = c.start(ctx)
	for n, id := range ids {
		if n == 5 {
			c.await(ctx, id, model.Failed, "403")
			continue
		}
		c.await(ctx, id, model.Cancelled, "402")
	}
	page, err := c.client.Runs(ctx, store.RunFilter{NotUndone: true})
	if err != nil || len(page.Items) != 1 || page.Items[0].ID != ids[5] {
		t.Fatalf("want the run whose room is not given back, have %v, %+v", err, page.Items)
	}
	travel.mu.Lock()
	travel.broken = ""
	travel.mu.Unlock()
	c.steer(ctx, "runs", "retry", ids[5])
	c.await(ctx, ids[5], model.Cancelled, "402")
	server.terminate()
	for n := range runs {
		run := strconv.Itoa(n)
		want := undoOrder
		if n == 5 {
			want = []string{"car", "meal", "room", "flight", "room"}
		}
		if have := travel.undone[run]; !slices.Equal(have, want) {
			t.Errorf("run %s: want %v undone, have %v", run, want, have)
		}
		for _, what := range undoOrder {
			if keys := travel.keys[run+" "+what]; len(keys) != 1 {
				t.Errorf("run %s: want one key to undo %s, have %v", run, what, keys)
			}
		}
	}
}
