package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"procaas/engine/enginetest"
	"procaas/engine/enginetest/conformance"
	"procaas/engine/model"
	"procaas/engine/postgres"
	"procaas/engine/store"
)

const week = 7 * 24 * time.Hour

// finish lets a run of an event end.
func finish(t *testing.T, s *postgres.Store, node int64, id string) {
	t.Helper()
	results, err := s.Accept(t.Context(), node, []model.Intake{owned(id)})
	if err != nil || results[0].Claimed == nil {
		t.Fatalf("want the run owned, have %+v, %v", results, err)
	}
	errs, err := s.Commit(t.Context(), node, []model.Change{{Run: id, Status: model.Succeeded, Pipeline: "made"}})
	if err != nil || errs[0] != nil {
		t.Fatal(errs, err)
	}
}

func join(t *testing.T, s *postgres.Store) int64 {
	t.Helper()
	node, err := s.Join(t.Context(), "n", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return node
}

// trimAll trims until nothing is left, and returns the number of parts.
func trimAll(t *testing.T, s *postgres.Store) (parts int) {
	t.Helper()
	for parts = 1; ; parts++ {
		more, err := s.Trim(t.Context(), store.Retention{Keep: week})
		if err != nil {
			t.Fatal(err)
		}
		if !more {
			return parts
		}
	}
}

// partition makes partitions for days in the past.
func partition(t *testing.T, c *pgx.Conn, ago ...int) {
	t.Helper()
	for _, days := range ago {
		day := time.Now().UTC().AddDate(0, 0, -days).Truncate(24 * time.Hour)
		run(t, c, fmt.Sprintf("create table history_%s partition of history for values from ('%s') to ('%s')",
			day.Format("20060102"), day.Format(time.RFC3339), day.AddDate(0, 0, 1).Format(time.RFC3339)))
	}
}

func TestRunsAreKeptByTheirPipeline(t *testing.T) {
	t.Parallel()
	eachHistory(t, conformance.Retention)
}

func TestRunsLeaveThroughAnArchive(t *testing.T) {
	t.Parallel()
	eachHistory(t, conformance.Archive)
}

// eachHistory runs a test whose runs are in partitions of days, or in the rest.
func eachHistory(t *testing.T, test func(*testing.T, store.Store, func(t *testing.T, by time.Duration))) {
	for name, ago := range map[string][]int{"in partitions of days": {3, 9, 39}, "in the rest": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := enginetest.MigratedPostgres(t)
			s, c := open(t, dsn), connect(t, dsn)
			partition(t, c, ago...)
			test(t, s.Ports(), func(t *testing.T, by time.Duration) {
				run(t, c, fmt.Sprintf("update history set ended = ended - interval '%d seconds'", int(by.Seconds())))
				run(t, c, fmt.Sprintf("update events set accepted = accepted - interval '%d seconds'", int(by.Seconds())))
			})
		})
	}
}

// A day leaves as a whole when its runs are archived and gone, and not before.
func TestADayIsDroppedWhenItsRunsAreArchived(t *testing.T) {
	t.Parallel()
	dsn := enginetest.MigratedPostgres(t)
	s, c := open(t, dsn), connect(t, dsn)
	finish(t, s, join(t, s), "a")
	partition(t, c, 9)
	run(t, c, `insert into history select (jsonb_populate_record(h, jsonb_build_object('seq', n, 'id', n::text,
		'ended', now() - interval '9 days', 'pipeline', 'p' || n % 7))).* from history h, generate_series(1, 2500) n`)
	keep := store.Retention{Keep: week, Archived: true}
	days := func() (n int) {
		if err := c.QueryRow(t.Context(), "select count(*) from pg_inherits where inhparent = 'history'::regclass").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	had, archived := days(), map[string]bool{}
	for part, want := range []int{1200, 1200, 100, 0} {
		if more, err := s.Trim(t.Context(), keep); err != nil || more != (want == 0) {
			t.Errorf("part %d: more %v, %v", part, more, err)
		}
		page, err := s.Past(t.Context(), keep, 1200, 1<<30)
		if err != nil || len(page) != want {
			t.Fatalf("part %d: want %d runs, have %d, %v", part, want, len(page), err)
		}
		for _, r := range page {
			archived[r.ID] = true
		}
		if err := s.Forget(t.Context(), page); err != nil {
			t.Fatal(err)
		}
	}
	if len(archived) != 2500 || days() != had-1 {
		t.Errorf("want 2500 runs archived and their day dropped, have %d, and %d partitions of %d", len(archived), days(), had)
	}
}

// A day that is kept for one pipeline loses the runs of the others, in parts, and is not read again before more may leave.
func TestADayIsKeptForOnePipeline(t *testing.T) {
	t.Parallel()
	dsn := enginetest.MigratedPostgres(t)
	s, c := open(t, dsn), connect(t, dsn)
	finish(t, s, join(t, s), "a")
	partition(t, c, 9)
	run(t, c, `insert into history select (jsonb_populate_record(h, jsonb_build_object('seq', n, 'id', n::text,
		'ended', now() - interval '9 days', 'pipeline', case when n % 1000 = 0 then 'long' else 'p' || n % 7 end))).*
		from history h, generate_series(1, 2500) n`)
	keep := store.Retention{Keep: week, Pipelines: map[string]time.Duration{"long": 30 * 24 * time.Hour}}
	count := func() (n int) {
		if err := c.QueryRow(t.Context(), "select count(*) from history").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for part, want := range []int{1501, 501, 3, 3} {
		more, err := s.Trim(t.Context(), keep)
		if have := count(); err != nil || have != want || more != (part < 3) {
			t.Errorf("part %d: want %d runs left, have %d, more %v, %v", part, want, have, more, err)
		}
	}
	keep.Pipelines["long"] = 8 * 24 * time.Hour
	if more, err := s.Trim(t.Context(), keep); !more || err != nil || count() != 1 {
		t.Errorf("want the day dropped once nothing of it is kept, have %d runs, more %v, %v", count(), more, err)
	}
}

func TestTrimDropsWholePartitions(t *testing.T) {
	t.Parallel()
	dsn := enginetest.MigratedPostgres(t)
	s := open(t, dsn)
	node := join(t, s)
	c := connect(t, dsn)
	finish(t, s, node, "new")
	finish(t, s, node, "old")
	finish(t, s, node, "older")
	partition(t, c, 6, 7, 8, 9, 400) // the seventh may still hold something younger than a week
	run(t, c, "update history set ended = ended - interval '9 days' where id = 'old'")
	run(t, c, "update history set ended = ended - interval '99 days' where id = 'older'") // the rest has it
	if parts := trimAll(t, s); parts != 4 {
		t.Errorf("want 4 parts, one for each old partition and one that finds none, have %d", parts)
	}
	var left []string
	if err := c.QueryRow(t.Context(), "select array_agg(id) from history").Scan(&left); err != nil {
		t.Fatal(err)
	}
	if len(left) != 1 || left[0] != "new" {
		t.Errorf("want only the new run left, have %v", left)
	}
	var partitions int
	if err := c.QueryRow(t.Context(),
		"select count(*) from pg_inherits where inhparent = 'history'::regclass").Scan(&partitions); err != nil {
		t.Fatal(err)
	}
	if partitions != 3+2+1 {
		t.Errorf("want those ahead, two of last week and the rest, have %d", partitions)
	}
}

func TestTrimForgetsOldIDsInParts(t *testing.T) {
	t.Parallel()
	dsn := enginetest.MigratedPostgres(t)
	s := open(t, dsn)
	node := join(t, s)
	c := connect(t, dsn)
	finish(t, s, node, "young")
	accept(t, s, intake("unfinished"))
	run(t, c, "update events set accepted = accepted - interval '8 days' where id = 'unfinished'")
	run(t, c, `insert into events (source, id, run, hash, accepted) select 'many', n::text, 'gone', '', now() - interval '8 days' from generate_series(1, 12000) n`)
	run(t, c, `insert into events (source, id, run, hash, accepted) select 'procaas/trigger/yearly', n::text, 'gone', '', now() - interval '8 days'
		from generate_series(1, 3) n`)
	if parts := trimAll(t, s); parts != 3 {
		t.Errorf("want 12,000 ids to go in 3 parts, have %d", parts)
	}
	var left []string
	if err := c.QueryRow(t.Context(), "select array_agg(id order by id) from events").Scan(&left); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(left) != "[3 unfinished young]" {
		t.Errorf("want the last firing, the run that has not ended and the young one kept, have %v", left)
	}
	if last, err := s.LastEvent(t.Context(), "procaas/trigger/yearly"); err != nil || last != "3" {
		t.Errorf("want the last firing 3, have %q, %v", last, err)
	}
}

func TestOneProcessTrimsAtATime(t *testing.T) {
	t.Parallel()
	dsn := enginetest.MigratedPostgres(t)
	s := open(t, dsn)
	c := connect(t, dsn)
	run(t, c, "insert into events (source, id, run, hash, accepted) values ('s', 'i', 'gone', '', now() - interval '8 days')")
	run(t, c, "begin")
	run(t, c, "select pg_advisory_xact_lock(('runs'::regclass::oid::bigint - 2147483648)::int, 2)")
	trimAll(t, s)
	if last, err := s.LastEvent(t.Context(), "s"); err != nil || last != "i" {
		t.Errorf("want nothing trimmed while another process does, have %q, %v", last, err)
	}
	run(t, c, "commit")
	trimAll(t, s)
	if last, err := s.LastEvent(t.Context(), "s"); err != nil || last != "" {
		t.Errorf("want the id gone, have %q, %v", last, err)
	}
}

// A day for which no process lived to make a partition must not stay in the rest.
func TestPartitionsTakeTheirRunsFromTheRest(t *testing.T) {
	t.Parallel()
	dsn := enginetest.MigratedPostgres(t)
	s := open(t, dsn)
	c := connect(t, dsn)
	today := "history_" + time.Now().UTC().Format("20060102")
	run(t, c, "drop table "+today)
	finish(t, s, join(t, s), "a")
	again := open(t, dsn)
	var in string
	if err := c.QueryRow(t.Context(), "select tableoid::regclass::text from history").Scan(&in); err != nil {
		t.Fatal(err)
	}
	if in != today {
		t.Errorf("want the run in %s, have it in %s", today, in)
	}
	if r, err := again.Run(t.Context(), "a"); err != nil || r.Status != model.Succeeded {
		t.Errorf("have %+v, %v", r, err)
	}
}
