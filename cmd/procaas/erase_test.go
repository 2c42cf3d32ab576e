package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"procaas/engine/api/client"
	"procaas/engine/api/problem"
	"procaas/engine/api/wire"
	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/engine/pgkit"
	"procaas/engine/records"
)

// The key of a customer and what its events say, which must be nowhere after it was erased.
const (
	erasedKey  = "customer-0815-erased"
	erasedText = "what only this customer has said"
)

const erasable = `
flows:
  - id: orders
    key: !$ event.key
    shared-state: {note: null}
pipelines:
  - id: made
    flow: orders
    stages:
      - id: only
        handlers:
          - {id: keep, set: {note: !$ event.payload}}
          - {id: mail, queue.put: {type: mail, key: !$ event.key, payload: !$ event.payload}}
          - {id: work, queue.put: {type: work, key: !$ event.key, payload: !$ event.payload}}
  - id: work
    flow: orders
    queue: {retry: {attempts: 1}}
    stages: [{id: only, handlers: [{id: fails, fail: {message: !$ event.payload.said}}]}]
  - id: slow
    flow: orders
    stages: [{id: only, handlers: [{id: waits, wait: {for: 1h}}]}]
  - id: many
    flow: orders
    stages: [{id: only, handlers: [{id: keep, set: {note: !$ event.payload}}]}]
`

// TestErasedKeysAreNowhere erases a key on a node and kills the node meanwhile. A retry removes the rest, and no search finds the
// key or its payload in the store, while other keys are whole.
func TestErasedKeysAreNowhere(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(t.TempDir(), "erase.db")
		eraseUnderKill9(t, "sqlite:"+file, func(text string) []string { return searchFile(t, file, text) })
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		dsn := enginetest.Postgres(t)
		eraseUnderKill9(t, dsn, func(text string) []string { return searchTables(t, dsn, text) })
	})
}

// searchFile lists the files of a SQLite store that have a text.
func searchFile(t *testing.T, file, text string) (found []string) {
	t.Helper()
	for _, name := range []string{file, file + "-wal"} {
		data, err := os.ReadFile(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // a node that has stopped leaves no log
			t.Fatal(err)
		}
		if bytes.Contains(data, []byte(text)) {
			found = append(found, name)
		}
	}
	return found
}

// searchTables lists the tables with a row that has a text, also as bytes.
func searchTables(t *testing.T, dsn, text string) (found []string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	rows, err := conn.Query(t.Context(), "select relname from pg_class where relkind in ('r', 'p') and relnamespace = current_schema()::regnamespace")
	if err != nil {
		t.Fatal(err)
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || !slices.Contains(tables, "history") {
		t.Fatalf("have tables %v, %v", tables, err)
	}
	for _, table := range tables {
		var n int
		query := fmt.Sprintf("select count(*) from %s t where strpos(t::text, $1) + strpos(t::text, $2) > 0", pgx.Identifier{table}.Sanitize())
		if err := conn.QueryRow(t.Context(), query, text, hex.EncodeToString([]byte(text))).Scan(&n); err != nil {
			t.Fatal(err)
		}
		if n > 0 {
			found = append(found, table)
		}
	}
	return found
}

func eraseUnderKill9(t *testing.T, store string, search func(text string) []string) {
	ctx, cancel := patience.Context(t.Context(), 2*time.Minute)
	defer cancel()
	c := newCrashing(t, store, erasable, "", "--record", "100%")
	server := c.start(ctx)
	const many = 620
	c.submitKey(ctx, erasedKey, many)
	c.submitKey(ctx, "another", 3)
	if found := search(erasedKey); len(found) == 0 || len(search(erasedText)) == 0 {
		t.Fatal("the key is nowhere before it was erased, so the test shows nothing")
	}
	_, err := c.client.Erase(ctx, wire.Erasure{Flow: "orders", Key: erasedKey})
	if p, ok := errors.AsType[*problem.Problem](err); !ok || p.Code != problem.KeyUnfinished || !strings.Contains(err.Error(), "--cancel") {
		t.Fatalf("want it refused with the remedy, have %v", err)
	}

	erased := make(chan error, 1)
	go func() {
		_, err := c.client.Erase(ctx, wire.Erasure{Flow: "orders", Key: erasedKey, Cancel: true})
		erased <- err
	}()
	patience.Until(t, "some of the runs are gone", func() bool {
		r, err := c.client.Erase(ctx, wire.Erasure{Flow: "orders", Key: erasedKey, Preview: true})
		if err != nil {
			t.Fatal(err)
		}
		return r.Unfinished == 0 && r.Removed["runs"] < many
	})
	server.kill()
	if err := <-erased; errors.As(err, new(*problem.Problem)) {
		t.Fatal(err)
	}
	server = c.start(ctx)
	r, err := c.client.Erase(ctx, wire.Erasure{Flow: "orders", Key: erasedKey, Cancel: true, Vacuum: true, Reason: "request 4711"})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Remains) == 0 || r.Reason != "request 4711" {
		t.Errorf("have the receipt %+v", r)
	}
	for _, text := range []string{erasedKey, erasedText} {
		if found := search(text); len(found) > 0 {
			t.Errorf("%q is still in %v", text, found)
		}
	}
	checkReceipt(ctx, t, c.client, r)
	other, err := c.client.Entity(ctx, "orders", "another")
	if err != nil || len(other.Runs) == 0 || other.SharedState["note"] == nil {
		t.Errorf("have %+v of another key, %v", other, err)
	}
	server.terminate()
}

// submitKey makes data of a key: runs that succeed, one that fails and one that waits, a task for others, and a dead letter.
func (c *crashing) submitKey(ctx context.Context, key string, many int) {
	c.t.Helper()
	payload := map[string]any{"said": erasedText, "of": key}
	if key != erasedKey {
		payload["said"] = "something else"
	}
	submit := func(kind string, n int) {
		receipt, err := c.client.SubmitEvent(ctx, wire.Event{
			Type: kind, Key: key, ID: fmt.Sprint(key, "-", kind, n), Source: "test", Payload: payload, Labels: map[string]string{"customer": key},
		})
		if err != nil {
			c.t.Fatal(err)
		}
		if kind == "many" && n%100 == 99 || kind == "made" {
			if _, err := c.client.AwaitRun(ctx, receipt.Run, time.Minute); err != nil {
				c.t.Fatal(err)
			}
		}
	}
	for n := range many {
		submit("many", n)
	}
	submit("made", 0)
	patience.Until(c.t, "a dead letter", func() bool {
		all, err := client.List[struct{ Key string }](ctx, c.client, "/v1/queues/work/tasks?state=failed")
		if err != nil {
			c.t.Fatal(err)
		}
		return slices.ContainsFunc(all, func(t struct{ Key string }) bool { return t.Key == key })
	})
	submit("slow", 0)
}

// checkReceipt checks that the audit has the receipt, and not the key.
func checkReceipt(ctx context.Context, t *testing.T, c *client.Client, r records.ErasureReceipt) {
	t.Helper()
	page, err := client.Send[wire.Page[records.AuditView]](ctx, c, "GET", "/admin/v1/audit?kind=erase", nil, nil)
	if err != nil || len(page.Items) == 0 {
		t.Fatalf("have %+v, %v", page, err)
	}
	if last := page.Items[0]; last.Name != "orders/"+r.KeyHash || strings.Contains(fmt.Sprint(page), erasedKey) ||
		!strings.Contains(fmt.Sprint(last.After), r.KeyHash) {
		t.Errorf("have the audit %+v, want the receipt without the key", page)
	}
}

// TestErasePageNamesAllTables fails for a table of which the page does not say whether it can have data of a key.
func TestErasePageNamesAllTables(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/operating/erase.md")
	if err != nil {
		t.Fatal(err)
	}
	dsn := enginetest.MigratedPostgres(t)
	if !pgkit.IsDSN(dsn) {
		t.Fatalf("have %q", dsn)
	}
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	rows, err := conn.Query(t.Context(), "select relname from pg_class where relkind in ('r', 'p') and not relispartition and relnamespace = current_schema()::regnamespace")
	if err != nil {
		t.Fatal(err)
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(tables) < 20 {
		t.Fatalf("have %v, %v", tables, err)
	}
	for _, table := range tables {
		if !strings.HasPrefix(table, "procaas_schema") && table != "goose_db_version" && !bytes.Contains(page, []byte("`"+table+"`")) {
			t.Errorf("docs/operating/erase.md does not say whether table %s can have data of a key, and what erase does with it", table)
		}
	}
}
