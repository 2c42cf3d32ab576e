package queue_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"procaas/engine/enginetest"
	"procaas/engine/enginetest/conformance/tasks"
	"procaas/engine/enginetest/patience"
	"procaas/engine/postgres"
	"procaas/engine/store"
	"procaas/handlers/queue"
)

func open(t testing.TB, dsn string) *queue.Store {
	t.Helper()
	if _, err := postgres.Migrate(t.Context(), dsn); err != nil {
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
	plans := enginetest.Plans{
		Tables: []string{"tasks", "task_leases", "task_schedule", "task_keys", "task_dead", "task_history", "task_history_rest"},
		Allowed: map[string]string{
			"with freed as (\n\tupdate tasks w set state = 0, listed = 0 where w.id = any(array(\n\t\tselect a.id from (": "" +
				"looks, now and then, at all " +
				"that were put aside",
			"delete from task_history_rest":  "is empty as a rule",
			"delete from task_dead where id": "takes the oldest first, by their ids",
		},
	}
	t.Cleanup(func() { plans.Check(t) })
	tasks.Conformance(t, func(t *testing.T) *store.TaskStore {
		s := open(t, enginetest.MigratedPostgres(t))
		t.Cleanup(func() { plans.Read(t, s.Pool()) })
		return s.Tasks()
	})
}

// Nothing is kept between transactions, as behind a pooler: all works the same, and
// hints come when there is another way for them.
func TestWorkWithoutSessions(t *testing.T) {
	t.Parallel()
	for _, hears := range []bool{false, true} {
		t.Run(fmt.Sprint("hears ", hears), func(t *testing.T) {
			t.Parallel()
			dsn := enginetest.MigratedPostgres(t)
			other := open(t, dsn)
			config, err := pgxpool.ParseConfig(dsn)
			if err != nil {
				t.Fatal(err)
			}
			config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
			pool, err := pgxpool.NewWithConfig(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(pool.Close)
			o, poll := queue.Options{}, 20*time.Millisecond
			if hears {
				o.Direct, poll = dsn, time.Hour
			}
			s, err := queue.New(t.Context(), pool, o)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := s.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
			})
			kind := queue.Kind[int]{Name: "k", MaxPerKey: 2}
			w := queue.NewWorker(s, queue.WorkerOptions{Poll: poll})
			queue.Register(w, kind, func(context.Context, queue.Job[int]) error { return nil })
			run(t, w)
			tasks := numbers(t, kind, 40)
			for i := range tasks {
				switch i % 4 {
				case 1:
					tasks[i].Unique = fmt.Sprint("u-", i)
				case 2:
					tasks[i].Key = "user-1"
				case 3:
					tasks[i].Delay = time.Millisecond
				}
			}
			for _, from := range []*queue.Store{s, other} { // those of the second are heard of, or found
				put(t, from, tasks...)
				patience.Until(t, "all tasks done", func() bool { return left(t, s) == 0 })
			}
			if _, err := s.ReclaimTasks(t.Context(), 10, 1); err != nil {
				t.Error(err)
			}
			if err := s.VacuumTasks(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// A type begins to drain while a task is put that replaces another one. Nothing is lost:
// the new one is refused, and the old one stays.
func TestPutThatMeetsADrainLosesNothing(t *testing.T) {
	t.Parallel()
	dsn := enginetest.MigratedPostgres(t)
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
		out, err := s.PutTasks(context.WithoutCancel(t.Context()),
			[]queue.Spec{{Type: "t", Unique: "u", OnDuplicate: store.DuplicateReplace, Payload: []byte("2")}})
		replied <- reply{out, err}
	}()
	patience.Until(t, "the new task to wait for the old one", func() bool {
		var waiting bool
		if err := tx.QueryRow(t.Context(), "select exists (select from pg_locks where not granted and pg_backend_pid() = "+
			"any(pg_blocking_pids(pid)))").Scan(&waiting); err != nil {
			t.Fatal(err)
		}
		return waiting
	})
	if err := s.SetTaskMode(t.Context(), "t", store.TasksDraining, "test"); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case r := <-replied:
		if r.err != nil || len(r.out) != 1 || !errors.Is(r.out[0].Err, store.ErrDraining) {
			t.Errorf("have %+v, %v, want it refused", r.out, r.err)
		}
	case <-patience.After(t, time.Minute):
		t.Fatal("no reply")
	}
	rest, err := s.PeekTasks(t.Context(), queue.Filter{Type: "t"})
	if err != nil || len(rest) != 1 || string(rest[0].Payload) != "1" {
		t.Errorf("have %+v, %v, want the task that was there", rest, err)
	}
}

// Several processes that start on an empty database find that a day's part of the history is
// missing, and wait for each other. Those who come second must see what the first has made.
func TestStoresThatOpenTogetherMakeEachPartitionOnce(t *testing.T) {
	t.Parallel()
	dsn := enginetest.MigratedPostgres(t)
	first, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close(context.WithoutCancel(t.Context()))
	const dropDays = `do $$ declare day regclass; begin
		for day in select inhrelid from pg_inherits where inhparent = 'task_history'::regclass and inhrelid <> 'task_history_rest'::regclass loop
			execute 'drop table ' || day;
		end loop;
	end $$`
	if _, err := first.Exec(t.Context(), dropDays); err != nil {
		t.Fatal(err)
	}
	tx, err := first.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(),
		"select pg_advisory_xact_lock(('task_history'::regclass::oid::bigint - 2147483648)::int, 0)"); err != nil {
		t.Fatal(err)
	}
	const stores = 3
	opened := make(chan error, stores)
	for range stores {
		go func() {
			s, err := queue.Open(t.Context(), dsn, queue.Options{})
			if err == nil {
				err = s.Close()
			}
			opened <- err
		}()
	}
	patience.Until(t, "all wait for the first", func() bool {
		var waiting int
		err := first.QueryRow(t.Context(), `select count(*) from pg_locks where locktype = 'advisory' and not granted
			and database = (select oid from pg_database where datname = current_database())
			and classid::bigint = ('task_history'::regclass::oid::bigint - 2147483648) & 4294967295`).Scan(&waiting)
		return err == nil && waiting == stores
	})
	day := time.Now().UTC()
	for range 3 {
		from := day.Format(time.DateOnly)
		name := "task_history_" + day.Format("20060102")
		day = day.AddDate(0, 0, 1)
		if _, err := tx.Exec(t.Context(), fmt.Sprintf("create table %s partition of task_history for values from ('%s 00:00Z') to ('%s 00:00Z')",
			name, from, day.Format(time.DateOnly))); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range stores {
		if err := <-opened; err != nil {
			t.Errorf("want each store opened, have %v", err)
		}
	}
}

// A report names tasks that lie apart, or a part of those that lie together. It ends no other ones,
// and none of another attempt.
func TestReportEndsItsOwnTasksOnly(t *testing.T) {
	t.Parallel()
	s := open(t, enginetest.MigratedPostgres(t))
	var specs []queue.Spec
	for range 20 {
		specs = append(specs, queue.Spec{Type: "t"})
	}
	put(t, s, specs...)
	claim := queue.Claim{Worker: "w", Lease: time.Hour, Types: []queue.Want{{Type: "t", Limit: len(specs)}}}
	tasks, err := s.ClaimTasks(t.Context(), claim)
	if err != nil || len(tasks) != len(specs) {
		t.Fatalf("have %d tasks, %v, want %d", len(tasks), err, len(specs))
	}
	open := len(specs)
	for _, places := range [][]int{{0, 9, 19}, {1, 2, 4, 5}, {3, 18}, {6}, {7, 8, 10, 11, 12}} {
		var report queue.Report
		for _, i := range places {
			report.Completed = append(report.Completed, tasks[i].Ref())
		}
		stale := tasks[places[0]].Ref()
		stale.Epoch++
		report.Completed[0] = stale
		lost, err := s.ReportTasks(t.Context(), report)
		if err != nil || len(lost) != 1 || lost[0] != stale {
			t.Fatalf("report of %d: have lost %v, %v, want %v", places, lost, err, stale)
		}
		if open -= len(places) - 1; left(t, s) != int64(open) {
			t.Fatalf("report of %d: have %d tasks, want %d", places, left(t, s), open)
		}
	}
}
