package queue_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/engine/postgres"
	"procaas/handlers/queue"
)

// A claim changes nothing that an index has, and finds room in the page. Else each task would cost an entry in each index.
func TestClaimsWriteNoIndexEntries(t *testing.T) {
	t.Parallel()
	dsn := enginetest.Postgres(t)
	s := open(t, dsn)
	tasks := make([]queue.Spec, 500)
	for i := range tasks {
		tasks[i] = queue.Spec{Type: "t", Payload: []byte(`{"order": 4711}`)}
	}
	put(t, s, tasks...)
	claim := queue.Claim{Worker: "host-of-a-usual-length-1234-abcd", Lease: time.Hour, Types: []queue.Want{{Type: "t", Limit: len(tasks)}}}
	if got, err := s.ClaimTasks(t.Context(), claim); err != nil || len(got) != len(tasks) {
		t.Fatalf("have %d tasks, %v, want %d", len(got), err, len(tasks))
	}
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	patience.Until(t, "the server to tell of updates without index entries", func() bool {
		var all, hot int
		if err := conn.QueryRow(t.Context(), "select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where relid = 'tasks'::regclass").
			Scan(&all, &hot); err != nil {
			t.Fatal(err)
		}
		return all == len(tasks) && hot == all
	})
}

// A worker may shorten a lease. Its tasks come back by the shorter one, and what was noted of them goes with them.
func TestAShorterLeaseCounts(t *testing.T) {
	t.Parallel()
	dsn := enginetest.Postgres(t)
	s := open(t, dsn)
	put(t, s, queue.Spec{Type: "t"}, queue.Spec{Type: "t"})
	claim := queue.Claim{Worker: "w", Lease: time.Hour, Types: []queue.Want{{Type: "t", Limit: 2}}}
	got, err := s.ClaimTasks(t.Context(), claim)
	if err != nil || len(got) != 2 {
		t.Fatalf("have %+v, %v, want 2 tasks", got, err)
	}
	if lost, err := s.BeatTasks(t.Context(), []queue.Beat{{TaskRef: got[0].Ref(), Lease: time.Microsecond}}); err != nil || len(lost) > 0 {
		t.Fatalf("have lost %v, %v, want none", lost, err)
	}
	if n, err := s.ReclaimTasks(t.Context(), 10, 1); err != nil || n != 1 {
		t.Fatalf("have %d tasks back, %v, want the one whose lease was made short", n, err)
	}
	claim.Lease = time.Microsecond
	again, err := s.ClaimTasks(t.Context(), claim)
	if err != nil || len(again) != 1 || again[0].ID != got[0].ID {
		t.Fatalf("have %+v, %v, want the task that came back", again, err)
	}
	if lost, err := s.BeatTasks(t.Context(), []queue.Beat{{TaskRef: again[0].Ref(), Lease: time.Hour}}); err != nil || len(lost) > 0 {
		t.Fatalf("have lost %v, %v, want none", lost, err)
	}
	if n, err := s.ReclaimTasks(t.Context(), 10, 1); err != nil || n != 0 {
		t.Fatalf("have %d tasks back, %v, want none: the worker was heard of", n, err)
	}
	if lost, err := s.ReportTasks(t.Context(), queue.Report{Completed: []queue.Ref{got[1].Ref(), again[0].Ref()}}); err != nil ||
		len(lost) > 0 {
		t.Fatalf("have lost %v, %v, want none", lost, err)
	}
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	if _, err := conn.Exec(t.Context(), "update task_leases set until = now() - interval '1 hour'"); err != nil {
		t.Fatal(err)
	}
	other := open(t, dsn) // which has not looked yet
	if n, err := other.ReclaimTasks(t.Context(), 10, 1); err != nil || n != 0 {
		t.Errorf("have %d tasks back, %v, want none: all have ended", n, err)
	}
	var left int
	if err := conn.QueryRow(t.Context(), "select count(*) from task_leases").Scan(&left); err != nil || left != 0 {
		t.Errorf("have %d leases, %v, want none left", left, err)
	}
}

// Tasks that were taken before leases had rows of their own come back when their workers are not heard of. Others are
// still found.
func TestMigrationKeepsTasks(t *testing.T) {
	t.Parallel()
	dsn := enginetest.Postgres(t)
	s := open(t, dsn)
	put(t, s, queue.Spec{Type: "taken"}, queue.Spec{Type: "ready"}, queue.Spec{Type: "bounded", Key: "k"},
		queue.Spec{Type: "bounded", Key: "k"})
	claim := queue.Claim{
		Worker: "w", Lease: time.Microsecond,
		Types: []queue.Want{{Type: "taken", Limit: 1}, {Type: "bounded", Limit: 2, MaxPerKey: 1}},
	}
	if got, err := s.ClaimTasks(t.Context(), claim); err != nil || len(got) != 2 {
		t.Fatalf("have %+v, %v, want 2 tasks", got, err)
	}
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	for _, sql := range []string{
		"alter table tasks add column counted boolean not null default false",
		"update tasks set counted = true where listed = 2",
		"drop table task_leases",
		"alter table tasks drop column listed",
		"alter table shard_maps drop column reach, drop column removed",
		"alter table shards drop column drain_asked, drop column place",
		"drop function procaas_submit", "drop function procaas_enqueue", "drop table submitted, enqueued, enqueued_taken",
		"drop table incarnation, limit_buckets, limits_by_value, usage_days; drop table schema_floor; alter table nodes drop column knows",
		"drop index runs_kept",
		"alter table events drop column kept_for",
		"alter table task_history drop column result",
		"delete from procaas_schema where version_id >= 70",
	} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := postgres.Migrate(t.Context(), dsn); err != nil {
		t.Fatal(err)
	}
	s = open(t, dsn)
	if n, err := s.ReclaimTasks(t.Context(), 10, 1); err != nil || n != 2 {
		t.Errorf("have %d tasks back, %v, want the 2 that were taken", n, err)
	}
	claim = queue.Claim{Worker: "w", Lease: time.Hour, Types: []queue.Want{{Type: "ready", Limit: 9}, {Type: "bounded", Limit: 9}}}
	if got, err := s.ClaimTasks(t.Context(), claim); err != nil || len(got) == 0 {
		t.Errorf("have %+v, %v, want the task that was ready", got, err)
	}
	if n := left(t, s); n != 4 {
		t.Errorf("have %d tasks, want 4", n)
	}
}
