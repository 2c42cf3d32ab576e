package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"procaas/cmd/procaas/internal/serve"
	"procaas/engine/api/client"
	"procaas/engine/model"
)

// secretShop is a flow whose service echoes a secret.
const secretShop = `
services: [{id: till, url: SERVICE}]
pipelines:
  - id: sale
    shared-state: {receipt: null}
    stages:
      - id: pay
        handlers:
          - id: charge
            retry: {attempts: 3, min-delay: 1ms}
            request:
              service: till
              path: /charges
              headers: {authorization: !secret TILL}
              body: {sum: !$ event.payload.sum}
            result: {receipt: !$ sources.charge.response.id}
          - id: tell
            critical: false
            deadline: 50ms
            rate-limit: {rate: 1/h}
            request: {service: till, path: /tell}
`

// A server records runs without its secrets. Its own files come to the same, from the server and from a file, and others do not.
func TestReplayOfTheRunsOfAServer(t *testing.T) {
	t.Setenv("PROCAAS_SECRET_TILL", "s3cret-of-the-till")
	calls := 0 // runs of one key go one by one
	till := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if calls++; calls%3 == 0 {
			http.Error(w, `{"error": "`+r.Header.Get("Authorization")+`"}`, http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"id": "r-1", "echo": "` + r.Header.Get("Authorization") + `"}`))
	}))
	t.Cleanup(till.Close)
	o := &operated{t: t, dir: t.TempDir()}
	yaml := strings.ReplaceAll(secretShop, "SERVICE", till.URL)
	o.write(yaml)
	o.server = startNode(t, "sqlite:"+filepath.Join(t.TempDir(), "o.db"), o.dir, func(f *serve.Flags) { f.Record = "100%" })
	o.client = client.New(o.server, "")
	for range 8 {
		o.command(0, `"succeeded"`, "submit", "--type", "sale", "--key", "k", "--payload", `{"sum": 5}`, "--wait=1m")
	}
	o.wait(model.Succeeded, 8)

	o.command(0, `8 runs replayed in .*: 8 as before, 0 different, 0 not compared`, "replay", o.dir)
	file := filepath.Join(t.TempDir(), "recorded.ndjson")
	recorded := o.command(0, "8 recorded runs", "runs", "export", "--since", "1h")
	if strings.Contains(recorded, "s3cret") {
		t.Errorf("the recording has a secret:\n%s", recorded)
	}
	if err := os.WriteFile(file, []byte(recorded), 0o600); err != nil {
		t.Fatal(err)
	}
	other := &operated{t: t, dir: t.TempDir(), server: o.server}
	other.write(strings.NewReplacer("!$ event.payload.sum", "!$ event.payload.sum * 2", "attempts: 3", "attempts: 1").Replace(yaml))
	other.command(1, `(?s)charge sends another body.sum.*8 runs replayed in .*: 0 as before, 8 different`, "replay", other.dir)
	from := &operated{t: t, server: "http://127.0.0.1:1"} // nobody listens there
	from.command(0, "8 as before", "replay", "--from", file, o.dir)
	from.command(1, "(?s)charge makes another number of attempts.*8 different", "replay", "--from", file, other.dir)
}
