package queue_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/handlers/queue"
)

// A task that becomes ready between the two halves of a listing is in one of them.
func TestPeekMissesNoTaskThatMoves(t *testing.T) {
	t.Parallel()
	dsn := enginetest.MigratedPostgres(t)
	s := open(t, dsn)
	if _, err := s.PutTasks(t.Context(), []queue.Spec{{Type: "t", Delay: time.Hour}}); err != nil {
		t.Fatal(err)
	}
	c, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	tx, err := c.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const lock, move = "lock table task_schedule in access exclusive mode", `
with moved as (delete from task_schedule returning *)
insert into tasks (id, type, payload) select id, type, payload from moved`
	if _, err := tx.Exec(t.Context(), lock); err != nil {
		t.Fatal(err)
	}
	listed := make(chan int, 1)
	go func() {
		tasks, err := s.PeekTasks(t.Context(), queue.Filter{})
		if err != nil {
			t.Errorf("peek: %v", err)
		}
		listed <- len(tasks)
	}()
	patience.Until(t, "the listing waits for what is scheduled", func() (waits bool) {
		err := tx.QueryRow(t.Context(),
			`select exists (select from pg_locks where not granted and relation = 'task_schedule'::regclass
				and database = (select oid from pg_database where datname = current_database()))`).Scan(&waits)
		return err == nil && waits
	})
	if _, err := tx.Exec(t.Context(), move); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := <-listed; n != 1 {
		t.Errorf("want the task in the listing, have %d tasks", n)
	}
}
