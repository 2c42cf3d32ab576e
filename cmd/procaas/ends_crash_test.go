package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"procaas/engine/clock"
	"procaas/engine/enginetest/patience"
	"procaas/engine/model"
	"procaas/engine/store"
)

const endings = `
services: [{id: desk, url: URL}]
pipelines:
  - id: order
    stages:
      - {id: s, handlers: [{id: work, request: {service: desk, path: /work, body: !$ event.id}}]}
    finally:
      - {id: release, request: {service: desk, path: /release, body: {run: !$ run.id, status: !$ run.status}}}
    notify:
      - {id: desk, on: [succeeded, failed], service: desk, path: /hook, secret: !secret DESK_HOOK}
`

// An endsService refuses the work of odd orders. It answers no call of the kind that it holds, until the node is dead.
type endsService struct {
	mu     sync.Mutex // guards the following
	holds  string     // a path
	held   int        // calls that hang
	called chan struct{}
	done   map[string]map[string]bool // keys of answered calls, by path, run and status
}

// ServeHTTP implements [http.Handler].
func (s *endsService) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body any
	if json.NewDecoder(r.Body).Decode(&body) != nil {
		return
	}
	if n, ok := body.(string); ok && (n == "1" || n == "3") {
		w.WriteHeader(http.StatusPaymentRequired)
		return
	}
	s.mu.Lock()
	hangs := r.URL.Path == s.holds
	fields, _ := body.(map[string]any)
	if data, ok := fields["data"].(map[string]any); ok {
		fields = data
	}
	run, _ := fields["run"].(string)
	status, _ := fields["status"].(string)
	what := r.URL.Path + " " + run + " " + status
	if s.done[what] == nil {
		s.done[what] = map[string]bool{}
	}
	s.done[what][r.Header.Get("Idempotency-Key")] = true
	s.mu.Unlock()
	if hangs {
		s.called <- struct{}{}
		<-r.Context().Done() // until the node is dead
	}
}

// TestEndsSurviveKill9 kills the built binary while the calls of finally of four runs are under way, and again while those
// of their notifications are. Each run still runs finally, and the desk hears of each end, all by one key.
func TestEndsSurviveKill9(t *testing.T) {
	t.Parallel()
	const runs = 4
	ctx, cancel := patience.Context(t.Context(), 3*time.Minute)
	defer cancel()
	desk := &endsService{done: map[string]map[string]bool{}, called: make(chan struct{}, 100*runs), holds: "/release"}
	service := httptest.NewServer(desk)
	defer service.Close()
	defer service.CloseClientConnections()
	secrets := t.TempDir()
	if err := os.WriteFile(filepath.Join(secrets, "DESK_HOOK"), []byte("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := newCrashing(t, "sqlite:"+filepath.Join(t.TempDir(), "ends.db"), endings, service.URL, "--secrets-dir", secrets)
	server := c.start(ctx)
	ids := c.submitEach(ctx, "order", runs)
	for _, next := range []string{"/hook", ""} {
		for range runs {
			select {
			case <-desk.called:
			case <-ctx.Done():
				t.Fatal("want a call of each run under way")
			}
		}
		server.kill()
		desk.mu.Lock()
		desk.holds = next
		desk.mu.Unlock()
		for len(desk.called) > 0 {
			<-desk.called
		}
		server = c.start(ctx)
	}
	for n, id := range ids {
		if n%2 == 1 {
			c.await(ctx, id, model.Failed, "402")
		} else {
			c.await(ctx, id, model.Succeeded, "")
		}
	}
	for {
		sent, err := c.client.Runs(ctx, store.RunFilter{Pipeline: "order.desk", Status: model.Succeeded, Limit: 2 * runs})
		if err == nil && len(sent.Items) == runs {
			break
		}
		if !clock.Pause(ctx, 20*time.Millisecond) {
			t.Fatalf("want the delivery of each end done, have %+v (%v)", sent.Items, err)
		}
	}
	server.terminate()
	for n, id := range ids {
		status := " succeeded"
		if n%2 == 1 {
			status = " failed"
		}
		for _, path := range []string{"/release ", "/hook "} {
			if keys := desk.done[path+id+status]; len(keys) != 1 {
				t.Errorf("run %d: want one key of %s with%s, have %v in %v", n, path, status, keys, desk.done)
			}
		}
	}
}
