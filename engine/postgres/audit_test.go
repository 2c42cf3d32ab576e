package postgres_test

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"procaas/engine/enginetest"
	"procaas/engine/enginetest/conformance"
	"procaas/engine/store"
)

func TestAuditIsAppendOnlyForWhoeverHasTheDatabase(t *testing.T) {
	t.Parallel()
	dsn := enginetest.Postgres(t)
	s := open(t, dsn)
	for _, value := range []string{"1", "2"} {
		if _, err := s.SetConfig(t.Context(), "A", []byte(value), -1, store.Actor{Name: "ann"}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.ForgetAudit(t.Context(), time.Hour); err != nil { // leaves no horizon behind
		t.Fatal(err)
	}
	c := connect(t, dsn)
	for _, statement := range []string{
		"update audit set actor = 'nobody'", "delete from audit", "delete from audit where revision = 1", "truncate audit",
		"insert into audit select * from audit on conflict (revision) do update set reason = 'x'",
	} {
		var refused *pgconn.PgError
		if _, err := c.Exec(t.Context(), statement); !errors.As(err, &refused) || refused.Code != "42501" {
			t.Errorf("%s: want it refused, have %v", statement, err)
		}
	}
	var n int
	if err := c.QueryRow(t.Context(), "select count(*) from audit where actor = 'ann' and reason = ''").Scan(&n); err != nil || n != 2 {
		t.Errorf("want the records as they were, have %d, %v", n, err)
	}
}

// Whoever owns the tables can take the triggers away. What is done then is found.
func TestVerifyFindsWhatWasDoneToTheAuditByHand(t *testing.T) {
	t.Parallel()
	spoiled := func(t *testing.T) (store.Store, func(...string)) {
		dsn := enginetest.Postgres(t)
		s := open(t, dsn)
		return s.Ports(), func(statements ...string) {
			c := connect(t, dsn)
			for _, statement := range append([]string{"alter table audit disable trigger all"}, statements...) {
				if _, err := c.Exec(t.Context(), statement); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	horizon := [3]string{"settings", "audit_base", "audit_base_hash"}
	conformance.SpoilAudit(t, spoiled, horizon)
	conformance.SpoilTrims(t, spoiled, horizon)
}
