package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"procaas/engine/api/client"
	"procaas/engine/api/wire"
	"procaas/engine/clock"
	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/engine/store"
	inboxremote "procaas/handlers/inbox/remote"
	queueremote "procaas/handlers/queue/remote"
)

var everyStep = flag.Bool("every-step", false, "kill the node at every step of a move of the inbox, not only at some")

// A moveStep is a write of a move of slots. The node dies at it.
type moveStep struct {
	name string
	cell string // whose database gets the write: home or b
	when string // the trigger that sees it
	on   string // its condition
	some bool   // it is tried for each change
}

// inMap is the condition for a map with a move at a step.
func inMap(step, slots string) string {
	return fmt.Sprintf(`new.kind = 'inbox' and jsonb_path_exists(convert_from(new.value, 'UTF8')::jsonb,
		'$.moves.* ? (@.step == "%s" && @.slots[0] %s)')`, step, slots)
}

// moveSteps are the writes of a move, in their order.
var moveSteps = []moveStep{
	{name: "slots of tasks arrive", cell: "b", when: "insert on inbox_slots", on: "new.state = 'arriving' and new.slot >= 4096"},
	{name: "slots of tasks freeze", cell: "home", when: "update on inbox_slots", on: "new.state = 'frozen' and new.slot >= 4096"},
	{name: "slots of tasks switch", cell: "home", when: "update on documents", on: inMap("switched", ">= 4096")},
	{name: "tasks are packed", cell: "home", when: "insert on task_parcels", on: "true", some: true},
	{name: "tasks are taken in", cell: "b", when: "insert on task_received", on: "true"},
	{name: "a parcel is forgotten", cell: "home", when: "delete on task_parcels", on: "true"},
	{name: "slots of tasks open", cell: "b", when: "update on inbox_slots", on: "new.state = 'open' and new.slot >= 4096"},
	{name: "slots of tasks are dropped", cell: "home", when: "delete on inbox_slots", on: "old.slot >= 4096"},
	{name: "slots arrive", cell: "b", when: "insert on inbox_slots", on: "new.state = 'arriving' and new.slot < 4096"},
	{name: "slots freeze", cell: "home", when: "update on inbox_slots", on: "new.state = 'frozen' and new.slot < 4096", some: true},
	{name: "runs are set aside", cell: "home", when: "update on runs", on: "new.place = 'away'"},
	{name: "entities come", cell: "b", when: "insert on keys", on: "true"},
	{name: "runs come", cell: "b", when: "insert on runs", on: "new.place = 'away'"},
	{name: "slots switch", cell: "home", when: "update on documents", on: inMap("switched", "< 4096"), some: true},
	{name: "slots open", cell: "b", when: "update on inbox_slots", on: "new.state = 'open' and new.slot < 4096"},
	{name: "slots are open", cell: "home", when: "update on documents", on: inMap("opened", "< 4096")},
	{name: "runs are dropped", cell: "home", when: "delete on runs", on: "old.place = 'away'"},
	{name: "slots are dropped", cell: "home", when: "delete on inbox_slots", on: "old.slot < 4096"},
}

// TestInboxMoveSurvivesKill9 kills the node at a step of a move of all slots, while events come, and starts it again. Each event
// has run once, in the order of its key. Each task is there once, and the move can be made.
func TestInboxMoveSurvivesKill9(t *testing.T) {
	t.Parallel()
	for i, step := range moveSteps {
		for _, late := range []bool{false, true} {
			if !*everyStep && (!step.some || late != (i%4 == 1)) {
				continue
			}
			t.Run(fmt.Sprintf("%s late=%v", step.name, late), func(t *testing.T) {
				t.Parallel()
				killMoveAt(t, step, late)
			})
		}
	}
}

// killAt kills the node at a write in a database, which a trigger holds up. The write is rolled back, or with late carried out
// after the death of the node.
func killAt(ctx context.Context, t *testing.T, dsn string, step moveStep, late bool, begin, kill func()) {
	t.Helper()
	db, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(context.WithoutCancel(ctx))
	do := func(statement string, args ...any) {
		t.Helper()
		if _, err := db.Exec(ctx, statement, args...); err != nil {
			t.Fatal(err)
		}
	}
	const class = 20236 // of advisory locks that nobody else uses
	lock := rand.Int32()
	do("select pg_advisory_lock($1, $2)", class, lock)
	do(fmt.Sprintf(`create function hold() returns trigger language plpgsql as $$ begin
		perform set_config('lock_timeout', '0', true), set_config('statement_timeout', '0', true);
		perform pg_advisory_xact_lock_shared(%d, %d);
		return coalesce(new, old);
	end $$`, class, lock))
	do(fmt.Sprintf("create trigger hold before %s for each row when (%s) execute function hold()", step.when, step.on))
	var held []int32
	eventually(t, "the write to be held up", func() bool {
		begin()
		rows, err := db.Query(ctx, `select pid from pg_locks where locktype = 'advisory' and not granted and classid::bigint = $1
			and objid::bigint = $2`, class, lock)
		if err == nil {
			held, err = pgx.CollectRows(rows, pgx.RowTo[int32])
		}
		if err != nil {
			t.Fatal(err)
		}
		return len(held) > 0
	})
	kill()
	if !late {
		do("select pg_terminate_backend(pid) from unnest($1::int[]) p (pid)", held)
	}
	do("select pg_advisory_unlock($1, $2)", class, lock)
	_, table, _ := strings.Cut(step.when, " on ")
	do("drop trigger hold on " + table) // waits for the write
}

func killMoveAt(t *testing.T, step moveStep, late bool) {
	ctx, cancel := patience.Context(t.Context(), 4*time.Minute)
	defer cancel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(stepping), 0o644); err != nil {
		t.Fatal(err)
	}
	databases := map[string]string{"home": enginetest.MigratedPostgres(t), "b": enginetest.MigratedPostgres(t)}
	c := &crashing{
		t: t, store: databases["home"], listen: freeAddress(t), pipelines: dir, cells: []string{"b=" + databases["b"]},
		flags: []string{"--lease", "10s"},
	}
	c.client = client.New("http://"+c.listen, "")
	server := c.start(ctx)
	const keys, events = 6, 60
	var sending sync.WaitGroup
	for k := range keys {
		sending.Go(func() {
			for n := range events {
				for ctx.Err() == nil {
					_, err := c.client.SubmitEvent(ctx, wire.Event{
						Type: "step", ID: fmt.Sprint(k, "-", n), Source: "test", Key: fmt.Sprint("key-", k),
						Payload: map[string]any{"n": n},
					})
					if err == nil {
						break
					}
					clock.Pause(ctx, 20*time.Millisecond)
				}
			}
		})
	}
	const later, tasks = 40, 400
	for n := range later {
		ev := wire.Event{Type: "step", ID: fmt.Sprint("later-", n), Source: "test", Key: fmt.Sprint("later-", n), At: time.Now().Add(24 * time.Hour)}
		eventually(t, "an event for later", func() bool { _, err := c.client.SubmitEvent(ctx, ev); return err == nil })
	}
	var batch []string
	for n := range tasks {
		batch = append(batch, fmt.Sprintf(`{"key": "k%d", "unique": "u%d"}`, n%50, n))
	}
	put := func() (kept int) {
		eventually(t, "the tasks to be taken in", func() (done bool) { kept, done = c.putTasks(batch); return done })
		return kept
	}
	put()
	order := inboxremote.InboxMoveRequest{Slots: "0-4095", To: "b", Wait: wire.Duration(time.Minute)}
	// On a busy machine a move may be undone before the step, and is ordered again.
	killAt(ctx, t, databases[step.cell], step, late, func() { _, _ = inboxremote.Move(ctx, c.client, order) }, server.kill)
	server = c.start(ctx)
	slots := 0
	eventually(t, "all slots in b", func() bool {
		v, err := inboxremote.Read(ctx, c.client)
		if err != nil || len(v.Moves) == 0 || v.Moves[0].Ended == nil {
			return false // it is taken over after a while
		}
		if slots = v.Cells[1].Slots; slots < store.InboxSlots {
			_, _ = inboxremote.Move(ctx, c.client, order) // undone; asked for again until it is
		}
		return slots == store.InboxSlots
	})
	sending.Wait()
	var all []int
	for n := range events {
		all = append(all, n)
	}
	for k := range keys {
		var seen string
		eventually(t, "the runs of a key", func() bool {
			e, err := c.client.Entity(ctx, "account", fmt.Sprint("key-", k))
			seen = fmt.Sprint(e.SharedState["seen"])
			return err == nil && e.Waiting == 0
		})
		if seen != fmt.Sprint(all) {
			t.Errorf("key %d: want all events once and in order, have %s", k, seen)
		}
	}
	// Of the tasks, each is there once, with its name.
	if kept := put(); kept != tasks {
		t.Errorf("%d of the names of %d tasks are known", kept, tasks)
	}
	if all, err := queueremote.Queues(ctx, c.client); err != nil || len(all) != 1 || all[0].Ready != tasks {
		t.Errorf("want %d tasks, have %+v, %v", tasks, all, err)
	}
	eventually(t, "the runs for later to be counted", func() bool { // the count may be older
		v, err := inboxremote.Read(ctx, c.client)
		return err == nil && v.Cells[0].Waiting == 0 && v.Cells[1].Waiting == later
	})
	server.terminate()
}
