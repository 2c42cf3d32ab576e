package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"procaas/engine/api/client"
	"procaas/engine/clock"
	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/handlers/subscriptions/remote"
)

// outboxFlow counts the rows of each key, and those that come before an earlier one.
var outboxFlow = strings.NewReplacer(
	"broker: nats", "broker: postgres", "[URL]", `["postgres://URL/postgres"]`, "stream: ORDERS", "table: outbox", "    filter: orders.>\n", "",
).Replace(countedFlow)

// submittedFlow is the same for what programs submit to the store.
var submittedFlow = strings.NewReplacer(
	"broker: nats", "broker: store", "    servers: [URL]\n", "", "    stream: ORDERS\n", "", "    filter: orders.>\n", "",
	"type: counted", "type: !$ message.subject", "    key: !$ message.body.key\n", "",
).Replace(countedFlow)

// A service writes rows of its outbox together with its own, or submits events to the store, which is in its database then.
type service struct {
	t      *testing.T
	server *enginetest.Cluster
	db     *pgx.Conn

	table  string // with what nodes have not taken yet
	send   string // a statement, whose argument is a key
	writer string // the address that writers use

	committed atomic.Int64 // rows, but for those whose answer was lost
}

func newService(ctx context.Context, t *testing.T) *service {
	t.Helper()
	s := &service{t: t, server: enginetest.OwnPostgres(t), table: "outbox", send: "insert into outbox (key, n) select $1, n from a"}
	s.writer = s.server.URL
	s.connect(ctx)
	s.exec(ctx, `create table outbox (id bigint generated always as identity primary key, key text not null, n int not null);
		create table accounts (key text primary key, n int not null default 0);
		create role procaas login; grant select, delete on outbox to procaas`)
	s.exec(ctx, "insert into accounts select 'k-' || k from generate_series(0, $1) k", countedKeys-1)
	return s
}

func (s *service) connect(ctx context.Context) {
	s.t.Helper()
	var err error
	if s.db, err = pgx.Connect(ctx, s.server.URL); err != nil {
		s.t.Fatal(err)
	}
}

func (s *service) exec(ctx context.Context, statement string, args ...any) {
	s.t.Helper()
	if _, err := s.db.Exec(ctx, statement, args...); err != nil {
		s.t.Fatal(err)
	}
}

// write writes rows until so many are committed. Transactions commit in another order than they number their rows, and some are rolled back.
// Those of a key wait for each other. A server that ends under it does no harm.
func (s *service) write(ctx context.Context, rows int) {
	s.t.Helper()
	var work sync.WaitGroup
	for range 6 {
		work.Go(func() {
			var c *pgx.Conn
			for done := false; !done && ctx.Err() == nil; {
				var err error
				if c == nil || c.IsClosed() {
					if c, err = pgx.Connect(ctx, s.writer); err != nil {
						clock.Pause(ctx, 10*time.Millisecond)
						continue
					}
				}
				if done, err = s.one(ctx, c, rows); err != nil {
					clock.Pause(ctx, 10*time.Millisecond)
				}
			}
			if c != nil {
				_ = c.Close(ctx)
			}
		})
	}
	work.Wait()
}

// one writes a row, and reports whether so many are committed.
func (s *service) one(ctx context.Context, c *pgx.Conn, rows int) (done bool, err error) {
	tx, err := c.Begin(ctx)
	if err != nil {
		return false, err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	key, slow := fmt.Sprint("k-", rand.IntN(countedKeys)), rand.IntN(20) == 0
	_, err = tx.Exec(ctx, "with a as (update accounts set n = n + 1 where key = $1 returning n) "+s.send, key)
	if err == nil && slow {
		_, err = tx.Exec(ctx, "select pg_sleep(0.02)")
	}
	if err != nil || rand.IntN(10) == 0 {
		return false, err
	}
	if err := tx.Commit(ctx); err != nil {
		return false, err
	}
	return int(s.committed.Add(1)) >= rows, nil
}

// sums returns how many rows were committed, and how many of them are still there.
func (s *service) sums(ctx context.Context, c *pgx.Conn) (all, left int, err error) {
	err = c.QueryRow(ctx, "select (select sum(n) from accounts), (select count(*) from "+s.table+")").Scan(&all, &left)
	return all, left, err
}

// awaitTaken waits until so many rows are gone.
func (s *service) awaitTaken(ctx context.Context, rows int) {
	s.t.Helper()
	for {
		all, left, err := s.sums(ctx, s.db)
		if err != nil {
			s.t.Fatal(err)
		}
		if all-left >= rows {
			return
		}
		if !clock.Pause(ctx, 20*time.Millisecond) { // it counts all rows
			s.t.Fatalf("want %d rows taken, have %d of %d", rows, all-left, all)
		}
	}
}

// check wants that each key has counted its committed rows, and in their order if they are ordered.
func (s *service) check(ctx context.Context, c *client.Client, ordered bool) {
	s.t.Helper()
	rows, err := s.db.Query(ctx, "select key, n from accounts")
	if err != nil {
		s.t.Fatal(err)
	}
	type account struct {
		Key string
		N   int
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[account])
	if err != nil {
		s.t.Fatal(err)
	}
	for _, a := range all {
		for a.N > 0 {
			e, err := c.Entity(ctx, "account", a.Key)
			if err == nil && fmt.Sprint(e.SharedState["events"]) == fmt.Sprint(a.N) && e.Waiting == 0 {
				break
			}
			if !clock.Pause(ctx, 50*time.Millisecond) {
				s.t.Fatalf("want %d runs of %s, have %v (%v)", a.N, a.Key, e.SharedState, err)
			}
		}
	}
	for _, a := range all { // nothing came twice later
		if a.N == 0 {
			continue
		}
		e, err := c.Entity(ctx, "account", a.Key)
		if err != nil || fmt.Sprint(e.SharedState["events"]) != fmt.Sprint(a.N) || ordered && fmt.Sprint(e.SharedState["wrong"]) != "0" {
			s.t.Errorf("want %d runs of %s, in the order of its rows if %t, have %v (%v)", a.N, a.Key, ordered, e.SharedState, err)
		}
	}
}

// TestOutboxSurvivesKill9 kills a node, then one of two nodes, and then the database of the service, while the service writes 2,000 rows.
// Each committed row becomes exactly one run, and the rows of a key run in their order.
func TestOutboxSurvivesKill9(t *testing.T) {
	t.Parallel()
	ctx, cancel := patience.Context(t.Context(), 2*time.Minute)
	defer cancel()
	s := newService(ctx, t)
	const rows = 2000
	var writes sync.WaitGroup
	writes.Go(func() { s.write(ctx, rows) })
	defer writes.Wait()
	a := newCrashing(t, enginetest.MigratedPostgres(t), outboxFlow, s.server.Addr())
	first := a.start(ctx)
	s.awaitTaken(ctx, 150)
	first.kill()
	first = a.start(ctx)
	b := newCrashing(t, a.store, outboxFlow, s.server.Addr())
	second := b.start(ctx)
	s.awaitTaken(ctx, 500)
	first.kill()
	died := time.Now()
	_, left, err := s.sums(ctx, s.db)
	if err != nil {
		t.Fatal(err)
	}
	s.awaitTaken(ctx, 750)
	t.Logf("%d rows waited when the first node died; 250 more were taken %s later", left, time.Since(died).Round(10*time.Millisecond))
	if err := s.server.Restart(ctx, enginetest.StopImmediate); err != nil {
		t.Fatal(err)
	}
	s.connect(ctx)
	writes.Wait()
	all, _, err := s.sums(ctx, s.db)
	if err != nil || all < rows {
		t.Fatalf("want %d rows, have %d (%v)", rows, all, err)
	}
	s.awaitTaken(ctx, all)
	s.check(ctx, b.client, true)
	second.terminate()
}

// killOneOfTwo starts two nodes with their store beside the tables of the service, and kills the first one while a program that has only the
// right to call a function writes rows. The nodes can be started again.
func (s *service) killOneOfTwo(ctx context.Context, flow, function string, writes *sync.WaitGroup, rows int) (a, b *crashing, second *child) {
	s.t.Helper()
	s.exec(ctx, "create role app login; grant select, update on accounts to app")
	s.writer = "postgres://app@" + s.server.Addr() + "/postgres"
	a = newCrashing(s.t, s.server.URL, flow, "")
	first := a.start(ctx)
	s.exec(ctx, "grant execute on function "+function+" to app")
	writes.Go(func() { s.write(ctx, rows) })
	b = newCrashing(s.t, a.store, flow, "")
	second = b.start(ctx)
	s.awaitTaken(ctx, 150)
	first.kill()
	s.awaitTaken(ctx, 500)
	return a, b, second
}

// TestSubmittedEventsSurviveKill9 kills one of two nodes, and then the store, while a program submits 1,500 events in its own transactions.
func TestSubmittedEventsSurviveKill9(t *testing.T) {
	t.Parallel()
	ctx, cancel := patience.Context(t.Context(), 2*time.Minute)
	defer cancel()
	s := newService(ctx, t)
	s.table, s.send = "submitted", "select procaas_submit('counted', $1, jsonb_build_object('n', n)) from a"
	const rows = 1500
	var writes sync.WaitGroup
	defer writes.Wait()
	_, b, second := s.killOneOfTwo(ctx, submittedFlow, "procaas_submit", &writes, rows)
	if err := s.server.Restart(ctx, enginetest.StopImmediate); err != nil {
		t.Fatal(err)
	}
	s.connect(ctx)
	writes.Wait()
	all, _, err := s.sums(ctx, s.db)
	if err != nil || all < rows {
		t.Fatalf("want %d events, have %d (%v)", rows, all, err)
	}
	s.awaitTaken(ctx, all)
	s.check(ctx, b.client, true)
	s.exec(ctx, "select procaas_submit('strange')")
	eventually(t, "an event that no pipeline serves is a dead letter", func() bool {
		letters, err := remote.DeadLetters(ctx, b.client, "orders")
		return err == nil && len(letters) == 1 && letters[0].Subject == "strange"
	})
	second.terminate()
}

// enqueuedFlow counts the tasks of each key.
var enqueuedFlow = strings.Replace(countedPipelines, "    on: counted\n", "    queue: {concurrency: {key: 1}, retry: {attempts: 5}}\n", 1)

// TestEnqueuedTasksSurviveKill9 kills each of two nodes in turn, while a program enqueues 1,500 tasks in its own transactions. Each
// committed one is done once.
func TestEnqueuedTasksSurviveKill9(t *testing.T) {
	t.Parallel()
	ctx, cancel := patience.Context(t.Context(), 2*time.Minute)
	defer cancel()
	s := newService(ctx, t)
	s.table, s.send = "enqueued", "select procaas_enqueue('count', jsonb_build_object('n', n), $1) from a"
	const rows = 1500
	var writes sync.WaitGroup
	defer writes.Wait()
	a, _, second := s.killOneOfTwo(ctx, enqueuedFlow, "procaas_enqueue", &writes, rows)
	first := a.start(ctx)
	second.kill()
	writes.Wait()
	all, _, err := s.sums(ctx, s.db)
	if err != nil || all < rows {
		t.Fatalf("want %d tasks, have %d (%v)", rows, all, err)
	}
	s.awaitTaken(ctx, all)
	s.check(ctx, a.client, false) // the queue promises no order after a node has died
	first.terminate()
}

// TestOutboxForOperators looks at an outbox as operators do: while they hold it, without its table, without a right, and with rows that can
// become no event.
func TestOutboxForOperators(t *testing.T) {
	t.Parallel()
	ctx, cancel := patience.Context(t.Context(), time.Minute)
	defer cancel()
	s := newService(ctx, t)
	o := operateNode(t, strings.ReplaceAll(outboxFlow, "URL", s.server.Addr()))
	await := func(what string, is func(s remote.Subscription) bool) {
		t.Helper()
		eventually(t, what, func() bool {
			all, err := remote.List(ctx, o.client)
			return err == nil && len(all) == 1 && is(all[0])
		})
	}
	s.exec(ctx, "insert into outbox (key, n) values ('k-1', 1), ('', 2), ('k-1', 3)")
	await("a row without a key is a dead letter", func(s remote.Subscription) bool { return s.Accepted == 2 && s.DeadLetters == 1 && s.Lag == 0 })
	letters, err := remote.DeadLetters(ctx, o.client, "orders")
	if err != nil || len(letters) != 1 || !strings.HasPrefix(letters[0].ID, "public.outbox/2-") || letters[0].Subject != "public.outbox" {
		t.Errorf("want the second row, have %+v (%v)", letters, err)
	}
	s.exec(ctx, "revoke delete on outbox from procaas; insert into outbox (key, n) values ('k-1', 4)")
	await("what to grant", func(s remote.Subscription) bool {
		return s.State == remote.Failing && strings.Contains(s.Problem, "permission denied") || strings.Contains(s.Problem, "grant select, delete on")
	})
	s.exec(ctx, "grant delete on outbox to procaas")
	await("reading again", func(s remote.Subscription) bool { return s.State == remote.Reading && s.Lag == 0 })
	s.exec(ctx, "alter table outbox rename to away")
	await("without its table", func(s remote.Subscription) bool { return strings.Contains(s.Problem, "has no table outbox") })
	s.exec(ctx, "alter table away rename to outbox; insert into outbox (key, n) values ('k-1', 5)")
	await("with its table", func(s remote.Subscription) bool { return s.State == remote.Reading && s.Accepted == 4 })
}

// TestFigureOfOutbox measures rows a second from an outbox into runs of one set, with both databases on the same machine, and how long a
// row waits for its run.
func TestFigureOfOutbox(t *testing.T) {
	if *messagesOfFigure == 0 {
		t.Skip("only with -messages")
	}
	ctx := t.Context()
	s := newService(ctx, t)
	s.exec(ctx, "insert into outbox (key, n) select 'r-' || n, n from generate_series(1, $1) n", *messagesOfFigure)
	s.exec(ctx, "vacuum analyze outbox")
	c := newCrashing(t, enginetest.MigratedPostgres(t), strings.Replace(outboxFlow, "    parallelism: 2\n", "    parallelism: 2\n    payload: {n: !$ message.body.n}\n", 1), s.server.Addr())
	server := c.start(ctx)
	began := time.Now()
	for left := 1; left > 0; clock.Pause(ctx, 20*time.Millisecond) {
		var err error
		if _, left, err = s.sums(ctx, s.db); err != nil {
			t.Fatal(err)
		}
	}
	taken := time.Since(began)
	for {
		b, err := c.client.Backlog(ctx)
		if err == nil && b.Waiting == 0 {
			break
		}
		clock.Pause(ctx, 100*time.Millisecond)
	}
	t.Logf("%d rows: taken at %.0f/s, run at %.0f/s", *messagesOfFigure, float64(*messagesOfFigure)/taken.Seconds(), float64(*messagesOfFigure)/time.Since(began).Seconds())
	for _, trigger := range []bool{false, true} {
		if trigger {
			s.exec(ctx, `create function outbox_notify() returns trigger language plpgsql as 'begin notify procaas_outbox; return null; end';
				create trigger outbox_notify after insert on outbox for each statement execute function outbox_notify()`)
		}
		var waits []time.Duration
		for n := range 30 {
			clock.Pause(ctx, 1500*time.Millisecond+time.Duration(rand.IntN(1000))*time.Millisecond)
			key := fmt.Sprint("w-", trigger, n)
			at := time.Now()
			s.exec(ctx, "insert into outbox (key, n) values ($1, 1)", key)
			for {
				if e, err := c.client.Entity(ctx, "account", key); err == nil && fmt.Sprint(e.SharedState["events"]) == "1" {
					break
				}
				clock.Pause(ctx, 2*time.Millisecond)
			}
			waits = append(waits, time.Since(at))
		}
		slices.Sort(waits)
		t.Logf("from the insert to the end of the run, trigger %t: half within %s, all within %s", trigger, waits[len(waits)/2], waits[len(waits)-1])
	}
	server.terminate()
}
