package sqlite_test

import (
	"database/sql"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"procaas/engine/enginetest/conformance"
	"procaas/engine/store"
)

func TestAuditIsAppendOnlyForWhoeverHasTheFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit.db")
	s := open(t, path)
	for _, value := range []string{"1", "2"} {
		if _, err := s.SetConfig(t.Context(), "A", []byte(value), -1, store.Actor{Name: "ann"}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.ForgetAudit(t.Context(), time.Hour); err != nil { // leaves no horizon behind
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, statement := range []string{
		"update audit set actor = 'nobody'", "delete from audit", "delete from audit where revision = 1",
		"insert into audit select * from audit where true on conflict do update set reason = 'x'",
	} {
		if _, err := db.Exec(statement); err == nil || !strings.Contains(err.Error(), "append-only") {
			t.Errorf("%s: want it refused, have %v", statement, err)
		}
	}
	var n int
	if err := db.QueryRow("select count(*) from audit where actor = 'ann' and reason = ''").Scan(&n); err != nil || n != 2 {
		t.Errorf("want the records as they were, have %d, %v", n, err)
	}
}

// Whoever has the file can take the triggers away. What is done then is found.
func TestVerifyFindsWhatWasDoneToTheAuditByHand(t *testing.T) {
	t.Parallel()
	spoiled := func(t *testing.T) (store.Store, func(...string)) {
		path := filepath.Join(t.TempDir(), "audit.db")
		s := open(t, path)
		return s.Ports(), func(statements ...string) {
			db, err := sql.Open("sqlite", path)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			for _, statement := range append([]string{"drop trigger audit_not_changed", "drop trigger audit_not_removed"}, statements...) {
				if _, err := db.Exec(statement); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	horizon := [3]string{"audit_horizon", "base", "base_hash"}
	conformance.SpoilAudit(t, spoiled, horizon)
	conformance.SpoilTrims(t, spoiled, horizon)
}
