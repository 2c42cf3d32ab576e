package postgres_test

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/engine/model"
	"procaas/engine/postgres"
	"procaas/engine/sqlstore"
	"procaas/engine/store"
	"procaas/schemas"
)

func intake(id string) model.Intake {
	return model.Intake{
		ID: id, Event: model.Event{ID: id, Type: "made"}, Flow: "orders", Key: id, Ordered: true, Dedup: true, Pipeline: "made",
	}
}

func accept(t *testing.T, s *postgres.Store, runs ...model.Intake) []store.Accepted {
	t.Helper()
	results, err := s.Accept(t.Context(), 0, runs)
	if err != nil {
		t.Fatal(err)
	}
	return results
}

// with adds a parameter to a URL.
func with(t *testing.T, dsn, name, value string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set(name, value)
	u.RawQuery = strings.ReplaceAll(q.Encode(), "+", "%20") // PostgreSQL reads no + as a space
	return u.String()
}

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(t.Context()) })
	return c
}

func run(t *testing.T, c *pgx.Conn, sql string, args ...any) {
	t.Helper()
	if _, err := c.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func wantOpenError(t *testing.T, dsn string, words ...string) {
	t.Helper()
	s, err := postgres.Open(t.Context(), dsn, postgres.Options{})
	if err == nil {
		t.Fatal("the store was opened", s.Close())
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("want an error with %q, have %v", w, err)
		}
	}
}

func TestOpenRefusesAnotherSchema(t *testing.T) {
	t.Parallel()
	dsn := enginetest.Postgres(t)
	migrations, err := schemas.Postgres.ReadDir("postgres")
	if err != nil {
		t.Fatal(err)
	}
	var newest int64 // numbers may have gaps
	if _, err := fmt.Sscanf(migrations[len(migrations)-1].Name(), "%d_", &newest); err != nil {
		t.Fatal(err)
	}
	newest = max(newest, sqlstore.HorizonVersion) // which is no file
	wantOpenError(t, dsn, fmt.Sprintf("schema has version 0, want %d", newest), "run procaas store migrate")
	for _, want := range [][2]int64{{0, newest}, {newest, newest}} {
		done, err := postgres.Migrate(t.Context(), dsn)
		if err != nil || len(done) != 1 || [2]int64{done[0].From, done[0].To} != want {
			t.Fatalf("migrate: want %v, have %v, %v", want, done, err)
		}
	}
	s, err := postgres.Open(t.Context(), dsn, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	run(t, connect(t, dsn), "insert into procaas_schema (version_id, is_applied) values (999, true)")
	wantOpenError(t, dsn, fmt.Sprintf("newer than %d", newest), "use a newer procaas")
}

// A store whose runs have their checkpoint in front keeps what they have when it is moved behind.
func TestMigrationMovesCheckpointsBehind(t *testing.T) {
	t.Parallel()
	dsn := enginetest.Postgres(t)
	s := open(t, dsn)
	node, err := s.Join(t.Context(), "n", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	in := intake("begun")
	in.Own = true
	if _, err := s.Accept(t.Context(), node, []model.Intake{in, intake("waits")}); err != nil {
		t.Fatal(err)
	}
	step := []model.Change{{Run: "begun", Status: model.Running, Checkpoint: []byte(strings.Repeat("x", 3000))}}
	if errs, err := s.Commit(t.Context(), node, step); err != nil || errs[0] != nil {
		t.Fatal(err, errs)
	}
	c := connect(t, dsn)
	run(t, c, `alter table runs add column since_then text collate "C"`) // so that they are not the last ones
	// Without what later migrations add. They come behind, and take no room when they are not used.
	run(t, c, "alter table settings drop column serving, drop column served")
	run(t, c, "alter table runs drop column labels")
	run(t, c, "alter table history drop column labels")
	run(t, c, "drop table task_leases; alter table tasks drop column listed, add column counted boolean not null default false")
	run(t, c, "alter table shard_maps drop column reach, drop column removed")
	run(t, c, "alter table shards drop column drain_asked, drop column place")
	run(t, c, "drop function procaas_submit; drop function procaas_enqueue; drop table submitted, enqueued, enqueued_taken")
	run(t, c, "drop table incarnation, limit_buckets, limits_by_value, usage_days; drop table schema_floor; alter table nodes drop column knows; drop index runs_kept")
	run(t, c, "alter table events drop column kept_for")
	run(t, c, "alter table task_history drop column result")
	run(t, c, "delete from procaas_schema where version_id >= 50")
	run(t, c, "update leases set lease_until = now()")
	if _, err := postgres.Migrate(t.Context(), dsn); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]int64{"begun": 1, "waits": 0} {
		r, err := s.Run(t.Context(), id)
		if err != nil || r.Version != want || len(r.Checkpoint) != int(want)*3000 {
			t.Errorf("run %s: want version %d with its checkpoint, have %d with %d bytes, %v", id, want, r.Version, len(r.Checkpoint), err)
		}
	}
	var last []string
	const lastColumns = `select array_agg(attname::text order by attnum desc) from
		(select * from pg_attribute where attrelid = 'runs'::regclass and attnum > 0 and not attisdropped
		and attname <> 'labels' order by attnum desc limit 2) a`
	if err := c.QueryRow(t.Context(), lastColumns).Scan(&last); err != nil || !slices.Equal(last, []string{"checkpoint", "version"}) {
		t.Errorf("want version and checkpoint to come last, have %q, %v", last, err)
	}
	step[0].Version++
	if errs, err := s.Commit(t.Context(), node, step); err != nil || errs[0] != nil {
		t.Error(err, errs)
	}
}

func TestProcessesMigrateAtOnce(t *testing.T) {
	t.Parallel()
	dsn := enginetest.Postgres(t)
	errs := make(chan error)
	for range 4 {
		go func() {
			s, err := postgres.Open(t.Context(), dsn, postgres.Options{Migrate: true})
			if err == nil {
				err = s.Close()
			}
			errs <- err
		}()
	}
	for range 4 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

func TestOpenRefusesAServerThatForgets(t *testing.T) {
	t.Parallel()
	dsn := enginetest.Postgres(t)
	if _, err := postgres.Migrate(t.Context(), dsn); err != nil {
		t.Fatal(err)
	}
	forgets := with(t, dsn, "options", "-c synchronous_commit=off")
	wantOpenError(t, forgets, "synchronous_commit is off", "set it to on in the settings of the server")
	s, err := postgres.Open(t.Context(), forgets, postgres.Options{Unsafe: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestOpenSaysWhatIsWrongWithTheAddress(t *testing.T) {
	t.Parallel()
	wantOpenError(t, "postgres://127.0.0.1:1/none?connect_timeout=1", "127.0.0.1:1")
	wantOpenError(t, "postgres://[", "store: ")
}

func TestHintsReachOtherProcesses(t *testing.T) {
	t.Parallel()
	dsn := enginetest.Postgres(t)
	a, b := open(t, dsn), open(t, dsn)
	<-b.Wake() // it listens
	accept(t, a, intake("a"))
	select {
	case <-b.Wake():
	case <-patience.After(t, time.Minute):
		t.Fatal("no hint reached the other store")
	}
}

func TestHistoryGoesToThePartitionOfItsDay(t *testing.T) {
	t.Parallel()
	dsn := enginetest.Postgres(t)
	s := open(t, dsn)
	accept(t, s, intake("a"))
	if err := s.Cancel(t.Context(), "a", store.Actor{Name: "ann", Reason: "test"}, store.Tell{}); err != nil {
		t.Fatal(err)
	}
	var have, want string
	if err := connect(t, dsn).QueryRow(t.Context(), `select tableoid::regclass::text,
		'history_' || to_char(ended at time zone 'UTC', 'YYYYMMDD') from history`).Scan(&have, &want); err != nil {
		t.Fatal(err)
	}
	if have != want {
		t.Errorf("want the run in %s, have it in %s", want, have)
	}
}

// A text that PostgreSQL cannot hold must be refused where a sender chose it,
// and must not keep a run from ending where a handler's error quotes it.
func TestTextThatCannotBeStored(t *testing.T) {
	t.Parallel()
	s := open(t, enginetest.Postgres(t))
	bad := intake("a")
	bad.Key = "nul \x00"
	if _, err := s.Accept(t.Context(), 0, []model.Intake{bad}); err == nil || !strings.Contains(err.Error(), "U+0000") {
		t.Errorf("want an error that explains, have %v", err)
	}
	accept(t, s, intake("b"))
	node, err := s.Join(t.Context(), "n", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Claim(t.Context(), node, 1, ""); err != nil {
		t.Fatal(err)
	}
	errs, err := s.Commit(t.Context(), node, []model.Change{{Run: "b", Status: model.Failed, Error: "it said \x00 and \xff"}})
	if err != nil || errs[0] != nil {
		t.Fatal(err, errs)
	}
	if r, err := s.Run(t.Context(), "b"); err != nil || r.Error != "it said \uFFFD and \uFFFD" {
		t.Errorf("have error %q, %v", r.Error, err)
	}
}

// Checkpoints must not touch indexes, or the hot table grows with every step.
func TestCheckpointsStayOnTheirPages(t *testing.T) {
	t.Parallel()
	dsn := enginetest.Postgres(t)
	s := open(t, dsn)
	node, err := s.Join(t.Context(), "n", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	in := intake("a")
	in.Own = true
	if _, err := s.Accept(t.Context(), node, []model.Intake{in}); err != nil {
		t.Fatal(err)
	}
	const steps = 60
	for v := range int64(steps) {
		errs, err := s.Commit(t.Context(), node, []model.Change{{
			Run: "a", Version: v, Status: model.Running, Checkpoint: []byte(strings.Repeat("x", 800)),
		}})
		if err != nil || errs[0] != nil {
			t.Fatal(err, errs)
		}
	}
	c := connect(t, dsn)
	var updates, hot int
	for over := patience.Over(time.Minute); updates < steps && !over(); {
		// Backends tell their statistics within a second after they become idle.
		if err := c.QueryRow(t.Context(), `select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables
			where relid = 'runs'::regclass and pg_sleep(0.05) is not null`).Scan(&updates, &hot); err != nil {
			t.Fatal(err)
		}
	}
	// One in eight begins a new page while another test has a transaction open, for which old versions stay.
	if updates < steps || hot < steps*3/4 {
		t.Errorf("of %d updates want most on their pages, have %d of %d", steps, hot, updates)
	}
}

// Poolers that hand a connection on after each transaction may not keep its
// prepared statements; pgx then works without.
func TestWorksWithoutPreparedStatements(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"exec", "cache_describe"} {
		s := open(t, with(t, enginetest.Postgres(t), "default_query_exec_mode", mode))
		node, err := s.Join(t.Context(), "n", time.Hour)
		if err != nil {
			t.Fatal(mode, err)
		}
		in := intake("a")
		in.From = []string{""}
		accept(t, s, in, intake("b"), in)
		runs, err := s.Claim(t.Context(), node, 10, "")
		if err != nil || len(runs) != 2 {
			t.Fatal(mode, runs, err)
		}
		for v, c := range []model.Change{
			{Status: model.Running, Checkpoint: []byte("{}"), Emit: []model.Intake{intake("emitted")}},
			{Status: model.Running, Checkpoint: []byte("{}")},
			{Status: model.Succeeded, State: "open", Shared: []byte(`{"n":1}`), Error: "é", Reason: "x"},
		} {
			c.Run, c.Version = "a", int64(v)
			if errs, err := s.Commit(t.Context(), node, []model.Change{c}); err != nil || errs[0] != nil {
				t.Fatal(mode, v, err, errs)
			}
		}
		park := model.Change{Run: "b", Status: model.Parked, Due: time.Now().Add(time.Hour)}
		if errs, err := s.Commit(t.Context(), node, []model.Change{park}); err != nil || errs[0] != nil {
			t.Fatal(mode, err, errs)
		}
		b, err := s.Beat(t.Context(), node, time.Hour, "")
		if err != nil || b.Ready != 1 || b.Next < time.Minute {
			t.Fatal(mode, b, err)
		}
		e, err := s.Entity(t.Context(), "orders", "a")
		if err != nil || e.State != "open" || len(e.Runs) != 1 {
			t.Fatal(mode, e, err)
		}
	}
}

// However many nodes ask, one counts for all, and not each time.
func TestWhatWaitsIsCountedOnceForAllNodes(t *testing.T) {
	t.Parallel()
	dsn := enginetest.Postgres(t)
	a, b := open(t, dsn), open(t, dsn)
	c := connect(t, dsn)
	gauge := func(s *postgres.Store) int {
		t.Helper()
		d, err := s.GaugeDepth(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return d.Waiting
	}
	if n := gauge(a); n != 0 {
		t.Fatalf("want nothing, have %d", n)
	}
	accept(t, a, intake("a"), intake("b"))
	run(t, c, "update depth set counted = 'infinity'") // as if it were being counted
	if n := gauge(b); n != 0 {
		t.Errorf("want the count of before, have %d", n)
	}
	run(t, c, "update depth set counted = clock_timestamp() - interval '2 seconds', took = 1000000") // for a second
	if n := gauge(b); n != 0 {
		t.Errorf("want no count that takes a second after two, have %d", n)
	}
	run(t, c, "update depth set counted = clock_timestamp() - interval '1 minute'")
	d, err := b.GaugeDepth(t.Context())
	if err != nil || d.Waiting != 2 || time.Since(d.Oldest).Abs() > time.Hour {
		t.Errorf("want two counted, have %+v, %v", d, err)
	}
	if n := gauge(a); n != 2 {
		t.Errorf("want what the other has counted, have %d", n)
	}

	// A quick count that finds the same as the last one is not written, since nobody would see a difference.
	took := func() (micros int) {
		t.Helper()
		run(t, c, "update depth set counted = clock_timestamp() - interval '1 minute', took = 7")
		gauge(b)
		if err := c.QueryRow(t.Context(), "select took from depth").Scan(&micros); err != nil {
			t.Fatal(err)
		}
		return micros
	}
	quick := false
	for range 100 { // a count is slow while the machine is busy
		quick = quick || took() == 7
	}
	if !quick {
		t.Error("want the same count not written")
	}
	accept(t, a, intake("c"))
	if micros := took(); micros == 7 || gauge(a) != 3 {
		t.Errorf("want another count written, have %d runs", gauge(a))
	}
}
