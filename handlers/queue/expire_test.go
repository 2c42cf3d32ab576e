package queue_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/engine/postgres"
	"procaas/engine/store"
	"procaas/handlers/queue"
)

// Days of the history that are too old go as a whole. One that somebody reads stays for
// now, and keeps nothing else from going.
func TestExpireDropsOldDays(t *testing.T) {
	t.Parallel()
	dsn := enginetest.MigratedPostgres(t)
	s := open(t, dsn)
	ctx := t.Context()
	put(t, s, queue.Spec{Type: "dead"})
	dead, err := s.ClaimTasks(ctx, queue.Claim{Worker: "w", Lease: time.Hour, Types: []queue.Want{{Type: "dead", Limit: 1}}})
	if err != nil || len(dead) != 1 {
		t.Fatal(dead, err)
	}
	if _, err := s.ReportTasks(ctx, queue.Report{Failed: []queue.Failure{{TaskRef: dead[0].Ref()}}}); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	if _, err := conn.Exec(ctx, `
		create table task_history_20200102 partition of task_history for values from ('2020-01-02T00:00:00Z') to ('2020-01-03T00:00:00Z');
		insert into task_history (id, due, deadline, ended, epoch, type, key, worker)
		select i, '2020-01-02T12:00:00Z', '2020-01-02T12:00:00Z', '2020-01-02T12:00:00Z', 1, 't', '', 'w' from generate_series(1, 7) i;
		update task_dead set ended = ended - interval '3 hours'`); err != nil {
		t.Fatal(err)
	}
	reader, err := conn.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := reader.Exec(ctx, "select count(*) from task_history_20200102"); err != nil {
		t.Fatal(err)
	}
	if n, err := s.ExpireTasks(ctx, time.Hour, time.Hour); err == nil || n != 1 {
		t.Errorf("have %d, %v, want the dead letter forgotten, and the day left to its reader", n, err)
	}
	if err := reader.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	if n, err := s.ExpireTasks(ctx, time.Hour, time.Hour); err != nil || n != 7 {
		t.Errorf("have %d, %v, want the 7 tasks of that day forgotten", n, err)
	}
	if rest, err := s.PeekTasks(ctx, queue.Filter{State: store.TaskCompleted}); err != nil || len(rest) != 0 {
		t.Errorf("have %+v, %v, want nothing left", rest, err)
	}
}

// A caller that puts tasks in its own transaction needs no second connection: there may be none
// before it ends.
func TestPutInATransactionNeedsOneConnection(t *testing.T) {
	t.Parallel()
	dsn := enginetest.MigratedPostgres(t)
	if _, err := postgres.Migrate(t.Context(), dsn); err != nil {
		t.Fatal(err)
	}
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	s, err := queue.New(t.Context(), pool, queue.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	ctx, cancel := patience.Context(t.Context(), time.Minute)
	defer cancel()
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		_, err := s.Enqueue(ctx, tx, queue.Spec{Type: "t"}, queue.Spec{Type: "t", Unique: "u"})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := left(t, s); n != 2 {
		t.Errorf("have %d tasks, want 2", n)
	}
}
