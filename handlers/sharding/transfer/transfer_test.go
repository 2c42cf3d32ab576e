package transfer_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"procaas/handlers/sharding/transfer"
)

func TestTransferUnderLoadLosesNothing(t *testing.T) {
	w := newWorld(t)
	w.fill(5000)
	l := w.write(3)
	window, err := w.transfer(t.Context(), w.spec())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", window)
	l.stop()
	l.check()
	w.clean(5000)
	if shard, epoch := w.placed(); shard != 1 || epoch < 2 {
		t.Errorf("the key is on shard %d at epoch %d", shard, epoch)
	}
}

// The way back carries what was written to the target since the switch, and nothing of
// what came from the source.
func TestRollbackLosesNothing(t *testing.T) {
	w := newWorld(t)
	w.fill(500)
	l := w.write(2)
	ctx, spec := t.Context(), w.spec()
	c, _ := w.claim(spec.ID)
	m, err := transfer.Open(ctx, spec, c)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []func(context.Context) error{m.Plan, m.Claim, m.Copy, m.Stream, m.Verify} {
		if err := step(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := m.Cutover(ctx, w.switchTo(1, spec.ID, c)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(m.Retire(ctx), m.Close()); err != nil {
		t.Fatal(err)
	}
	l.await(300)

	w.survive(spec, harmsOf(killed, "stream", "frozen", "sealed", "switched"), w.rollback)
	if shard, epoch := w.placed(); shard != 0 || epoch < 3 {
		t.Errorf("the key is on shard %d at epoch %d", shard, epoch)
	}
	l.await(100)
	l.stop()
	l.check()
	w.clean(500)
}

func (w *world) rollback(ctx context.Context, spec transfer.Spec) (err error) {
	c, done := w.claim("back")
	m, err := w.open(ctx, transfer.OpenBack, spec, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	if !done {
		if err := m.Claim(ctx); err != nil {
			return err
		}
		if err := m.Stream(ctx); err != nil {
			return err
		}
		if _, err := m.Cutover(ctx, w.switchTo(0, "back", c)); err != nil {
			return err
		}
	}
	if err := m.Retire(ctx); err != nil {
		return err
	}
	return m.Cleanup(ctx)
}

func TestLockCopySwitchNeedsNoPrimaryKey(t *testing.T) {
	w := newWorld(t)
	for i := range 2 {
		w.exec(i, "alter table label drop constraint label_pkey")
	}
	w.fill(500)
	l := w.write(2)
	w.survive(w.spec(), harmsOf(killed, "frozen", "copied", "sealed"), func(ctx context.Context, spec transfer.Spec) (err error) {
		c, _ := w.claim(spec.ID)
		m, err := w.open(ctx, transfer.Open, spec, c)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, m.Close()) }()
		if err := m.Plan(ctx); !strings.Contains(fmt.Sprint(err), "label has no primary key") {
			t.Fatalf("have %v, want a refusal of the table label", err)
		}
		if err := errors.Join(m.PlanLocked(ctx), m.Claim(ctx)); err != nil {
			return err
		}
		if _, err = m.LockCopySwitch(ctx, w.switchTo(1, spec.ID, c)); err != nil {
			return err
		}
		return errors.Join(m.Retire(ctx), m.Cleanup(ctx))
	})
	l.await(50)
	l.stop()
	l.check()
	w.clean(500)
}

// A coordinator that stops between the freeze and the seal leaves the key to the source
// after the deadline, without anybody's help, and can never switch afterwards.
func TestFreezeEndsByItself(t *testing.T) {
	w := newWorld(t)
	w.fill(100)
	l := w.write(1)
	spec, ctx := w.spec(), t.Context()
	spec.Limits.Freeze, spec.Limits.Attempts = 300*time.Millisecond, 1
	spec.Hook = func(at string) error {
		if at == "drained" {
			l.await(20) // writes that only a thawed source takes
		}
		return nil
	}
	_, err := w.transfer(ctx, spec)
	if err == nil || !strings.Contains(err.Error(), "run out") {
		t.Fatalf("have %v, want that the freeze has run out", err)
	}
	if shard, epoch := w.placed(); shard != 0 || epoch != 1 {
		t.Errorf("the key is on shard %d at epoch %d", shard, epoch)
	}
	spec = w.spec()
	if _, err := w.transfer(ctx, spec); err != nil {
		t.Fatal(err)
	}
	l.stop()
	l.check()
	w.clean(100)
}

// A coordinator that was thought dead goes on after another one has taken over.
func TestZombieChangesNothing(t *testing.T) {
	w := newWorld(t)
	w.fill(100)
	l := w.write(1)
	spec, ctx := w.spec(), t.Context()
	old, _ := w.claim(spec.ID)
	m, err := transfer.Open(ctx, spec, old)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []func(context.Context) error{m.Claim, m.Copy} {
		if err := step(ctx); err != nil {
			t.Fatal(err)
		}
	}
	next, _ := w.claim(spec.ID)
	if _, err := transfer.Open(ctx, spec, next); !errors.Is(err, transfer.ErrBusy) {
		t.Fatalf("have %v, want %v: two processes must not work on it at once", err, transfer.ErrBusy)
	}
	if _, err := m.Cutover(ctx, w.switchTo(1, spec.ID, old)); !errors.Is(err, transfer.ErrNotSwitched) {
		t.Fatalf("have %v, want %v", err, transfer.ErrNotSwitched)
	}
	l.await(20)
	// Its locks are lost with its connections, but not its will.
	w.exec(0, "select procaas.claim($1, $2, 1, $3)", mapName, key, next.Next)
	if err := m.Claim(ctx); !errors.Is(err, transfer.ErrReplaced) {
		t.Fatalf("have %v, want %v", err, transfer.ErrReplaced)
	}
	if _, err := m.Cutover(ctx, w.switchTo(1, spec.ID, old)); !errors.Is(err, transfer.ErrReplaced) {
		t.Fatalf("have %v, want %v", err, transfer.ErrReplaced)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	l.await(20)
	if _, err := w.transfer(ctx, spec); err != nil {
		t.Fatal(err)
	}
	l.stop()
	l.check()
	w.clean(100)
}

func TestPlanRefusesWithAllReasons(t *testing.T) {
	w := newWorld(t)
	w.exec(0, "create table bare (uid bigint, x int)")
	w.exec(0, "create table keyed (id bigint primary key, uid bigint)")
	w.exec(1, "alter table mail add column extra int, alter column body type varchar(50)")
	w.exec(1, "create table bare (uid bigint, x int); create table keyed (id bigint primary key, uid bigint)")
	w.exec(1, "drop table label")
	w.exec(0, "create table parts (uid bigint primary key) partition by hash (uid); create table parts_0 partition of parts for values "+
		"with (modulus 1, remainder 0)")
	w.exec(1, "create table parts (uid bigint primary key); create table parts_old () inherits (parts)")
	spec := w.spec()
	w.exec(0, "create unlogged table cache (uid bigint primary key); create table notes (uid bigint primary key)")
	w.exec(1, "create table cache (uid bigint primary key); create unlogged table notes (uid bigint primary key)")
	for i := range 2 {
		w.exec(i, "create table made (uid bigint, x int, double int generated always as (2 * x) stored, primary key (uid, double))")
		w.exec(i, "create table kept (x bigint, uid bigint generated always as (x) stored, primary key (uid, x))")
		w.exec(i, "create type mood as enum ('fine')")
		w.exec(i, "create table moods (uid bigint, mood mood, primary key (uid, mood))")
	}
	spec.Tables = append(spec.Tables, transfer.Table{Name: "moods", Columns: []string{"uid", "mood"}, Key: []string{"42", "fine"}})
	for _, name := range []string{"bare", "keyed", "absent", "parts", "cache", "notes", "made", "kept"} {
		spec.Tables = append(spec.Tables, transfer.Table{Name: name, Columns: []string{"uid"}, Key: []string{"42"}})
	}
	c, _ := w.claim(spec.ID)
	m, err := transfer.Open(t.Context(), spec, c)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	err = m.Plan(t.Context())
	var refused *transfer.RefusedError
	if !errors.As(err, &refused) {
		t.Fatalf("have %v, want a refusal", err)
	}
	for _, want := range []string{
		"table public.mail of the target has a column extra that the source has not",
		"column body of table public.mail is text in the source and character varying(50) in the target",
		"shard s2 has no table public.label",
		"table public.bare has no primary key",
		"column uid of table public.keyed is not in its replica identity",
		"shard s1 has no table absent",
		"table public.cache is unlogged: its changes are not in the log",
		"column double of table public.made, which names its rows, is generated",
		"table public.kept of shard s1 has no column uid for a part of the key, or a generated one",
		"table public.notes is unlogged in the target",
		"table public.parts of shard s1 is partitioned: list its partitions (public.parts_0) under tables:",
		"table public.parts of shard s2 has tables that inherit from it (public.parts_old)",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("nothing says %q in: %v", want, err)
		}
	}
	if err := m.PlanLocked(t.Context()); !errors.As(err, &refused) || !strings.Contains(err.Error(), "table public.parts of shard s1 is "+
		"partitioned") {
		t.Errorf("by a copy: have %v, want a refusal of the partitioned table", err)
	}
	// What a server would not publish is found out by trying, when there is no other reason.
	spec = w.spec()
	spec.Tables = []transfer.Table{{Name: "moods", Columns: []string{"uid", "mood"}, Key: []string{"42", "fine"}}}
	w.exec(1, "create table label (uid bigint, lid bigint, primary key (uid, lid))")
	c, _ = w.claim("t2")
	spec.ID = "t2"
	odd, err := transfer.Open(t.Context(), spec, c)
	if err != nil {
		t.Fatal(err)
	}
	defer odd.Close()
	if err := odd.Plan(t.Context()); !errors.As(err, &refused) || !strings.Contains(err.Error(), "shard s1 does not publish the rows: "+
		"invalid publication WHERE expression") {
		t.Errorf("a column of a type of its own: have %v, want a refusal", err)
	}
	if err := odd.PlanLocked(t.Context()); err != nil {
		t.Errorf("by a copy: %v", err)
	}
	if n := w.count(0, "select (select count(*) from pg_publication) + (select count(*) from pg_replication_slots where database = "+
		"current_database())"); n != 0 {
		t.Errorf("a refused transfer has left %d things", n)
	}
}

// Where policies hide rows from the role that moves them, a copy of what it sees would look right on both
// sides: it is refused.
func TestTablesWithHiddenRowsAreRefused(t *testing.T) {
	w := newWorld(t)
	role := "mover_" + strings.ToLower(rand.Text())
	for i := range 2 {
		w.exec(i, "create role "+role+" login replication")
		defer w.exec(i, "drop owned by "+role+"; drop role "+role)
		w.exec(i, "grant all on all tables in schema public to "+role+"; grant all on schema public, procaas to "+role+
			"; grant all on all tables in schema procaas to "+role)
		w.exec(i, "grant create on database "+w.database()+" to "+role)
		w.exec(i, "alter table mail enable row level security; create policy few on mail using (n > 7)")
	}
	w.fill(10)
	spec := w.spec()
	for _, dsn := range []*string{&spec.Source, &spec.Target} {
		u, err := url.Parse(*dsn)
		if err != nil {
			t.Fatal(err)
		}
		u.User = url.User(role)
		*dsn = u.String()
	}
	c, _ := w.claim(spec.ID)
	m, err := transfer.Open(t.Context(), spec, c)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for _, plan := range []func(context.Context) error{m.Plan, m.PlanLocked} {
		if err := plan(t.Context()); err == nil || !strings.Contains(err.Error(), "table public.mail of shard s1 has row security") {
			t.Errorf("have %v, want a refusal of the table mail", err)
		}
	}
}

// What spoils the copy begins it again; nothing is lost and the key stays writable.
func TestTransferBeginsAgain(t *testing.T) {
	for _, c := range []struct {
		name, at string
		spoil    func(w *world)
		want     string
	}{
		{"truncate", "stream", func(w *world) { w.exec(0, "truncate label") }, "truncated"},
		{"lost slot", "verify", func(w *world) {
			w.exec(0, "select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name = 'procaas_t1'")
			w.exec(0, dropWhenFree)
		}, ""},
		{"slot left behind", "analyze", func(w *world) {
			// The server keeps no more log for it than a fraction of what is written now.
			w.exec(0, "alter system set max_slot_wal_keep_size = '1MB'")
			w.exec(0, "select pg_reload_conf()")
			for range 3 {
				w.exec(0, "select pg_logical_emit_message(false, 'test', 'x'), pg_switch_wal()")
			}
			w.exec(0, "checkpoint")
			w.exec(0, "alter system reset max_slot_wal_keep_size")
			w.exec(0, "select pg_reload_conf()")
		}, "max_slot_wal_keep_size"},
		{"target changed", "verify", func(w *world) { w.exec(1, "update mail set body = 'other' where uid = 42 and mid = 1000007") }, "differ"},
		{"target lacks a row", "verify", func(w *world) { w.exec(1, "delete from label where uid = 42 and lid = 3") }, "differ"},
		{"connections cut", "gate", func(w *world) {
			for i := range 2 {
				w.exec(i, "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'procaas transfer' and datname = "+
					"current_database()")
			}
		}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.fill(200)
			l := w.write(1)
			spec, spoilt := w.spec(), false
			spec.Hook = func(at string) error {
				if at == c.at && !spoilt {
					spoilt = true
					c.spoil(w)
				}
				return nil
			}
			_, err := w.once(t.Context(), spec)
			if err == nil || !strings.Contains(err.Error(), c.want) || c.want != "" && !transfer.MustRestart(err) {
				t.Fatalf("have %v, want an error with %q that asks for a new copy", err, c.want)
			}
			l.await(20)
			if _, err := w.transfer(t.Context(), spec); err != nil {
				t.Fatal(err)
			}
			l.stop()
			l.check()
			if c.name != "truncate" {
				w.clean(200)
			}
		})
	}
}

const dropWhenFree = `do $$ begin
	for i in 1..600 loop
		begin
			perform pg_drop_replication_slot('procaas_t1');
			return;
		exception when object_in_use then perform pg_sleep(0.1);
		end;
	end loop;
end $$`

// A prepared transaction that nobody ends holds up the creation of a slot: the transfer says so
// after a while instead of waiting forever, and the key is writable meanwhile.
func TestPreparedTransactionHoldsUpTheSlot(t *testing.T) {
	w := newWorld(t)
	w.fill(100)
	l := w.write(1)
	c := w.connect(w.dsn[0])
	for _, sql := range []string{"begin", "insert into mail (uid, mid, subject) values (7, 1000, 'held')", "prepare transaction 'held " +
		w.dsn[0] + "'"} {
		if _, err := c.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	end := func() error {
		_, err := c.Exec(context.WithoutCancel(t.Context()), "rollback prepared 'held "+w.dsn[0]+"'")
		return err
	}
	defer func() { _ = end() }() // it has ended, unless the test has failed
	spec := w.spec()
	spec.Limits.Slot = time.Second
	if _, err := w.transfer(t.Context(), spec); err == nil || !strings.Contains(err.Error(), "older transactions of the server, or "+
		"prepared ones, have not ended within 1s") {
		t.Errorf("have %v, want that it waits for an older transaction", err)
	}
	l.await(20)
	if err := end(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.transfer(t.Context(), w.spec()); err != nil {
		t.Fatal(err)
	}
	l.stop()
	l.check()
	w.clean(100)
}

// A transfer leaves room to standbys, which must be able to come back.
func TestTransfersLeaveSlotsToStandbys(t *testing.T) {
	w := newWorld(t)
	w.fill(10)
	spec := w.spec()
	spec.OneWay = true
	plan := func() (err error) {
		c, _ := w.claim(spec.ID)
		m, err := w.open(t.Context(), transfer.Open, spec, c)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, m.Close()) }()
		return m.Plan(t.Context())
	}
	if err := plan(); err != nil {
		t.Fatal(err)
	}
	// Three of 20 are free: a transfer needs two, so less than two would be left.
	w.exec(0, `select pg_create_physical_replication_slot('standby_' || i)
		from generate_series(1, 17 - (select count(*) from pg_replication_slots)) i`)
	defer w.exec(0, "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name like 'standby%'")
	if err := plan(); err == nil || !strings.Contains(err.Error(), "17 of 20 replication slots") {
		t.Errorf("with three free slots: have %v, want that it waits", err)
	}
	w.exec(0, "select pg_drop_replication_slot('standby_1')")
	if err := plan(); err != nil {
		t.Errorf("with four free slots: %v", err)
	}
}

// A transfer that cannot be rolled back needs no slot of the target, where many keys arrive at once.
func TestOneWayTransferTakesNoSlotOfTheTarget(t *testing.T) {
	w := newWorld(t)
	w.fill(100)
	spec := w.spec()
	spec.OneWay = true
	var slots []int64
	spec.Hook = func(string) error {
		slots = append(slots, w.count(1, "select count(*) from pg_replication_slots where database = current_database()"))
		return nil
	}
	if _, err := w.transfer(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	if len(slots) == 0 || slices.Max(slots) > 0 {
		t.Errorf("the target had %v slots at the points of the transfer, want none", slots)
	}
	w.clean(100)
}
