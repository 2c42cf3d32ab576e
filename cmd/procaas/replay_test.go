package main

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"procaas/cmd/procaas/internal/serve"
	"procaas/engine/api/client"
	"procaas/engine/enginetest/patience"
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

// The archive takes recordings along. Its files are replayed, with the versions of a server that has forgotten the runs.
func TestReplayOfArchivedRuns(t *testing.T) {
	t.Parallel()
	const yaml = `
pipelines:
  - id: few
    keep: 1
    shared-state: {note: null}
    stages: [{id: only, handlers: [{id: keep, set: {note: !$ event.payload.said}}]}]
`
	o := &operated{t: t, dir: t.TempDir()}
	o.write(yaml)
	archived := t.TempDir()
	o.server = startNode(t, "sqlite:"+filepath.Join(t.TempDir(), "o.db"), o.dir, func(f *serve.Flags) {
		f.Record = "100%"
		if err := errors.Join(f.Set("archive", "file://"+archived), f.Set("archive-every", "1s")); err != nil {
			t.Fatal(err)
		}
	})
	o.client = client.New(o.server, "")
	for range 2 {
		o.command(0, `"succeeded"`, "submit", "--type", "few", "--key", "k", "--payload", `{"said": 5}`, "--wait=1m")
	}
	var file string
	patience.Until(t, "the archive to have a run", func() bool {
		found, err := filepath.Glob(filepath.Join(archived, "date=*", "*.jsonl.gz"))
		if err != nil || len(found) == 0 {
			return false
		}
		file = found[0]
		return true
	})
	o.command(0, "1 run replayed in .*: 1 as before", "replay", "--from", file, o.dir)
	other := &operated{t: t, dir: t.TempDir(), server: o.server}
	other.write(strings.Replace(yaml, "event.payload.said", "event.payload.said * 2", 1))
	other.command(1, "(?s)0 as before, 1 different", "replay", "--from", file, other.dir)
	alone := &operated{t: t, server: "http://127.0.0.1:1"} // nobody listens there
	alone.command(3, "which a server has", "replay", "--from", file, o.dir)
}
