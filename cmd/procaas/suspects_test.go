package main

import (
	"context"
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
	"procaas/engine/checkpoint"
	"procaas/engine/clock"
	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/engine/model"
	"procaas/engine/store"
)

// poisonous are a run that kills its node as soon as it calls, and one that is in flight
// whenever that happens.
const poisonous = `
pipelines:
  - {id: poison, stages: [{id: s, handlers: [{id: call, request: {url: URL/poison, method: POST}, timeout: 1m}]}]}
  - {id: bystander, stages: [{id: s, handlers: [{id: call, request: {url: URL/bystander, method: POST}, timeout: 1m}]}]}
`

// TestARunThatKillsItsNodesIsQuarantined kills a serving node with SIGKILL whenever a run makes
// its call. After five nodes the run is parked, and people get an alert. A run that was
// in flight at each of these deaths is not blamed: it ends as soon as it can.
func TestARunThatKillsItsNodesIsQuarantined(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		quarantine(t, "sqlite:"+filepath.Join(t.TempDir(), "poison.db"))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		quarantine(t, enginetest.MigratedPostgres(t))
	})
}

func quarantine(t *testing.T, db string) {
	ctx, cancel := patience.Context(t.Context(), 3*time.Minute)
	defer cancel()
	var kills atomic.Int32
	var harmless atomic.Bool
	called := make(chan struct{})
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/poison" && !harmless.Load():
			select {
			case called <- struct{}{}:
				<-r.Context().Done()
			case <-ctx.Done():
			}
		case r.URL.Path == "/bystander" && kills.Load() < 3:
			<-r.Context().Done() // until its node is dead
		}
	}))
	defer service.CloseClientConnections()
	pipelines := t.TempDir()
	text := strings.ReplaceAll(poisonous, "URL", service.URL)
	if err := os.WriteFile(filepath.Join(pipelines, "p.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c := &crashing{t: t, store: db, listen: freeAddress(t), pipelines: pipelines}
	c.client = client.New("http://"+c.listen, "")
	server := c.start(ctx)
	poison, bystander := c.handIn(ctx, "poison"), c.handIn(ctx, "bystander")
	for range 5 {
		select {
		case <-called:
		case <-ctx.Done():
			t.Fatalf("the run is not tried again after %d kills", kills.Load())
		}
		server.kill()
		kills.Add(1)
		server = c.start(ctx)
	}
	v := c.await(ctx, poison, model.Parked, model.ClassQuarantined)
	if v.Due != nil || !strings.Contains(v.Reason, "quarantined: 5 nodes in a row died") {
		t.Errorf("want a run that stands still and says why, have %+v", v)
	}
	c.await(ctx, bystander, model.Succeeded, "")
	list, err := c.client.Runs(ctx, store.RunFilter{Status: model.Parked, ErrorClass: model.ClassQuarantined})
	if err != nil || len(list.Items) != 1 || list.Items[0].ID != poison {
		t.Errorf("want the run listed, have %+v, %v", list.Items, err)
	}
	eventually(t, "a metric that counts it", func() bool { return strings.Contains(string(c.metrics()), "procaas_runs_quarantined_total 1\n") })
	harmless.Store(true)
	if _, err := c.client.Retry(ctx, poison, "mended"); err != nil {
		t.Fatal(err)
	}
	c.await(ctx, poison, model.Succeeded, "")
	server.terminate()
}

// handIn hands in one event, and returns its run.
func (c *crashing) handIn(ctx context.Context, eventType string) string {
	c.t.Helper()
	receipt, err := c.client.SubmitEvent(ctx, wire.Event{Type: eventType, ID: eventType, Source: "test"})
	if err != nil {
		c.t.Fatal(err)
	}
	return receipt.Run
}

// await waits until a run has a status, and a class of error.
func (c *crashing) await(ctx context.Context, run string, status model.Status, class string) checkpoint.RunView {
	c.t.Helper()
	for {
		v, err := c.client.Run(ctx, run)
		if err == nil && v.Status == status && v.ErrorClass == class {
			return v
		}
		if !clock.Pause(ctx, 20*time.Millisecond) {
			c.t.Fatalf("want run %s %s, have %+v (%v)", run, status, v, err)
		}
	}
}
