package main

import (
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"procaas/engine/api/client"
	"procaas/engine/api/wire"
	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/engine/model"
)

// waiting are pipelines of one flow: a run of slow waits, and one of quick ends at once.
const waiting = `
flows: [{id: orders, key: !$ event.payload.order}]
pipelines:
  - {id: slow, flow: orders, stages: [{id: s, handlers: [{id: w, wait: {for: 1h}}]}]}
  - {id: quick, flow: orders, stages: [{id: s, handlers: [{id: w, wait: {for: 1ms}}]}]}
`

// TestADamagedRowStopsOnlyItsKey changes a byte of the event of one run in the store of a serving
// node.
func TestADamagedRowStopsOnlyItsKey(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "store.db")
		oneDamagedByte(t, "sqlite:"+path, "sqlite", "file:"+path+"?_pragma=busy_timeout(10000)")
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		dsn := enginetest.Postgres(t)
		oneDamagedByte(t, dsn, "pgx", dsn)
	})
}

func oneDamagedByte(t *testing.T, store, driver, at string) {
	ctx, cancel := patience.Context(t.Context(), time.Minute)
	defer cancel()
	pipelines := t.TempDir()
	if err := os.WriteFile(filepath.Join(pipelines, "p.yaml"), []byte(waiting), 0o600); err != nil {
		t.Fatal(err)
	}
	c := &crashing{t: t, store: store, listen: freeAddress(t), pipelines: pipelines}
	c.client = client.New("http://"+c.listen, "")
	server := c.start(ctx)
	submit := func(kind, key string) string {
		receipt, err := c.client.SubmitEvent(ctx, wire.Event{Type: kind, Payload: map[string]any{"order": key}})
		if err != nil {
			t.Fatal(err)
		}
		return receipt.Run
	}
	ahead, damaged, behind := submit("slow", "a"), submit("quick", "a"), submit("quick", "a")
	db, err := sql.Open(driver, at)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, "update runs set event = $1 where id = $2", []byte(`{"id":"x","type":"quick","payload":{"order":"a"[}`),
		damaged); err != nil {
		t.Fatal(err)
	}
	if _, err := c.client.Cancel(ctx, ahead, "the next one's turn"); err != nil {
		t.Fatal(err)
	}
	c.await(ctx, damaged, model.Failed, model.ClassDamaged)
	c.await(ctx, submit("quick", "b"), model.Succeeded, "")
	if v, err := c.client.Run(ctx, behind); err != nil || v.Status != model.Waiting {
		t.Errorf("want the next run of the key to wait, have %s, %v", v.Status, err)
	}
	if h, err := c.client.Health(ctx, false); err != nil || h.Status != "ready" {
		t.Errorf("want the node ready, have %+v, %v", h, err)
	}
	eventually(t, "a metric that counts it", func() bool { return strings.Contains(string(c.metrics()), "procaas_runs_damaged_total 1\n") })
	if _, err := c.client.Cancel(ctx, damaged, "submitted again"); err != nil {
		t.Fatal(err)
	}
	c.await(ctx, behind, model.Succeeded, "")
	server.terminate()
}
