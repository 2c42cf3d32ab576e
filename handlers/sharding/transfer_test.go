package sharding_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"procaas/dsl"
	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/engine"
	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/engine/intake"
	"procaas/engine/model"
	"procaas/engine/postgres"
	"procaas/engine/store"
	"procaas/handlers/sharding"
	"procaas/handlers/sharding/shardmap"
	"procaas/handlers/sharding/transfer"
	"procaas/handlers/sharding/transfers"
)

// A mover is an engine that runs the shipped pipeline of transfers.
type mover struct {
	*rig
	m    *shardmap.Map
	e    *engine.Engine
	hook atomic.Pointer[func(point string) error]
}

var errCrash = errors.New("killed")

const transferMap = `shard-maps:
  - id: mail
    key: user
    key-type: int
    tables: [{table: messages, key: user_id}, {table: labels, key: user_id}]
    CONNECT
    shards: [{id: s1, hosts: [{address: HOST1}]}, {id: s2, hosts: [{address: HOST2}]}]
`

// careText ends what cancelled runs have left, in one run.
const careText = `pipelines:
  - id: shard-orphans
    shared-state: {orphans: []}
    stages:
      - id: find
        handlers:
          - id: find
            shard.orphans: {}
            result: {orphans: !$ sources.find.response}
      - id: end
        handlers:
          - id: end
            for-each: {items: !$ shared-state.orphans}
            shard.end: {transfer: !$ item.transfer}
            retry: {attempts: 0, min-delay: 100ms, max-delay: 1s, on: any}
`

// moving returns the transfers of the engine.
func (r *mover) moving() *transfers.Transfers { return transfers.NewTransfers(r.docs, r.e.Bundle) }

func newMover(t *testing.T) *mover {
	t.Helper()
	return moverOn(t, newRig(t, transferMap), time.Minute)
}

// moverOn is newMover on a rig, whose keys may be frozen for a while.
func moverOn(t *testing.T, on *rig, freeze time.Duration) *mover {
	t.Helper()
	r := &mover{rig: on}
	r.m = r.enroll("mail")
	if _, err := r.m.Place(t.Context(), "42", "s1", nil); err != nil {
		t.Fatal(err)
	}
	r.exec("s1", "insert into messages (user_id, id, body) select 42, 100000 + i, 'old ' || i from generate_series(1, 200) i")
	r.exec("s1", "insert into messages (user_id, id, body) select 7, i, 'of another' from generate_series(1, 200) i")
	r.exec("s1", "insert into labels select 42, i from generate_series(1, 50) i")
	text, err := os.ReadFile("../../pipelines/sharding/transfer.yaml")
	if err != nil {
		t.Fatal(err)
	}
	types := sharding.Bind(sharding.Types(), r.Service, sharding.BindOptions{
		// A machine that runs all tests at once stalls for seconds.
		Limits: &transfer.Limits{
			Freeze: freeze, Lock: 5 * time.Second, Ping: 30 * time.Second, Slot: time.Minute, DDL: time.Minute,
			Attempts: 20,
		},
		Hook: func(point string) error {
			if f := r.hook.Load(); f != nil {
				return (*f)(point)
			}
			return nil
		},
	})
	bundle, found := dsl.Load([]diag.File{{Name: "transfer.yaml", Data: text}, {Name: "care.yaml", Data: []byte(careText)}},
		dsl.Options{Types: engine.Types(types)})
	if bundle == nil {
		t.Fatal(found)
	}
	store, err := postgres.Open(t.Context(), r.dsn, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r.docs = store
	o := engine.DefaultOptions()
	o.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	o.Store, o.Types, o.Bundle, o.Lease, o.Drain = store.Ports(), types, bundle, time.Minute, 10*time.Second
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	r.e = enginetest.Start(t, o)
	return r
}

// at runs something when a transfer comes to a point for the first time. An error of it is the
// death of the coordinator there.
func (r *mover) at(point string, f func() error) { r.atEach(map[string]func() error{point: f}) }

// atEach is at for several points, and returns those that no transfer has come to.
func (r *mover) atEach(first map[string]func() error) (left func() []string) {
	var mu sync.Mutex
	take := func(at string) func() error {
		mu.Lock()
		defer mu.Unlock()
		f := first[at]
		delete(first, at)
		return f
	}
	hook := func(at string) error {
		if f := take(at); f != nil {
			return f()
		}
		return nil
	}
	r.hook.Store(&hook)
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Sorted(maps.Keys(first))
	}
}

// start begins a transfer of key 42 to s2.
func (r *mover) start(more string) (run string) {
	r.t.Helper()
	return r.submit("shard-transfer", `{"map": "mail", "key": "42", "target": "s2"`+more+`}`)
}

// submit begins the run of an event.
func (r *mover) submit(event, payload string) (run string) {
	r.t.Helper()
	v, err := datum.ParseJSON([]byte(payload))
	if err != nil {
		r.t.Fatal(err)
	}
	got, err := r.e.Submit(r.t.Context(), []intake.Submission{{Event: model.Event{Type: event, Payload: v}}})
	if err != nil {
		r.t.Fatal(err)
	}
	if got[0].Err != nil {
		r.t.Fatal(got[0].Err)
	}
	return got[0].Receipt.Run
}

// await waits until a transfer is as wanted.
func (r *mover) await(want string, is func(transfers.ShardTransfer) bool) transfers.ShardTransfer {
	r.t.Helper()
	var last transfers.ShardTransfer
	for over := patience.Over(time.Minute); !over(); time.Sleep(20 * time.Millisecond) {
		all, err := r.moving().ShardTransfers(r.t.Context(), "mail")
		if err != nil {
			r.t.Fatal(err)
		}
		if len(all) > 0 {
			if last = all[0]; is(last) {
				return last
			}
		}
	}
	r.t.Fatalf("want %s, have %+v", want, last)
	return last
}

func (r *mover) awaitState(state string) transfers.ShardTransfer {
	r.t.Helper()
	return r.await(state, func(t transfers.ShardTransfer) bool { return t.State == state })
}

func (r *mover) order(id, want string) {
	r.t.Helper()
	if _, err := r.moving().OrderShardTransfer(r.t.Context(), id, want, store.Actor{Name: "test"}); err != nil {
		r.t.Fatal(err)
	}
}

// A client writes to key 42 wherever it lives, and remembers what was acknowledged.
type client struct {
	r      *mover
	cancel context.CancelFunc
	done   sync.WaitGroup
	acked  atomic.Int64 // ids from 1 on
}

func (r *mover) write() *client {
	ctx, cancel := context.WithCancel(r.t.Context())
	c := &client{r: r, cancel: cancel}
	c.done.Go(func() {
		for ctx.Err() == nil {
			if c.try(ctx, c.acked.Load()+1) == nil {
				c.acked.Add(1)
			}
			select {
			case <-ctx.Done():
			case <-time.After(5 * time.Millisecond):
			}
		}
	})
	r.t.Cleanup(func() { cancel(); c.done.Wait() })
	return c
}

func (c *client) try(ctx context.Context, id int64) error {
	p, err := c.r.m.Find(ctx, "42")
	if err != nil {
		return err
	}
	pool, err := c.r.Connect(ctx, c.r.m, p.Shard)
	if err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "select procaas.guard('mail', $1, $2)", p.Key, p.Epoch); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "insert into messages (user_id, id, body) values (42, $1, 'new') on conflict do nothing", id)
		return err
	})
}

// await waits until n more writes were acknowledged.
func (c *client) await(n int64) {
	c.r.t.Helper()
	until := c.acked.Load() + n
	patience.Until(c.r.t, fmt.Sprintf("%d writes are acknowledged", until), func() bool { return c.acked.Load() >= until })
}

// check ends the client, and looks whether the shard that should have all has it, and
// the other one nothing.
func (c *client) check(shard string) {
	c.r.t.Helper()
	c.cancel()
	c.done.Wait()
	t, r := c.r.t, c.r
	p, err := r.m.Find(t.Context(), "42")
	if err != nil || p.Shard != shard || p.Owned {
		t.Errorf("placed at %+v, %v; want %s", p, err, shard)
	}
	if n := r.number(shard, "select count(*) from messages where user_id = 42 and id <= $1", c.acked.Load()); n != c.acked.Load() {
		t.Errorf("%d of %d acknowledged writes are there", n, c.acked.Load())
	}
	if n := r.number(shard, "select (select count(*) from messages where user_id = 42 and id > 100000) + (select count(*) from labels "+
		"where user_id = 42)"); n != 250 {
		t.Errorf("%d of 250 old rows are there", n)
	}
	other := map[string]string{"s1": "s2", "s2": "s1"}[shard]
	if n := r.number(other, "select (select count(*) from messages where user_id = 42) + (select count(*) from labels where "+
		"user_id = 42)"); n != 0 {
		t.Errorf("%d rows are left on %s", n, other)
	}
	if n := r.number("s1", "select count(*) from messages where user_id = 7"); n != 200 {
		t.Errorf("another key has %d of 200 rows", n)
	}
	for _, s := range []string{"s1", "s2"} {
		if n := r.number(s, "select count(*) from pg_replication_slots where database = current_database()"); n != 0 {
			t.Errorf("%d slots are left on %s", n, s)
		}
	}
	if err := c.try(t.Context(), 50000); err != nil {
		t.Errorf("the key cannot be written: %v", err)
	}
}

func (r *mover) number(shard, sql string, args ...any) (n int64) {
	r.t.Helper()
	pool, err := r.Connect(r.t.Context(), r.m, shard)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := pool.QueryRow(r.t.Context(), sql, args...).Scan(&n); err != nil {
		r.t.Fatal(err)
	}
	return n
}

func TestTransferRunsAsAPipeline(t *testing.T) {
	t.Parallel()
	r := newMover(t)
	c := r.write()
	c.await(10)
	// Each step dies once where it hurts most, and is done again.
	dies := func() error { return errCrash }
	left := r.atEach(map[string]func() error{"copied": dies, "frozen": dies, "switched": dies, "cleanup": dies})
	r.start(`, "grace": "0s"`)
	got := r.awaitState(transfers.TransferDone)
	if got.Source != "s1" || got.Target != "s2" || got.Method != "stream" || !got.Switched || got.Error != "" || got.Next < 2 {
		t.Errorf("have %+v", got)
	}
	c.await(10)
	c.check("s2")
	if points := left(); len(points) > 0 {
		t.Errorf("it never came to %v", points)
	}
}

func TestTransferIsRolledBackByOrder(t *testing.T) {
	t.Parallel()
	r := newMover(t)
	c := r.write()
	r.start(`, "grace": "24h"`)
	got := r.awaitState(transfers.TransferObserving)
	if _, err := r.moving().OrderShardTransfer(t.Context(), got.ID, transfers.OrderCancel, store.Actor{}); !errors.Is(err, transfers.ErrShardOrder) {
		t.Errorf("cancel after the switch: have %v, want %v", err, transfers.ErrShardOrder)
	}
	c.await(50)
	const slots = "select count(*) from pg_replication_slots where database = current_database()"
	patience.Until(t, "the slot on the source to be given back", func() bool { return r.number("s1", slots) == 0 })
	if n := r.number("s2", slots); n != 1 {
		t.Errorf("%d slots are kept for the way back, want one", n)
	}
	r.order(got.ID, transfers.OrderRollback)
	got = r.awaitState(transfers.TransferRolledBack)
	if got.Next < 3 {
		t.Errorf("have epoch %d, want a third one", got.Next)
	}
	c.await(10)
	c.check("s1")
}

func TestTransferIsPausedAndCancelled(t *testing.T) {
	t.Parallel()
	r := newMover(t)
	c := r.write()
	reached, id := make(chan struct{}), make(chan string, 1)
	r.at("gate", func() error {
		close(reached)
		r.order(<-id, transfers.OrderPause)
		return nil
	})
	r.start("")
	id <- r.await("an id", func(t transfers.ShardTransfer) bool { return t.ID != "" }).ID
	<-reached
	got := r.await("paused, or switched before", func(t transfers.ShardTransfer) bool {
		return t.State == transfers.TransferPaused || t.State == transfers.TransferObserving
	})
	if got.State == transfers.TransferObserving {
		r.order(got.ID, transfers.OrderFinish)
		r.awaitState(transfers.TransferDone)
		c.check("s2")
		return
	}
	c.await(20)
	r.order(got.ID, transfers.OrderCancel)
	r.awaitState(transfers.TransferCancelled)
	c.await(20)
	c.check("s1")
}

func TestTransferThatIsRefusedSaysWhy(t *testing.T) {
	t.Parallel()
	r := newMover(t)
	r.exec("s2", "drop table labels")
	c := r.write()
	run := r.start("")
	got := r.awaitState(transfers.TransferFailed)
	if !strings.Contains(got.Error, "shard s2: table labels: there is none") {
		t.Errorf("have the error %q", got.Error)
	}
	r.ended(run, model.Failed)
	c.await(10)
	r.exec("s2", "create table labels (user_id bigint, id bigint, primary key (user_id, id))")
	r.start(`, "grace": "0s"`)
	r.await("another one that is done", func(t transfers.ShardTransfer) bool { return t.ID != got.ID && t.State == transfers.TransferDone })
	c.check("s2")
}

// A transfer that waits for the night is there to see, holds up no other one of its key, and can be cancelled.
func TestTransferThatWaitsForItsHoursHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	r := newMover(t)
	hour := time.Now().UTC().Hour()
	r.start(fmt.Sprintf(`, "hours": "%d-%d"`, (hour+3)%24, (hour+4)%24))
	nightly := r.await("one that waits", func(t transfers.ShardTransfer) bool { return strings.HasPrefix(t.Waits, "it waits for the hours") })
	if _, err := r.moving().OrderShardTransfer(t.Context(), nightly.ID, transfers.OrderPause, store.Actor{}); !errors.Is(err,
		transfers.ErrShardOrder) {
		t.Errorf("pause: have %v, want %v", err, transfers.ErrShardOrder)
	}
	r.ended(r.start(`, "grace": "0s"`), model.Succeeded)
	r.order(nightly.ID, transfers.OrderCancel)
	all, err := r.moving().ShardTransfers(t.Context(), "mail")
	if err != nil || len(all) != 2 || all[1].State != transfers.TransferCancelled {
		t.Errorf("have %+v, %v", all, err)
	}
}

// What a server refuses for good is not tried again and again, while the slot keeps the log of the source.
func TestTransferThatTheTargetRefusesEndsAndGivesItsSlotBack(t *testing.T) {
	t.Parallel()
	r := newMover(t)
	r.exec("s2", "alter table messages add constraint brief check (length(body) < 100)")
	c := r.write()
	c.await(10)
	long := func() error {
		r.exec("s1", "insert into messages (user_id, id, body) values (42, 99999, repeat('x', 200))")
		return nil
	}
	r.at("analyze", long)
	run := r.start("")
	got := r.awaitState(transfers.TransferFailed)
	for _, want := range []string{"messages", `"brief"`, "23514", "correct these rows in the source", "move the key again"} {
		if !strings.Contains(got.Error, want) {
			t.Errorf("the error %q lacks %q", got.Error, want)
		}
	}
	r.ended(run, model.Failed)
	c.await(10)
	c.check("s1")
}

// A way back that a server refuses for good ends, and with it its slot.
func TestRollbackThatTheSourceRefusesEnds(t *testing.T) {
	t.Parallel()
	for _, when := range []string{"observed", "ordered"} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			r := newMover(t)
			c := r.write()
			refuse := func() error {
				r.exec("s1", "alter table messages add constraint never check (body <> 'new') not valid")
				return nil
			}
			if when == "observed" {
				r.at("retired", refuse)
			}
			r.start(`, "grace": "24h"`)
			if when == "ordered" {
				observed := r.awaitState(transfers.TransferObserving)
				r.at("stream", refuse) // of the way back
				r.order(observed.ID, transfers.OrderRollback)
			}
			got := r.awaitState(transfers.TransferDone)
			if !strings.Contains(got.Rollback, `"never"`) {
				t.Errorf("the way back is %q, want the constraint", got.Rollback)
			}
			c.check("s2")
		})
	}
}
