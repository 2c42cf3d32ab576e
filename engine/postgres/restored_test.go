package postgres_test

import (
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	"procaas/engine/enginetest"
	"procaas/engine/postgres"
	"procaas/engine/store"
)

// openRestored opens a store that nodes refuse to start with.
func openRestored(t *testing.T, dsn string) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(t.Context(), dsn, postgres.Options{Restored: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// A dump is restored on another server. A node refuses it until somebody adopts it, and then has the runs of before.
func TestRestoredDumpIsRefused(t *testing.T) {
	t.Parallel()
	enginetest.Needs(t, "pg_dump")
	from, to := enginetest.OwnPostgres(t), enginetest.OwnPostgres(t)
	s := open(t, from.URL)
	node := join(t, s)
	if _, err := s.Beat(t.Context(), node, time.Minute, ""); err != nil {
		t.Fatal(err)
	}
	accept(t, s, intake("waits"))
	copied := `set -eo pipefail; "$0"/pg_dump "$1" | "$0"/psql -q -v ON_ERROR_STOP=1 "$2"`
	if out, err := exec.CommandContext(t.Context(), "bash", "-c", copied, from.Binaries(), from.URL, to.URL).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	_, err := postgres.Open(t.Context(), to.URL, postgres.Options{Migrate: true})
	if !errors.Is(err, store.ErrRestored) || !strings.Contains(err.Error(), "after restoring a dump") || postgres.IsAway(err) {
		t.Fatalf("want the copy refused, have %v", err)
	}
	restored := openRestored(t, to.URL)
	by := store.Actor{Name: "eve", Reason: "moved"}
	for _, preview := range []bool{true, false} {
		r, err := restored.Adopt(t.Context(), "triggers/", preview, by)
		if err != nil || r.Why == "" || len(r.Runs) != 1 || r.Runs[0].Fresh != 1 || r.Seen.IsZero() {
			t.Errorf("want the run that waits listed, have %+v, %v", r, err)
		}
	}
	fresh := open(t, to.URL)
	if r, err := fresh.Run(t.Context(), "waits"); err != nil || r.ID != "waits" {
		t.Errorf("have %+v, %v", r, err)
	}
	records, err := fresh.Audit(t.Context(), store.AuditFilter{Kind: store.AuditStore, Limit: 10})
	if err != nil || len(records) != 1 || records[0].By != by {
		t.Errorf("want one record of the adoption, have %+v, %v", records, err)
	}
	if _, err := s.Nodes(t.Context()); err != nil {
		t.Errorf("want the store that was copied as it is, have %v", err)
	}
}
