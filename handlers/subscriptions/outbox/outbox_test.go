package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/handlers/subscriptions/broker"
	"procaas/handlers/subscriptions/brokertest"
	"procaas/handlers/subscriptions/language"
	"procaas/handlers/subscriptions/outbox"
)

// A rig is a database of a service.
type rig struct {
	t       *testing.T
	ctx     context.Context
	dsn     string
	db      *pgx.Conn // of the service
	sub     language.Subscription
	secrets map[string]string
}

const outboxTable = "create table outbox (id bigint generated always as identity primary key, key text not null, n int not null)"

// newRig makes an outbox in a schema of its own.
func newRig(t *testing.T, tables ...string) *rig {
	t.Helper()
	return newRigAt(t, enginetest.Postgres(t), tables...)
}

func newRigAt(t *testing.T, dsn string, tables ...string) *rig {
	t.Helper()
	ctx, cancel := patience.Context(t.Context(), time.Minute)
	t.Cleanup(cancel)
	r := &rig{t: t, ctx: ctx, dsn: dsn, secrets: map[string]string{"password": ""}}
	r.db = r.connect()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	schema := u.Query().Get("search_path")
	if schema == "" {
		schema = "public"
	}
	r.sub = language.Subscription{
		ID: "orders", Broker: "postgres", Servers: []string{"postgres://" + u.Host + u.Path}, Table: schema + ".outbox",
		Auth: &language.Login{Username: u.User.Username(), Password: brokertest.Secret("password")},
	}
	for _, statement := range tables {
		r.exec(statement)
	}
	return r
}

// connect connects as the service.
func (r *rig) connect() *pgx.Conn {
	r.t.Helper()
	c, err := pgx.Connect(r.ctx, r.dsn)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

func (r *rig) exec(statement string, args ...any) {
	r.t.Helper()
	if _, err := r.db.Exec(r.ctx, statement, args...); err != nil {
		r.t.Fatal(err)
	}
}

// dropRole drops a role at the end of a test.
func (r *rig) dropRole(role string) {
	ctx := context.Background()
	c, err := pgx.Connect(ctx, r.dsn)
	if err == nil {
		_, err = c.Exec(ctx, "drop owned by "+role+"; drop role "+role)
		err = errors.Join(err, c.Close(ctx))
	}
	if err != nil {
		r.t.Error(err)
	}
}

// count counts rows.
func (r *rig) count(from string) (n int) {
	r.t.Helper()
	if err := r.db.QueryRow(r.ctx, "select count(*) from "+from).Scan(&n); err != nil {
		r.t.Fatal(err)
	}
	return n
}

func (r *rig) open() broker.Source {
	r.t.Helper()
	s, err := outbox.Open(r.ctx, brokertest.Options(&r.sub, r.secrets))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(s.Close)
	return s
}

// refused wants that Open fails, and says why.
func (r *rig) refused(why ...string) (said string) {
	r.t.Helper()
	s, err := outbox.Open(r.ctx, brokertest.Options(&r.sub, r.secrets))
	if err == nil {
		s.Close()
		r.t.Fatalf("want an error with %q, have none", why)
	}
	for _, w := range why {
		if !strings.Contains(err.Error(), w) {
			r.t.Errorf("want an error with %q, have %v", w, err)
		}
	}
	return err.Error()
}

// fetch fetches until there is something.
func (r *rig) fetch(s broker.Source) []broker.Message {
	r.t.Helper()
	for {
		got, err := s.Fetch(r.ctx)
		if err != nil {
			r.t.Fatal(err)
		}
		if len(got) > 0 {
			return got
		}
	}
}

func (r *rig) done(s broker.Source, messages []broker.Message) {
	r.t.Helper()
	if err := s.Done(r.ctx, messages); err != nil {
		r.t.Fatal(err)
	}
}

func bodies(messages []broker.Message) (all []string) {
	for _, m := range messages {
		all = append(all, string(m.Body))
	}
	return all
}

// TestALateCommitIsNotPassedOver lets the row with the smaller number be committed after the other one was read and removed.
func TestALateCommitIsNotPassedOver(t *testing.T) {
	t.Parallel()
	r := newRig(t, outboxTable)
	s := r.open()
	slow, err := r.connect().Begin(r.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := slow.Exec(r.ctx, "insert into outbox (key, n) values ('a', 1)"); err != nil {
		t.Fatal(err)
	}
	r.exec("insert into outbox (key, n) values ('b', 2)")
	first := r.fetch(s)
	if err := slow.Commit(r.ctx); err != nil {
		t.Fatal(err)
	}
	second := r.fetch(s) // while the first one is not done
	r.done(s, first)
	r.exec("insert into outbox (key, n) values ('c', 3)")
	third := r.fetch(s)
	have := strings.Join(bodies(append(append(first, second...), third...)), " ")
	if want := `{"id":2,"key":"b","n":2} {"id":1,"key":"a","n":1} {"id":3,"key":"c","n":3}`; have != want {
		t.Errorf("want each row once, have %s", have)
	}
	if lag, err := s.Lag(r.ctx); err != nil || lag != 2 {
		t.Errorf("want a lag of 2, have %d (%v)", lag, err)
	}
	r.done(s, append(second, third...))
	if n := r.count("outbox"); n != 0 {
		t.Errorf("want no rows left, have %d", n)
	}
}

// A tally is what a reader got: the numbers of each key in their order.
type tally struct {
	seen map[string][]int
	ids  map[string]bool
	rows int
}

func (y *tally) take(t *testing.T, all []broker.Message) {
	t.Helper()
	for _, m := range all {
		var id, n int
		var key string
		if _, err := fmt.Sscanf(string(m.Body), `{"id":%d,"key":%q,"n":%d}`, &id, &key, &n); err != nil {
			t.Fatalf("%s: %v", m.Body, err)
		}
		if y.ids[m.ID] {
			t.Errorf("%s came twice", m.ID)
		}
		y.ids[m.ID], y.seen[key] = true, append(y.seen[key], n)
		y.rows++
	}
}

// TestConcurrentWriters lets 8 writers commit and roll back at random. Those of a key wait for each other, as writers do that change the row
// of what the message is about. Each committed row must come once, those of a key in their order.
func TestConcurrentWriters(t *testing.T) {
	t.Parallel()
	const writers, keys, rounds = 8, 5, 60
	r := newRig(t, outboxTable, "create table accounts (key text primary key, n int not null)")
	for k := range keys {
		r.exec("insert into accounts values ($1, 0)", fmt.Sprint("k", k))
	}
	var work sync.WaitGroup
	for range writers {
		c := r.connect()
		work.Go(func() {
			for range rounds {
				if err := write(r.ctx, c, fmt.Sprint("k", rand.IntN(keys))); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	written := make(chan struct{})
	go func() {
		work.Wait()
		close(written)
	}()
	y := tally{seen: map[string][]int{}, ids: map[string]bool{}}
	s := r.open()
	for ended := false; ; {
		got, err := s.Fetch(r.ctx)
		if err != nil {
			t.Fatal(err)
		}
		y.take(t, got)
		if len(got) > 0 {
			r.done(s, got)
			continue
		}
		if ended {
			break
		}
		select {
		case <-written:
			ended = true
		default:
		}
	}
	for k := range keys {
		key := fmt.Sprint("k", k)
		var n int
		if err := r.db.QueryRow(r.ctx, "select n from accounts where key = $1", key).Scan(&n); err != nil {
			t.Fatal(err)
		}
		for i, have := range y.seen[key] {
			if have != i+1 {
				t.Fatalf("want the rows of %s in their order, have %v", key, y.seen[key])
			}
		}
		if len(y.seen[key]) != n || n == 0 {
			t.Errorf("want the %d committed rows of %s, have %d", n, key, len(y.seen[key]))
		}
	}
	if n := r.count("outbox"); n != 0 {
		t.Errorf("want no rows left, have %d", n)
	}
}

// write writes a row of a key in a transaction, and often gives it up.
func write(ctx context.Context, c *pgx.Conn, key string) error {
	errGivenUp := errors.New("given up")
	err := pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
		var n int
		if err := tx.QueryRow(ctx, "update accounts set n = n + 1 where key = $1 returning n", key).Scan(&n); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "insert into outbox (key, n) values ($1, $2)", key, n); err != nil {
			return err
		}
		if rand.IntN(3) == 0 {
			return errGivenUp
		}
		_, err := tx.Exec(ctx, "select pg_sleep($1)", float64(rand.IntN(3))/1000) // others commit meanwhile
		return err
	})
	if errors.Is(err, errGivenUp) {
		return nil
	}
	return err
}

// TestARowThatWasNotRemovedComesAgain reads rows that a reader has not removed. They have the same ids, in the same order. Rows that only
// use their keys again have others.
func TestARowThatWasNotRemovedComesAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, outboxTable)
	for n := range 40 {
		r.exec("insert into outbox (key, n) values ('k', $1)", n)
	}
	ids := func(s broker.Source) (all []string) {
		for len(all) < 40 {
			for _, m := range r.fetch(s) {
				all = append(all, m.ID)
			}
		}
		s.Close()
		return all
	}
	first := strings.Join(ids(r.open()), " ")
	if again := strings.Join(ids(r.open()), " "); again != first {
		t.Errorf("want the same messages again, have\n%s\nand\n%s", first, again)
	}
	r.exec("truncate outbox restart identity")
	for n := range 40 {
		r.exec("insert into outbox (key, n) values ('other', $1)", n)
	}
	for _, id := range ids(r.open()) {
		if strings.Contains(first, id) {
			t.Errorf("the id %s is used again", id)
		}
	}
}

// TestRowsMayBeMarked keeps rows, with keys of several columns, with each type of a mark, and with an order that is not that of the keys.
func TestRowsMayBeMarked(t *testing.T) {
	t.Parallel()
	for kind, unmarked := range map[string]string{"timestamptz": "null", "timestamp": "null", "boolean not null": "false", "boolean": "null"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, `create table outbox ("The Id" uuid default gen_random_uuid(), day timestamptz default now(), nr int, sent `+kind+`, primary key (day, "The Id"))`)
			for n := range 100 {
				r.exec("insert into outbox (nr, sent) values ($1, "+unmarked+")", 99-n)
			}
			r.sub.Mark, r.sub.OrderBy = "sent", "nr"
			s := r.open()
			for n := 0; n < 100; {
				got := r.fetch(s)
				for _, m := range got {
					if !strings.Contains(string(m.Body), fmt.Sprintf(`"nr":%d,`, n)) {
						t.Fatalf("want row %d, have %s", n, m.Body)
					}
					n++
				}
				r.done(s, got)
			}
			if n := r.count("outbox"); n != 100 {
				t.Errorf("want all rows kept, have %d", n)
			}
			if lag, err := s.Lag(r.ctx); err != nil || lag != 0 {
				t.Errorf("want no lag, have %d (%v)", lag, err)
			}
			if got, err := r.open().Fetch(r.ctx); err != nil || len(got) > 0 {
				t.Errorf("want nothing again, have %d rows (%v)", len(got), err)
			}
		})
	}
}

// TestLargeRowsAreBounded reads rows of 1 MiB, and one that is larger than a message may be.
func TestLargeRowsAreBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t, "create table outbox (id bigint generated always as identity primary key, payload text)")
	r.exec("insert into outbox (payload) select 'x' from generate_series(1, 200)")
	r.exec("insert into outbox (payload) select repeat('é', 400000) from generate_series(1, 30)")
	r.exec("insert into outbox (payload) values (repeat('x', 50000000))")
	s := r.open()
	for n := 0; n < 231; {
		got := r.fetch(s)
		size := 0
		for i, m := range got {
			if i < len(got)-1 {
				size += len(m.Body)
			}
			if len(m.Body) > s.Most() {
				t.Errorf("want at most %d bytes, have %d", s.Most(), len(m.Body))
			}
		}
		if size > broker.MaxBytes || len(got) > broker.MaxMessages {
			t.Fatalf("a batch has %d rows, and %d bytes before the last one", len(got), size)
		}
		n += len(got)
		if last := got[len(got)-1]; n == 231 && len(last.Body) != 1<<20+1 {
			t.Errorf("want the large row cut after 1 MiB, have %d bytes", len(last.Body))
		}
		r.done(s, got)
	}
}

// TestColumnsWithAMeaning looks at what a message has of its row.
func TestColumnsWithAMeaning(t *testing.T) {
	t.Parallel()
	r := newRig(t, "create table outbox (id text primary key, nr serial, key bigint, headers jsonb, payload jsonb, created_at timestamptz)")
	r.sub.OrderBy = "nr"
	r.exec(`insert into outbox values ('a/b', 1, 12345678901, '{"Traceparent": "00-1"}', '{"a": 1}', '2026-01-02 03:04:05.6+02'), ('b', 2, null, '[]', null, null)`)
	s := r.open()
	got := r.fetch(s)
	at := time.Date(2026, 1, 2, 1, 4, 5, 600_000_000, time.UTC)
	if m := got[0]; m.Key != "12345678901" || m.Headers["traceparent"] != "00-1" || !m.Time.Equal(at) || m.Subject != r.sub.Table {
		t.Errorf("want what the columns say, have %+v", m)
	}
	if want := `{"id":"a/b","nr":1,"key":12345678901,"headers":{"Traceparent": "00-1"},"payload":{"a": 1},"created_at":"2026-01-02T01:04:05.6+00:00"}`; string(got[0].Body) != want {
		t.Errorf("want the body\n%s, have\n%s", want, got[0].Body)
	}
	if m := got[1]; m.Key != "" || len(m.Headers) > 0 || m.Time.IsZero() || !strings.HasPrefix(m.ID, r.sub.Table+"/b-") {
		t.Errorf("want nothing but the row, have %+v", m)
	}
	r.done(s, got)
}

// TestAServiceMayNotify lets a reader that would look after an hour look at once.
func TestAServiceMayNotify(t *testing.T) {
	t.Parallel()
	r := newRig(t, outboxTable)
	s := r.open()
	outbox.WaitLong(s)
	started := make(chan struct{})
	failed := make(chan error, 1)
	service := r.connect()
	go func() {
		<-started
		_, err := service.Exec(r.ctx, "with i as (insert into outbox (key, n) values ('a', 1) returning id) select pg_notify('"+outbox.Channel+"', '') from i")
		failed <- err
	}()
	close(started)
	if got := r.fetch(s); len(got) != 1 {
		t.Errorf("want the row, have %v", bodies(got))
	}
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
}

// TestWhatIsWrongWithATable opens tables that cannot be read, and what is said about each.
func TestWhatIsWrongWithATable(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		table string
		sub   func(*language.Subscription)
		want  string
	}{
		"none":           {"select 1", nil, "has no table"},
		"a view":         {"create view outbox as select 1 as id", nil, "is no table"},
		"no key":         {"create table outbox (id int)", nil, "has no primary key"},
		"no order":       {"create table outbox (id uuid primary key)", nil, "the primary key id of "},
		"order-by":       {"create table outbox (id int primary key, at int)", func(s *language.Subscription) { s.OrderBy = "att" }, "has no column att, which order-by: names; it has id, at"},
		"mark":           {"create table outbox (id int primary key)", func(s *language.Subscription) { s.Mark = "sent" }, "has no column sent, which mark: names; it has id"},
		"a strange mark": {"create table outbox (id int primary key, sent text)", func(s *language.Subscription) { s.Mark = "sent" }, "mark: wants a boolean or a timestamp"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, c.table)
			if c.sub != nil {
				c.sub(&r.sub)
			}
			r.refused(c.want)
		})
	}
}

// TestMissingRightsAreNamed grants what the error says, which must be enough.
func TestMissingRightsAreNamed(t *testing.T) {
	t.Parallel()
	for _, mark := range []string{"", "sent"} {
		t.Run("mark "+mark, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, "create table outbox (id int primary key, sent boolean)", "insert into outbox values (1)")
			role := `"` + strings.ToLower(strings.TrimSuffix(r.sub.Table, ".outbox")) + ` reader"`
			r.exec("create role " + role + " login")
			t.Cleanup(func() { r.dropRole(role) })
			r.sub.Mark, r.sub.Auth.Username = mark, strings.Trim(role, `"`)
			mend := func(said string) {
				_, remedy, _ := strings.Cut(said, "run: ")
				for statement := range strings.SplitSeq(remedy, "; ") {
					r.exec(statement)
				}
			}
			mend(r.refused("may not take rows", "grant usage on schema"))
			r.exec("alter table outbox enable row level security")
			mend(r.refused("row security may hide rows"))
			s := r.open()
			r.done(s, r.fetch(s))
		})
	}
}

// TestATableGoesAway drops the table under its reader.
func TestATableGoesAway(t *testing.T) {
	t.Parallel()
	r := newRig(t, outboxTable, "insert into outbox (key, n) values ('a', 1)")
	s := r.open()
	got := r.fetch(s)
	r.exec("drop table outbox")
	_, err := s.Fetch(r.ctx)
	for _, err := range []error{err, s.Done(r.ctx, got)} {
		if gone, ok := errors.AsType[*pgconn.PgError](err); !ok || gone.Code != "42P01" {
			t.Errorf("want that the table is gone, have %v", err)
		}
	}
	r.refused("has no table")
}
