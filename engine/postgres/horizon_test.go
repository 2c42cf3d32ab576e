package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/engine/model"
	"procaas/engine/postgres"
)

// entriesRead returns how many entries of an index have been read, by sessions that
// have ended: others tell late.
func entriesRead(t *testing.T, c *pgx.Conn, index string) (n int64) {
	t.Helper()
	const read = `select idx_tup_read, (select count(*) from pg_stat_activity where application_name = $2)
	from pg_stat_user_indexes where indexrelid = $1::regclass`
	for over := patience.Over(time.Minute); !over(); wait(10 * time.Millisecond) {
		var sessions int
		if err := c.QueryRow(t.Context(), read, index, t.Name()).Scan(&n, &sessions); err != nil {
			t.Fatal(err)
		}
		if sessions == 0 {
			return n
		}
	}
	t.Fatal("the sessions of the store do not end")
	panic("unreachable")
}

// While a transaction is open elsewhere, claims and beats do not pass by all that
// has left the queue since it began.
func TestAnOpenTransactionDoesNotMakeLooksLonger(t *testing.T) {
	t.Parallel()
	dsn := enginetest.Postgres(t)
	c, idle := connect(t, dsn), connect(t, dsn)
	s, err := postgres.Open(t.Context(), with(t, dsn, "application_name", t.Name()), postgres.Options{Migrate: true})
	if err != nil {
		t.Fatal(err)
	}
	node := join(t, s)
	<-s.Wake() // it hears hints
	run(t, idle, "begin isolation level repeatable read")
	run(t, idle, "select from runs")
	const gone, looks = 30_000, 300
	for _, place := range []string{"ready", "parked"} {
		run(t, c, `insert into runs (id, accepted, due, deadline, priority, ordered, block, place, flow, key, pipeline, event)
			select $1 || n, now(), now() - interval '1 minute', now(), 0, false, false, $1, 'orders', 'k', 'made', ''
			from generate_series(1, $2::int) n`, place, gone)
	}
	run(t, c, "delete from runs")
	began := time.Now()
	for n := range looks {
		one := intake(fmt.Sprint(n))
		one.Ordered, one.Dedup = false, false
		accept(t, s, one)
		runs, err := s.Claim(t.Context(), node, 10, "b")
		if err != nil || len(runs) != 1 {
			t.Fatalf("want the run, have %v, %v", runs, err)
		}
		if _, err := s.Beat(t.Context(), node, time.Hour, ""); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	// Once a second all is looked at, by a claim, a beat and what the beat sweeps.
	most := int64(gone * 4 * (2 + int(time.Since(began).Seconds())))
	for _, index := range []string{"runs_ready", "runs_timer"} {
		n := entriesRead(t, c, index)
		t.Logf("%s: %d entries read by %d looks in %s", index, n, looks, time.Since(began).Round(time.Millisecond))
		if n > most {
			t.Errorf("%s: %d entries were read, want at most %d: looks pass by what is gone", index, n, most)
		}
	}
}

// What becomes ready before where a process looks is seen: of its own at once, of
// others with their hints, and at last without any.
func TestWhatComesBeforeTheHeadIsClaimed(t *testing.T) {
	t.Parallel()
	dsn := enginetest.Postgres(t)
	a, b := open(t, dsn), open(t, dsn)
	c := connect(t, dsn)
	node := join(t, a)
	<-a.Wake() // it hears hints
	<-b.Wake()
	urgent := func(id string) model.Intake {
		in := intake(id)
		in.Ordered, in.Event.Priority = false, 9
		return in
	}
	slow := intake("slow")
	slow.Ordered = false
	claim := func() string {
		t.Helper()
		for over := patience.Over(time.Minute); !over(); {
			runs, err := a.Claim(t.Context(), node, 1, "b")
			if err != nil {
				t.Fatal(err)
			}
			if len(runs) > 0 {
				return runs[0].ID
			}
		}
		t.Fatal("nothing is ready")
		return ""
	}
	accept(t, a, slow)
	if id := claim(); id != "slow" {
		t.Fatalf("have %s", id)
	}
	accept(t, a, urgent("own"))
	if runs, err := a.Claim(t.Context(), node, 1, "b"); err != nil || len(runs) != 1 {
		t.Fatalf("want what this process has accepted claimed at once, have %v, %v", runs, err)
	}
	accept(t, b, urgent("other's"))
	if id := claim(); id != "other's" {
		t.Errorf("have %s", id)
	}
	run(t, c, `insert into runs (id, accepted, due, deadline, priority, ordered, block, place, flow, key, pipeline, event)
		select 'silent', now(), now(), now(), 9, false, false, 'ready', 'orders', 'k', 'made', event from runs limit 1`)
	if id := claim(); id != "silent" {
		t.Errorf("have %s", id)
	}
}
