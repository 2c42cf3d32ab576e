package queue_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/engine/store"
	"procaas/handlers/queue"
)

// After many tasks have gone at once, the tables say how many rows wait for a vacuum, until it has
// run. People need not care for so few.
func TestDeadRowsAreSeenUntilTheyAreVacuumed(t *testing.T) {
	t.Parallel()
	dsn := enginetest.Postgres(t)
	s := open(t, dsn)
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	run := func(sql string) {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	run("alter table tasks set (autovacuum_enabled = false)")
	specs := make([]queue.Spec, 300)
	for i := range specs {
		specs[i].Type = "t"
	}
	put(t, s, specs...)
	tasks := func() (found store.TaskTable) {
		all, err := s.TaskTables(t.Context())
		if err != nil || len(all) != 4 {
			t.Fatal(all, err)
		}
		for _, x := range all {
			if x.Name == "tasks" {
				found = x
			}
		}
		return found
	}
	run("delete from tasks; select pg_stat_force_next_flush()")
	patience.Until(t, "dead rows", func() bool { x := tasks(); return x.Dead >= 300 && x.Bytes > 0 })
	if have := tasks().Vacuum(); have != "" {
		t.Errorf("a small table needs %q", have)
	}
	// Another test's old transaction may see the rows still.
	patience.Until(t, "no dead rows", func() bool { return s.VacuumTasks(t.Context()) == nil && tasks().Dead == 0 })
}
