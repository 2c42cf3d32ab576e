package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"procaas/engine/api/cli"
	"procaas/engine/api/client"
	"procaas/engine/enginetest"
	"procaas/engine/enginetest/cluster"
	"procaas/engine/enginetest/patience"
	"procaas/engine/store"
)

// A heldService answers calls only after release. It has the keys of all calls.
type heldService struct {
	release chan struct{}
	mu      sync.Mutex // guards keys
	keys    []string
}

func (s *heldService) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.keys = append(s.keys, r.Header.Get("Idempotency-Key"))
	s.mu.Unlock()
	select {
	case <-s.release:
	case <-r.Context().Done():
	}
}

func (s *heldService) called() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string{}, s.keys...)
}

const restorable = `
services: [{id: push, url: URL}]
pipelines:
  - id: work
    stages:
      - {id: s, handlers: [{id: tell, timeout: 1m, request: {service: push, path: /, method: POST}}]}
  - id: late
    stages: [{id: s, handlers: [{id: ok, set: {}}]}]
`

// A disaster is a store with a run in flight, which is then lost and restored.
type disaster struct {
	t       *testing.T
	store   string
	yaml    string
	service *heldService
	node    *served // runs while the store is restored
	run     string  // was in flight then
}

// startDisaster starts a node with a run that waits for a service.
func startDisaster(t *testing.T, store string) *disaster {
	d := &disaster{t: t, store: store, service: &heldService{release: make(chan struct{})}}
	server := httptest.NewServer(d.service)
	t.Cleanup(server.Close)
	d.yaml = strings.Replace(restorable, "URL", server.URL, 1)
	d.node = serveFile(t, store, d.yaml)
	d.node.becomes("/readyz", http.StatusOK)
	d.run = d.submit(d.node, "work", "one")
	patience.Until(t, "the call to be in flight", func() bool { return len(d.service.called()) == 1 })
	return d
}

// submit accepts an event, and returns its run.
func (d *disaster) submit(s *served, kind, id string) string {
	d.t.Helper()
	reply, err := client.New(s.url, "").Submit(d.t.Context(), fmt.Appendf(nil, `{"type": %q, "id": %q, "source": "shop", "key": %[2]q}`, kind, id))
	var receipt struct{ Run string }
	if err = cmp.Or(err, json.Unmarshal(reply, &receipt)); err != nil {
		d.t.Fatal(err)
	}
	return receipt.Run
}

// proceed lets the service answer, and waits for the run that was in flight. What comes then is lost by the restore.
func (d *disaster) proceed(s *served) {
	d.t.Helper()
	close(d.service.release)
	d.succeeds(s, d.run)
}

func (d *disaster) succeeds(s *served, run string) {
	d.t.Helper()
	patience.Until(d.t, "run "+run+" to succeed", func() bool {
		r, err := client.New(s.url, "").Run(d.t.Context(), run)
		return err == nil && r.Status == "succeeded"
	})
}

// command runs a command on the store.
func (d *disaster) command(want int, args ...string) string {
	d.t.Helper()
	var out strings.Builder
	code := Main(d.t.Context(), append(args, "--store", d.store), cli.Streams{In: strings.NewReader(""), Out: &out, Err: &out})
	if code != want {
		d.t.Fatalf("%v: want exit code %d, have %d\n%s", args, want, code, out.String())
	}
	return out.String()
}

// adopt finds the restored store refused, and adopts it.
func (d *disaster) adopt() {
	d.t.Helper()
	fresh := serveFile(d.t, d.store, d.yaml)
	fresh.end(cli.ExitBroken, "an earlier state or a copy", "procaas store adopt")
	for _, want := range []string{"would adopt", d.run, "work"} {
		if said := d.command(cli.ExitFine, "store", "adopt", "--dry-run"); !strings.Contains(said, want) {
			d.t.Errorf("want %q in what will be repeated, have\n%s", want, said)
		}
	}
	d.command(cli.ExitFine, "store", "adopt", "--reason", "drill")
	if said := d.command(cli.ExitFine, "store", "adopt"); !strings.Contains(said, "nothing to adopt") {
		d.t.Errorf("want nothing to adopt any more, have\n%s", said)
	}
}

// goesOn starts a node with the restored store. The call is made again with its key, and the lost event is accepted anew.
func (d *disaster) goesOn() {
	d.t.Helper()
	s := serveFile(d.t, d.store, d.yaml)
	s.becomes("/readyz", http.StatusOK)
	d.succeeds(s, d.run)
	if keys := d.service.called(); len(keys) != 2 || keys[0] != keys[1] {
		d.t.Errorf("want the call twice with the same Idempotency-Key, have %q", keys)
	}
	d.succeeds(s, d.submit(s, "late", "two"))
	records, err := client.New(s.url, "").Audit(d.t.Context(), store.AuditFilter{Kind: store.AuditStore}, "")
	if err != nil || len(records.Items) != 1 || records.Items[0].Reason != "drill" {
		d.t.Errorf("want the adoption in the audit, have %+v, %v", records, err)
	}
	s.stop()
	s.end(cli.ExitFine)
}

// TestRestoreToAPointInTime recovers a PostgreSQL store from a base backup and its log to a moment before the last events, while a node
// runs. That node notices what is missing, and a node that starts is refused, until an operator adopts the store.
func TestRestoreToAPointInTime(t *testing.T) {
	t.Parallel()
	db := enginetest.OwnPostgres(t, cluster.Archiving...)
	d := startDisaster(t, db.URL)
	if err := db.Backup(t.Context()); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), db.URL)
	if err != nil {
		t.Fatal(err)
	}
	var moment string
	if err := conn.QueryRow(t.Context(), "select pg_current_wal_insert_lsn()::text").Scan(&moment); err != nil {
		t.Fatal(err)
	}
	_ = conn.Close(t.Context())
	d.proceed(d.node)
	d.succeeds(d.node, d.submit(d.node, "late", "two"))

	if err := db.RecoverTo(t.Context(), moment); err != nil {
		t.Fatal(err)
	}
	patience.Until(t, "the node to notice", func() bool { return strings.Contains(d.node.said(), "store is refused") })
	d.node.becomes("/readyz", http.StatusServiceUnavailable)
	d.adopt()
	d.node.end(cli.ExitBroken, "has adopted the store", "start it again")
	d.goesOn()
}

// TestRestoreOfASQLiteFile puts back an earlier copy of a file.
func TestRestoreOfASQLiteFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, backup := filepath.Join(dir, "store.db"), filepath.Join(dir, "copy.db")
	d := startDisaster(t, "sqlite:"+file)
	d.command(cli.ExitFine, "store", "backup", backup)
	d.proceed(d.node)
	began := time.Now()
	seen := func() bool {
		info, err := os.Stat(file + "-seen")
		return err == nil && info.ModTime().After(began)
	}
	patience.Until(t, "the node to renew its lease", seen)
	d.succeeds(d.node, d.submit(d.node, "late", "two"))
	d.node.stop()
	d.node.end(cli.ExitFine)
	for _, name := range []string{file + "-wal", file + "-shm"} {
		if err := os.RemoveAll(name); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Rename(backup, file); err != nil {
		t.Fatal(err)
	}
	d.adopt()
	d.goesOn()
}
