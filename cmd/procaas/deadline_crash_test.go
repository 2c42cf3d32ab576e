package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"procaas/engine/api/client"
	"procaas/engine/api/wire"
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
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
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
	pipelines := t.TempDir()
	if err := os.WriteFile(filepath.Join(pipelines, "p.yaml"), []byte(strings.ReplaceAll(hung, "URL", service.URL)), 0o600); err != nil {
		t.Fatal(err)
	}
	c := &crashing{t: t, store: "sqlite:" + filepath.Join(t.TempDir(), "hung.db"), listen: freeAddress(t), pipelines: pipelines}
	c.client = client.New("http://"+c.listen, "")
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
			if d := time.Duration(ms) * time.Millisecond; err == nil && d > 0 && d <= most {
				return d
			}
			t.Fatalf("want at most %s left, have %q", most, text)
		case <-ctx.Done():
			t.Fatal("the call does not come")
		}
		return 0
	}
	left(told, 2*time.Second)
	first := left(paid, 3*time.Minute)
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
}
