package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"procaas/engine/api/client"
	"procaas/engine/api/wire"
	"procaas/engine/clock"
	"procaas/engine/enginetest/patience"
	"procaas/engine/fallback"
	"procaas/engine/model"
)

const probed = `
services: [{id: bonus, url: URL}]
pipelines:
  - id: order
    shared-state: {bonus: null}
    stages:
      - id: only
        handlers:
          - id: bonus
            critical: false
            timeout: 1m
            retry: {attempts: 1}
            request: {service: bonus, path: /, query: {order: !$ event.id}}
            result: {bonus: 1}
            fallback: {duration: 1s, min-calls: 3, result: {bonus: 0}}
`

// TestNoOrderWaitsForAProbe lets a service fail, then hang, then answer again. An order whose call is the probe ends while
// the service still hangs, and so does one that a killed node had. What probes come to still brings the handler back.
func TestNoOrderWaitsForAProbe(t *testing.T) {
	t.Parallel()
	ctx, cancel := patience.Context(t.Context(), 3*time.Minute)
	defer cancel()
	var hangs, works atomic.Bool
	probes, release := make(chan string, 1000), make(chan struct{})
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case works.Load():
		case !hangs.Load():
			w.WriteHeader(http.StatusInternalServerError)
		default:
			probes <- r.URL.Query().Get("order")
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}
	}))
	defer service.CloseClientConnections()
	pipelines := t.TempDir()
	if err := os.WriteFile(filepath.Join(pipelines, "p.yaml"), []byte(strings.ReplaceAll(probed, "URL", service.URL)), 0o600); err != nil {
		t.Fatal(err)
	}
	c := &crashing{t: t, store: "sqlite:" + filepath.Join(t.TempDir(), "probes.db"), listen: freeAddress(t), pipelines: pipelines}
	c.client = client.New("http://"+c.listen, "")
	server := c.start(ctx)
	runs := map[string]string{} // by the ids of their events
	submit := func() {
		t.Helper()
		id := fmt.Sprint("o-", len(runs))
		receipt, err := c.client.SubmitEvent(ctx, wire.Event{Type: "order", ID: id, Source: "test"})
		if err != nil {
			t.Fatal(err)
		}
		runs[id] = receipt.Run
	}
	until := func(state string) {
		t.Helper()
		for {
			handlers, err := c.client.Handlers(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if handlers[0].Fallback.State == state {
				return
			}
			submit()
			clock.Pause(ctx, 20*time.Millisecond)
		}
	}
	// probe submits orders until one of them is a probe, which hangs.
	probe := func() (run string) {
		t.Helper()
		for {
			submit()
			select {
			case order := <-probes:
				return runs[order]
			case <-ctx.Done():
				t.Fatal("there is no probe")
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	until(fallback.Out)
	hangs.Store(true)
	first := probe()
	v := c.await(ctx, first, model.Succeeded, "")
	if h := v.Handlers[0]; h.Outcome != model.OutcomeSkipped || h.Attempts != 0 || !strings.HasSuffix(h.Reason, "as a probe") {
		t.Errorf("want the handler left out, have %+v", h)
	}
	killed := probe()
	server.kill()
	server = c.start(ctx)
	c.await(ctx, killed, model.Succeeded, "")
	probe()
	works.Store(true)
	close(release)
	until(fallback.In)
	for _, run := range runs {
		c.await(ctx, run, model.Succeeded, "")
	}
	server.terminate()
}
