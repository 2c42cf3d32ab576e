package main

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"procaas/engine/api/cli"
	"procaas/engine/api/client"
	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/engine/pgkit"
)

// procaas runs a command, and returns its exit code and what it printed.
func procaas(t *testing.T, args ...string) (code int, out string) {
	t.Helper()
	var b bytes.Buffer
	ctx, cancel := patience.Context(t.Context(), time.Minute)
	defer cancel()
	code = Main(ctx, args, cli.Streams{In: strings.NewReader(""), Out: &b, Err: &b})
	return code, b.String()
}

// TestEncryptedStoreHasNoPayload kills a node with keys. Neither before nor after that does the store have a payload as it is, in runs,
// recordings, states, errors and tasks, also of those that failed.
func TestEncryptedStoreHasNoPayload(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(t.TempDir(), "sealed.db")
		encryptUnderKill9(t, "sqlite:"+file, func(text string) []string { return searchFile(t, file, text) })
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		dsn := enginetest.Postgres(t)
		encryptUnderKill9(t, dsn, func(text string) []string { return searchTables(t, dsn, text) })
	})
}

func encryptUnderKill9(t *testing.T, store string, search func(text string) []string) {
	ctx, cancel := patience.Context(t.Context(), 2*time.Minute)
	defer cancel()
	keys := filepath.Join(t.TempDir(), "keys.json")
	if code, out := procaas(t, "store", "keys", "new", keys); code != cli.ExitFine {
		t.Fatal(out)
	}
	c := newCrashing(t, store, erasable, "", "--record", "100%", "--encryption-keys", keys)
	server := c.start(ctx)
	c.submitKey(ctx, erasedKey, 3)
	server.kill()
	wantSealed(t, search)

	server = c.start(ctx)
	runs, err := client.List[struct{ ID string }](ctx, c.client, "/v1/runs?key="+erasedKey+"&status=succeeded")
	if err != nil || len(runs) == 0 {
		t.Fatalf("have runs %v, %v", runs, err)
	}
	run, err := c.client.Run(ctx, runs[0].ID)
	if err != nil || !strings.Contains(fmt.Sprint(run.Event.Payload), erasedText) {
		t.Errorf("have the event %+v, %v", run.Event, err)
	}
	entity, err := c.client.Entity(ctx, "orders", erasedKey)
	if err != nil || !strings.Contains(fmt.Sprint(entity.SharedState["note"]), erasedText) {
		t.Errorf("have the state %v, %v", entity.SharedState, err)
	}
	if _, err := client.List[struct{ ID string }](ctx, c.client, "/v1/runs?error=text"); err == nil || !strings.Contains(err.Error(), "encrypted") {
		t.Errorf("want a search in errors refused, have %v", err)
	}
	server.terminate()
	wantSealed(t, search)
	if pgkit.IsDSN(store) {
		adoptSealed(t, store, keys, c.pipelines)
	}
	checkKeysCommands(ctx, t, store, keys, c.pipelines)
}

// adoptSealed lets an encrypted store look as if it was restored on another server, and adopts it. That needs no keys.
func adoptSealed(t *testing.T, store, keys, pipelines string) {
	t.Helper()
	db, err := pgx.Connect(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(context.WithoutCancel(t.Context()))
	if _, err := db.Exec(t.Context(), "update incarnation set system = system + 1"); err != nil {
		t.Fatal(err)
	}
	serve := []string{"serve", "--store", store, "--pipelines", pipelines, "--listen", "127.0.0.1:0", "--check", "--encryption-keys", keys}
	if code, out := procaas(t, serve...); code == cli.ExitFine || !strings.Contains(out, "store adopt") {
		t.Errorf("want the restored store refused, have %d and %s", code, out)
	}
	if code, out := procaas(t, "store", "adopt", "--store", store, "--reason", "restored"); code != cli.ExitFine || !strings.Contains(out, "adopted the state of") ||
		strings.Contains(out, erasedText) {
		t.Errorf("want it adopted, have %d and %s", code, out)
	}
	if code, out := procaas(t, serve...); code != cli.ExitFine {
		t.Errorf("want the adopted store served, have %d and %s", code, out)
	}
}

// wantSealed looks for the payload, and for the key, which stays readable.
func wantSealed(t *testing.T, search func(text string) []string) {
	t.Helper()
	if len(search(erasedKey)) == 0 || len(search("sealed:")) == 0 {
		t.Fatal("the key or what is sealed is nowhere, so the test shows nothing")
	}
	if found := search(erasedText); len(found) > 0 {
		t.Errorf("%q is in %v", erasedText, found)
	}
}

// checkKeysCommands uses the keys of a store whose node has stopped.
func checkKeysCommands(ctx context.Context, t *testing.T, store, keys, pipelines string) {
	t.Helper()
	serve := []string{"serve", "--store", store, "--pipelines", pipelines, "--listen", "127.0.0.1:0", "--check"}
	other := filepath.Join(t.TempDir(), "other.json")
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{serve, cli.ExitUsage, "set --encryption-keys"},
		{[]string{"store", "keys", "new", other}, cli.ExitFine, "key-encryption key"},
		{append(serve, "--encryption-keys", other), cli.ExitUsage, "use the file that has it"},
		{append(serve, "--encryption-keys", keys), cli.ExitFine, "would serve"},
		{[]string{"store", "keys", "new", keys}, cli.ExitFine, "key-encryption key"},
		{[]string{"store", "keys", "rotate", "--store", store, "--encryption-keys", keys}, cli.ExitFine, "new data is sealed"},
		{append(serve, "--encryption-keys", keys), cli.ExitFine, "would serve"},
		{[]string{"store", "keys", "list", "--store", store}, cli.ExitFine, "for old data"},
		{[]string{"store", "check", "--store", store}, cli.ExitFine, "new data is sealed with the data key"},
		{[]string{"store", "keys", "stop", "--store", store}, cli.ExitFine, "not encrypted"},
		{[]string{"store", "check", "--store", store}, cli.ExitFine, "new data is stored as it is, since"},
	} {
		if code, out := procaas(t, c.args...); code != c.code || !strings.Contains(out, c.want) {
			t.Errorf("%v: want exit code %d and %q, have %d and %s", c.args, c.code, c.want, code, out)
		}
	}
}
