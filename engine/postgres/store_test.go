package postgres_test

import (
	"context"
	"fmt"
	"testing"

	"procaas/engine/enginetest"
	"procaas/engine/enginetest/conformance"
	"procaas/engine/postgres"
	"procaas/engine/store"
)

func open(t testing.TB, dsn string) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(t.Context(), dsn, postgres.Options{Migrate: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

func TestConformance(t *testing.T) {
	t.Parallel()
	plans := enginetest.Plans{
		Tables: []string{"runs", "history", "history_rest", "keys", "events", "inbox_outbox", "documents", "tallies"},
		Allowed: map[string]string{
			"select count(*), min(due)": "counts what waits, as rarely as it takes long",
			"select pipeline, place,":   "counts what is set aside, as rarely as it takes long",
			"with recursive c(cause)":   "goes from cause to cause",
		},
		Small: []string{"runs_cancel", "runs_move"}, // of what somebody has just asked for
	}
	t.Cleanup(func() { plans.Check(t) })
	conformance.Store(t, func(t *testing.T) store.Store {
		s := open(t, enginetest.MigratedPostgres(t))
		t.Cleanup(func() { plans.Read(t, s.Pool()) })
		return s.Ports()
	})
}

func TestCrash(t *testing.T) {
	t.Parallel()
	conformance.Crash(t, func() string { return enginetest.MigratedPostgres(t) },
		func(ctx context.Context, dsn string) (store.Store, error) {
			db, err := postgres.Open(ctx, dsn, postgres.Options{Migrate: true})
			if err != nil {
				return store.Store{}, err
			}
			return db.Ports(), nil
		})
}

func BenchmarkStore(b *testing.B) {
	conformance.Benchmark(b, func(b *testing.B) store.Store { return open(b, enginetest.Postgres(b)).Ports() })
}

func TestTimersAreOnTime(t *testing.T) {
	t.Parallel()
	conformance.Timers(t, open(t, enginetest.MigratedPostgres(t)).Ports())
}

func BenchmarkBacklog(b *testing.B) {
	for _, waiting := range []int{1_000, 1_000_000} {
		b.Run(fmt.Sprintf("waiting=%d", waiting), func(b *testing.B) {
			conformance.BenchmarkBacklog(b, func(b *testing.B) store.Store { return open(b, enginetest.Postgres(b)).Ports() }, waiting)
		})
	}
}

// outOfRoom is a function for triggers: it fails as a server whose disk is full does, for
// rows that need more than a page.
const outOfRoom = `
create function full_disk() returns trigger language plpgsql as $$
begin
	if length(new.checkpoint) > 100000 then
		raise exception 'could not extend file: No space left on device' using errcode = '53100';
	end if;
	return new;
end $$;
create trigger full_disk before insert or update on runs for each row execute function full_disk();
create trigger full_disk before insert or update on history for each row execute function full_disk()`

func TestRunsWaitForRoomOnTheDisk(t *testing.T) {
	t.Parallel()
	dsn := enginetest.MigratedPostgres(t)
	s, c := open(t, dsn), connect(t, dsn)
	conformance.Full(t, s.Ports(), func(full bool) {
		if full {
			run(t, c, outOfRoom)
			return
		}
		run(t, c, "drop function full_disk cascade")
	})
}
