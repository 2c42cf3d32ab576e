package transfer_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/handlers/sharding/transfer"
	"procaas/schemas"
)

// clusters are two servers of this process that decode their logs.
var clusters = sync.OnceValues(func() ([2]*enginetest.Cluster, error) {
	var out [2]*enginetest.Cluster
	for i := range out {
		c, err := startCluster()
		if err != nil {
			return out, err
		}
		out[i] = c
	}
	return out, nil
})

func startCluster() (*enginetest.Cluster, error) {
	return enginetest.StartPostgres(context.Background(), "wal_level = logical", "max_replication_slots = 20", "max_wal_senders = 20",
		"max_prepared_transactions = 5", "shared_buffers = '64MB'")
}

// tablesSQL is what both shards have.
const tablesSQL = `
create table mail (
	uid bigint, mid bigint, subject text not null, body text, n int not null default 0,
	size bigint generated always as (length(subject)) stored,
	tags text[], at timestamptz not null default now(), weight double precision, primary key (uid, mid));
create table label (uid bigint, lid bigint generated always as identity, name text not null, primary key (uid, lid));`

// mapName and key are what the tests move.
const (
	mapName = "mail"
	key     = "42"
)

// A world is two shards, and a map that knows one key.
type world struct {
	t     testing.TB
	dsn   [2]string
	names [2]string

	mu    sync.Mutex // guards the map
	shard int
	epoch int64
	tried int64
	owner string
	ended string // the transfer that has switched last

	refuses bool // the map does not switch for anybody
}

func newWorld(t testing.TB) *world {
	t.Helper()
	servers, err := clusters()
	if err != nil {
		t.Fatal(err)
	}
	return newWorldOn(t, servers)
}

func newWorldOn(t testing.TB, servers [2]*enginetest.Cluster, options ...string) *world {
	t.Helper()
	w := &world{t: t, names: [2]string{"s1", "s2"}, epoch: 1, tried: 1}
	name := "shard_" + strings.ToLower(rand.Text())
	for i, c := range servers {
		admin := w.connect(c.URL)
		if _, err := admin.Exec(t.Context(), "create database "+name+" "+strings.Join(options, " ")); err != nil {
			t.Fatal(err)
		}
		u, err := url.Parse(c.URL)
		if err != nil {
			t.Fatal(err)
		}
		u.Path = name
		w.dsn[i] = u.String()
		conn := w.connect(w.dsn[i])
		w.installFence(conn)
		w.exec(i, tablesSQL)
	}
	w.exec(0, "select procaas.fence($1, $2, 1, 'active', null, null, 0)", mapName, key)
	return w
}

// drop frees the place of the shards before the end of the test.
func (w *world) drop() {
	servers, err := clusters()
	if err != nil {
		w.t.Error(err)
		return
	}
	for i, c := range servers {
		u, err := url.Parse(w.dsn[i])
		if err != nil {
			w.t.Error(err)
			return
		}
		admin := w.connect(c.URL)
		if _, err := admin.Exec(w.t.Context(), "drop database "+strings.TrimPrefix(u.Path, "/")+" with (force)"); err != nil {
			w.t.Error(err)
		}
	}
}

func (w *world) installFence(conn *pgx.Conn) {
	w.t.Helper()
	files, err := fs.Glob(schemas.Shards, "shards/*.sql")
	if err != nil || len(files) == 0 {
		w.t.Fatalf("files of the fence: %d, %v", len(files), err)
	}
	statements := []string{"create schema procaas"}
	for _, f := range files {
		text, err := fs.ReadFile(schemas.Shards, f)
		if err != nil {
			w.t.Fatal(err)
		}
		statements = append(statements, string(text))
	}
	for _, sql := range append(statements, "insert into procaas.compared (timeline) values (procaas.timeline())") {
		if _, err := conn.Exec(w.t.Context(), sql); err != nil {
			w.t.Fatal(err)
		}
	}
}

// database is the name of both shards on their servers.
func (w *world) database() string {
	w.t.Helper()
	u, err := url.Parse(w.dsn[0])
	if err != nil {
		w.t.Fatal(err)
	}
	return strings.TrimPrefix(u.Path, "/")
}

func (w *world) connect(dsn string) *pgx.Conn {
	w.t.Helper()
	c, err := pgx.Connect(w.t.Context(), dsn)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = c.Close(ctx) // the server may be gone
	})
	return c
}

func (w *world) exec(shard int, sql string, args ...any) {
	w.t.Helper()
	c, err := pgx.Connect(w.t.Context(), w.dsn[shard])
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.Close(w.t.Context())
	if _, err := c.Exec(w.t.Context(), sql, args...); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
}

func (w *world) count(shard int, sql string, args ...any) (n int64) {
	w.t.Helper()
	c, err := pgx.Connect(w.t.Context(), w.dsn[shard])
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.Close(w.t.Context())
	if err := c.QueryRow(w.t.Context(), sql, args...).Scan(&n); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
	return n
}

// fill adds rows for the key and for some others.
func (w *world) fill(rows int) {
	w.t.Helper()
	w.exec(0, `insert into mail (uid, mid, subject, body, tags, weight)
		select 42, 1000000 + i, 'mail ' || i, repeat('x', 100), array['a', null, i::text], i / 7.0 from generate_series(1, $1::int) i`, rows)
	w.exec(0, `insert into label (uid, name) select 42, 'label ' || i from generate_series(1, $1::int / 4) i`, rows)
	for i := range 2 {
		w.exec(i, `insert into mail (uid, mid, subject) select u, i, 'noise'
			from generate_series(1, 20) u, generate_series(1, 50) i where u <> 42`)
	}
}

func (w *world) spec() transfer.Spec {
	return transfer.Spec{
		ID: "t1", Map: mapName, Key: key, Source: w.dsn[0], Target: w.dsn[1], SourceShard: w.names[0], TargetShard: w.names[1],
		Tables: []transfer.Table{
			{Name: "mail", Columns: []string{"uid"}, Key: []string{"42"}},
			{Name: "public.label", Columns: []string{"uid"}, Key: []string{"42"}},
		},
		// A machine that runs all tests at once stalls for seconds.
		Limits: transfer.Limits{
			Freeze: time.Minute, Lock: 5 * time.Second, Ping: 30 * time.Second, Slot: time.Minute, DDL: time.Minute,
			Attempts: 20, Batch: 500,
		},
	}
}

// claim is what the map returns to a coordinator; done when the transfer has switched.
func (w *world) claim(id string) (c transfer.Claim, done bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended == id {
		return transfer.Claim{Epoch: w.epoch, Next: w.epoch}, true
	}
	w.tried++
	w.owner = rand.Text()
	return transfer.Claim{Owner: w.owner, Epoch: w.epoch, Next: w.tried}, false
}

// switchTo is the compare-and-swap of the map.
func (w *world) switchTo(shard int, id string, c transfer.Claim) func(context.Context) error {
	return func(context.Context) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.refuses || w.owner != c.Owner || w.epoch != c.Epoch {
			return transfer.ErrNotSwitched
		}
		w.shard, w.epoch, w.owner, w.ended = shard, c.Next, "", id
		return nil
	}
}

func (w *world) placed() (shard int, epoch int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.shard, w.epoch
}

// transfer does all steps, beginning again where an error asks for it.
func (w *world) transfer(ctx context.Context, spec transfer.Spec) (transfer.Window, error) {
	for range 10 {
		window, err := w.once(ctx, spec)
		if !transfer.MustRestart(err) {
			return window, err
		}
		w.t.Log(err)
	}
	return transfer.Window{}, errors.New("it begins again and again")
}

// open waits for the server to notice that connections of an earlier coordinator are gone.
func (w *world) open(ctx context.Context, how func(context.Context, transfer.Spec, transfer.Claim) (*transfer.Mover, error),
	spec transfer.Spec, c transfer.Claim,
) (*transfer.Mover, error) {
	for over := patience.Over(time.Minute); ; {
		m, err := how(ctx, spec, c)
		if !errors.Is(err, transfer.ErrBusy) || over() || pgxPause(ctx, 5*time.Millisecond) != nil {
			return m, err
		}
	}
}

func (w *world) once(ctx context.Context, spec transfer.Spec) (window transfer.Window, err error) {
	c, done := w.claim(spec.ID)
	m, err := w.open(ctx, transfer.Open, spec, c)
	if err != nil {
		return window, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	if !done {
		steps := []func(context.Context) error{m.Plan, m.Claim, m.Copy, m.Stream, m.Verify}
		for _, step := range steps {
			if err := step(ctx); err != nil {
				return window, err
			}
		}
		if window, err = m.Cutover(ctx, w.switchTo(1, spec.ID, c)); err != nil {
			return window, err
		}
	}
	if err := m.Retire(ctx); err != nil {
		return window, err
	}
	return window, m.Cleanup(ctx)
}

// A load writes to the key all the time, and remembers what was acknowledged.
type load struct {
	w       *world
	cancel  context.CancelFunc
	done    sync.WaitGroup
	writers []*writer
}

type writer struct {
	n       int
	acked   map[int64]string // of mail by mid: the body; "" when it was deleted
	unsure  map[int64]bool   // the connection ended before the answer
	count   atomic.Int64     // of acknowledged writes
	refused int
	spells  []spell // of all writes
}

// A spell is how long a write took, with all of its attempts.
type spell struct {
	began time.Time
	took  time.Duration
}

// write starts a load of n writers. They own the mids that are n modulo their number.
func (w *world) write(n int) *load {
	ctx, cancel := context.WithCancel(w.t.Context())
	l := &load{w: w, cancel: cancel}
	for i := range n {
		one := &writer{n: i, acked: map[int64]string{}, unsure: map[int64]bool{}}
		l.writers = append(l.writers, one)
		l.done.Go(func() { one.run(ctx, w, int64(n)) })
	}
	w.t.Cleanup(func() { l.cancel(); l.done.Wait() })
	return l
}

// stop ends the writers.
func (l *load) stop() {
	l.cancel()
	l.done.Wait()
}

// await waits until n more writes were acknowledged.
func (l *load) await(n int64) {
	l.w.t.Helper()
	sum := func() (sum int64) {
		for _, one := range l.writers {
			sum += one.count.Load()
		}
		return sum
	}
	until := sum() + n
	patience.Until(l.w.t, fmt.Sprintf("%d writes are acknowledged", until), func() bool { return sum() >= until })
}

// total returns how many writes were acknowledged so far by all: read it after stop.
func (l *load) total() (writes, refused int) {
	for _, one := range l.writers {
		writes, refused = writes+int(one.count.Load()), refused+one.refused
	}
	return writes, refused
}

// rate is how many writes were acknowledged in a second by all: read it after stop.
func (l *load) rate() int {
	var first, last time.Time
	for _, one := range l.writers {
		for _, s := range one.spells {
			if first.IsZero() || s.began.Before(first) {
				first = s.began
			}
			if s.began.After(last) {
				last = s.began
			}
		}
	}
	writes, _ := l.total()
	return int(float64(writes) / max(last.Sub(first), time.Millisecond).Seconds())
}

// worst returns the longest write in flight between two times.
func (l *load) worst(from, to time.Time) (longest time.Duration) {
	for _, one := range l.writers {
		for _, s := range one.spells {
			if s.began.Before(to) && s.began.Add(s.took).After(from) {
				longest = max(longest, s.took)
			}
		}
	}
	return longest
}

func (o *writer) run(ctx context.Context, w *world, step int64) {
	conns := map[int]*pgx.Conn{}
	defer func() {
		for _, c := range conns {
			_ = c.Close(context.Background())
		}
	}()
	for i := int64(0); ctx.Err() == nil; i++ {
		mid := int64(o.n) + step*(i%200)
		body := fmt.Sprintf("%d/%d", o.n, i)
		if i%7 == 6 {
			body = ""
		}
		began := time.Now()
		for ctx.Err() == nil && !o.try(ctx, w, conns, mid, body) {
			o.refused++
			_ = pgxPause(ctx, time.Millisecond)
		}
		o.spells = append(o.spells, spell{began, time.Since(began)})
		_ = pgxPause(ctx, time.Millisecond)
	}
}

func pgxPause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// try writes once; false when the caller must try again.
func (o *writer) try(ctx context.Context, w *world, conns map[int]*pgx.Conn, mid int64, body string) bool {
	shard, epoch := w.placed()
	c := conns[shard]
	if c == nil || c.IsClosed() {
		var err error
		if c, err = pgx.Connect(ctx, w.dsn[shard]); err != nil {
			return false
		}
		conns[shard] = c
	}
	committing := false
	err := func() error {
		tx, err := c.Begin(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
		if _, err := tx.Exec(ctx, "select procaas.guard($1, $2, $3)", mapName, key, epoch); err != nil {
			return err
		}
		if body == "" {
			_, err = tx.Exec(ctx, "delete from mail where uid = 42 and mid = $1", mid)
		} else {
			_, err = tx.Exec(ctx, `insert into mail (uid, mid, subject, body) values (42, $1, 'live', $2)
				on conflict (uid, mid) do update set body = excluded.body, n = mail.n + 1`, mid, body)
		}
		if err != nil {
			return err
		}
		committing = true
		return tx.Commit(ctx)
	}()
	if err == nil {
		o.acked[mid] = body
		delete(o.unsure, mid)
		o.count.Add(1)
		return true
	}
	var pg *pgconn.PgError
	if committing && !errors.As(err, &pg) {
		o.unsure[mid] = true
	}
	return false
}

// check compares what was acknowledged with the shard that the map names.
func (l *load) check() {
	t, w := l.w.t, l.w
	t.Helper()
	shard, epoch := w.placed()
	c := w.connect(w.dsn[shard])
	rows, err := c.Query(t.Context(), "select mid, body from mail where uid = 42 and mid < 1000000")
	if err != nil {
		t.Fatal(err)
	}
	have := map[int64]string{}
	var mid int64
	var body string
	if _, err := pgx.ForEachRow(rows, []any{&mid, &body}, func() error { have[mid] = body; return nil }); err != nil {
		t.Fatal(err)
	}
	wrong := 0
	for _, o := range l.writers {
		for mid, want := range o.acked {
			if have[mid] != want && !o.unsure[mid] {
				wrong++
				t.Logf("mid %d: have %q, acknowledged %q", mid, have[mid], want)
			}
		}
	}
	writes, refused := l.total()
	t.Logf("%d writes acknowledged, %d refused, %d wrong; on shard %s at epoch %d", writes, refused, wrong, w.names[shard], epoch)
	if wrong > 0 {
		t.Errorf("%d acknowledged writes are lost", wrong)
	}
	if writes == 0 {
		t.Error("nothing was written")
	}
}

// clean checks that a transfer has left nothing where the key is not, and nothing of
// its own anywhere.
func (w *world) clean(rows int) {
	w.t.Helper()
	shard, epoch := w.placed()
	if n := w.count(1-shard, "select (select count(*) from mail where uid = 42) + (select count(*) from label where uid = 42)"); n != 0 {
		w.t.Errorf("%d rows are left on the shard that the key has left", n)
	}
	if n := w.count(shard, "select count(*) from mail where uid = 42 and mid >= 1000000"); n != int64(rows) {
		w.t.Errorf("have %d rows of the beginning, want %d", n, rows)
	}
	if n := w.count(shard, "select count(*) from label where uid = 42"); n != int64(rows/4) {
		w.t.Errorf("have %d labels, want %d", n, rows/4)
	}
	for i := range 2 {
		if n := w.count(i, "select count(*) from pg_replication_slots where database = current_database()"); n != 0 {
			w.t.Errorf("%d slots are left on %s", n, w.names[i])
		}
		if n := w.count(i, "select (select count(*) from pg_publication) + (select count(*) from procaas.transfer_position)"); n != 0 {
			w.t.Errorf("%d publications and positions are left on %s", n, w.names[i])
		}
		if n := w.count(i, "select count(*) from mail where uid <> 42"); n != 1000 {
			w.t.Errorf("others have %d rows on %s, want 1000", n, w.names[i])
		}
	}
	if n := w.count(shard, "select count(*) from procaas.fences where map = $1 and key = $2 and state = 'active' and epoch = $3", mapName,
		key, epoch); n != 1 {
		w.t.Errorf("the key cannot be written at epoch %d on %s", epoch, w.names[shard])
	}
	if n := w.count(1-shard, "select count(*) from procaas.fences where map = $1 and key = $2 and state in ('active', 'frozen')", mapName,
		key); n != 0 {
		w.t.Error("the key can be written on both shards")
	}
}
