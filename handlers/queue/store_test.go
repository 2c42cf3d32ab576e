package queue_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"procaas/engine"
	"procaas/engine/enginetest"
	"procaas/engine/postgres"
	"procaas/handlers/queue"
)

func open(t testing.TB, dsn string) *queue.Store {
	t.Helper()
	if _, _, err := postgres.Migrate(t.Context(), dsn); err != nil {
		t.Fatal(err)
	}
	s, err := queue.Open(t.Context(), dsn, queue.Options{})
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
	enginetest.TaskConformance(t, func(t *testing.T) engine.TaskStore { return open(t, enginetest.Postgres(t)) })
}

// A type begins to drain while a task is put that replaces another one. Nothing is lost:
// the new one is refused, and the old one stays.
func TestPutThatMeetsADrainLosesNothing(t *testing.T) {
	t.Parallel()
	dsn := enginetest.Postgres(t)
	s := open(t, dsn)
	put(t, s, queue.Spec{Type: "t", Unique: "u", Payload: []byte("1")})
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "select from tasks where uid = 'u' for update"); err != nil {
		t.Fatal(err)
	}
	type reply struct {
		out []queue.Put
		err error
	}
	replied := make(chan reply, 1)
	go func() {
		out, err := s.PutTasks(context.WithoutCancel(t.Context()), []queue.Spec{{Type: "t", Unique: "u", OnDuplicate: engine.DuplicateReplace, Payload: []byte("2")}})
		replied <- reply{out, err}
	}()
	eventually(t, "the new task to wait for the old one", func() bool {
		var waiting bool
		if err := tx.QueryRow(t.Context(), "select exists (select from pg_locks where not granted and pg_backend_pid() = any(pg_blocking_pids(pid)))").Scan(&waiting); err != nil {
			t.Fatal(err)
		}
		return waiting
	})
	if err := s.SetTaskMode(t.Context(), "t", engine.TasksDraining, "test"); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case r := <-replied:
		if r.err != nil || len(r.out) != 1 || !errors.Is(r.out[0].Err, engine.ErrDraining) {
			t.Errorf("have %+v, %v, want it refused", r.out, r.err)
		}
	case <-time.After(patience):
		t.Fatal("no reply")
	}
	rest, err := s.PeekTasks(t.Context(), queue.Filter{Type: "t"})
	if err != nil || len(rest) != 1 || string(rest[0].Payload) != "1" {
		t.Errorf("have %+v, %v, want the task that was there", rest, err)
	}
}
