package cells_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"procaas/engine/enginetest"
	"procaas/engine/model"
	"procaas/engine/store"
	"procaas/handlers/inbox/cells"
)

// A faulty cell lets something happen in the midst of what a store asks of it.
type faulty struct {
	store.Cell                           // before anything happens
	away       atomic.Bool               // nothing is accepted
	freeze     func()                    // after the first one
	cancel     func(ctx context.Context) // before the first one
	once       [2]sync.Once
}

// before returns the cell with what shall happen.
func (f *faulty) before(db *store.Cell) *store.Cell {
	f.Cell = *db
	db.Inbox, db.Runs = faultyInbox{db.Inbox, f}, faultyRuns{db.Runs, f}
	db.Enrolment, db.Moves = faultyEnrolment{db.Enrolment, f}, faultyMoves{db.Moves, f}
	return db
}

// The ports to which something happens.
type (
	faultyInbox struct {
		store.Inbox
		*faulty
	}
	faultyRuns struct {
		store.Runs
		*faulty
	}
	faultyEnrolment struct {
		store.Enrolment
		*faulty
	}
	faultyMoves struct {
		store.SlotMoves
		*faulty
	}
)

func (f faultyInbox) Accept(ctx context.Context, node int64, runs []model.Intake) ([]store.Accepted, error) {
	if f.away.Load() {
		return nil, context.DeadlineExceeded
	}
	return f.Inbox.Accept(ctx, node, runs)
}

func (f faultyEnrolment) EnrolledAs(ctx context.Context) (store.CellID, error) {
	if f.away.Load() {
		return store.CellID{}, context.DeadlineExceeded
	}
	return f.Enrolment.EnrolledAs(ctx)
}

func (f faultyMoves) Freeze(ctx context.Context, move string, slots []int) (int, error) {
	left, err := f.SlotMoves.Freeze(ctx, move, slots)
	if f.freeze != nil {
		f.once[0].Do(f.freeze)
	}
	return left, err
}

func (f faultyRuns) Cancel(ctx context.Context, run string, by store.Actor, tell store.Tell) error {
	if f.cancel != nil {
		f.once[1].Do(func() { f.cancel(ctx) })
	}
	return f.Runs.Cancel(ctx, run, by, tell)
}

// order makes an event of a key that is like no other.
func order(key, id string) model.Intake {
	return model.Intake{
		ID: id, Hash: "h", Flow: "f", Key: key, Ordered: true, Dedup: true, Pipeline: "p",
		Event: model.Event{ID: id, Source: "test", Type: "made", Key: key, Time: time.UnixMicro(1).UTC()},
	}
}

// accept hands events in, all of which must be taken.
func accept(t *testing.T, s store.Store, in ...model.Intake) {
	t.Helper()
	out, err := s.Inbox.Accept(t.Context(), 0, in)
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range out {
		if a.Err != nil {
			t.Fatalf("event %s: %v", in[i].ID, a.Err)
		}
	}
}

// claim takes a run, the only one that is ready.
func claim(t *testing.T, s store.Store, node int64, id string) store.Claimed {
	t.Helper()
	runs, err := s.Ledger.Claim(t.Context(), node, 10, "bundle")
	if err != nil || len(runs) != 1 || runs[0].ID != id {
		t.Fatalf("want run %s ready, have %+v, %v", id, runs, err)
	}
	return runs[0]
}

// commit writes a change, and must be able to.
func commit(t *testing.T, s store.Store, node int64, c store.Claimed, status model.Status, with ...func(*model.Change)) {
	t.Helper()
	change := model.Change{Run: c.ID, Version: c.Version, Status: status, Pipeline: "p", Bundle: "bundle"}
	for _, f := range with {
		f(&change)
	}
	if errs, err := s.Ledger.Commit(t.Context(), node, []model.Change{change}); err != nil || errs[0] != nil {
		t.Fatalf("commit: %v, %v", errs, err)
	}
}

func join(t *testing.T, s store.Store) int64 {
	t.Helper()
	node, err := s.Ledger.Join(t.Context(), "node", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return node
}

// moved moves the slots of keys, and must be able to.
func moved(t *testing.T, s *cells.Store, to string, keys ...string) {
	t.Helper()
	o := cells.Order{To: to, Wait: time.Minute}
	for _, key := range keys {
		o.Slots = append(o.Slots, store.InboxSlot(key))
	}
	if err := s.MoveNow(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if done := s.Chart().Done; len(done) == 0 || done[len(done)-1].Error != "" {
		t.Fatalf("want the keys moved, have %+v", done)
	}
}

// Operators steer runs of each cell, also while these move.
func TestRunsAreSteeredWhereTheyAre(t *testing.T) {
	t.Parallel()
	var s *cells.Store
	s = openAs(t, enginetest.MigratedPostgres(t), map[string]string{"b": enginetest.MigratedPostgres(t)}, time.Minute,
		func(name string, store *store.Cell) *store.Cell {
			f := &faulty{}
			if name == cells.Home {
				f.cancel = func(context.Context) { moved(t, s, "b", "k") }
			}
			return f.before(store)
		})
	by := store.Actor{Name: "ann", Reason: "enough"}
	accept(t, s.Ports(), order("k", "first"), order("k", "second"))
	if err := s.Cancel(t.Context(), "second", by, store.Tell{}); err != nil {
		t.Errorf("a run that moved meanwhile was not cancelled: %v", err)
	}
	if err := s.Undo(t.Context(), "first", by, store.Tell{}); err != nil {
		t.Errorf("a run of cell b was not undone: %v", err)
	}
	for _, run := range []string{"first", "second"} {
		if r, err := s.Run(t.Context(), run); err != nil || r.Status != model.Cancelled {
			t.Errorf("run %s: want it stopped, have %s, %v", run, r.Status, err)
		}
	}
}

// A run that ends while its slot is frozen may change the state of its key, and so bring
// back those that wait for another state.
func TestMoveBringsDeferredRunsBack(t *testing.T) {
	t.Parallel()
	var s *cells.Store
	var node int64
	var last store.Claimed
	s = openAs(t, enginetest.MigratedPostgres(t), map[string]string{"b": enginetest.MigratedPostgres(t)}, time.Minute,
		func(name string, store *store.Cell) *store.Cell {
			f := &faulty{}
			if name == cells.Home {
				f.freeze = func() {
					commit(t, s.Ports(), node, last, model.Succeeded, func(c *model.Change) { c.State = "open" })
				}
			}
			return f.before(store)
		})
	node = join(t, s.Ports())
	accept(t, s.Ports(), order("k", "early"))
	commit(t, s.Ports(), node, claim(t, s.Ports(), node, "early"), model.Waiting, func(c *model.Change) { c.Defer, c.Bundle = true, "" })
	accept(t, s.Ports(), order("k", "opens"))
	last = claim(t, s.Ports(), node, "opens")
	moved(t, s, "b", "k")
	if c := claim(t, s.Ports(), node, "early"); c.Entity.State != "open" {
		t.Errorf("want the run back for state open, have %+v", c.Entity)
	}
}

// What is emitted to a cell that is away keeps nothing from the others, however much it is.
func TestOutboxPassesByWhatCannotGo(t *testing.T) {
	t.Parallel()
	b := &faulty{}
	s := openAs(t, enginetest.MigratedPostgres(t), map[string]string{
		"b": enginetest.MigratedPostgres(t),
		"c": enginetest.MigratedPostgres(t),
	}, time.Minute,
		func(name string, store *store.Cell) *store.Cell {
			if name == "b" {
				return b.before(store)
			}
			return store
		})
	moved(t, s, "b", "to-b")
	moved(t, s, "c", "to-c")
	node := join(t, s.Ports())
	accept(t, s.Ports(), order("k", "emits"))
	c := claim(t, s.Ports(), node, "emits")
	b.away.Store(true)
	const many = 300
	commit(t, s.Ports(), node, c, model.Succeeded, func(c *model.Change) {
		for i := range many {
			c.Emit = append(c.Emit, order("to-b", fmt.Sprintf("b-%03d", i)))
		}
		c.Emit = append(c.Emit, order("to-c", "c"))
	})
	waitFor(t, "the event of the cell that is there", func() bool {
		_, err := s.Run(t.Context(), "c")
		if err != nil && !errors.Is(err, store.ErrNotFound) && !errors.Is(err, store.ErrAway) {
			t.Fatal(err)
		}
		return err == nil
	})
	// It is in the outbox until it has been accepted, and for a moment after that.
	waitFor(t, "the others alone in the outbox", func() bool {
		l, err := s.Home().Enrolment.Load(t.Context())
		return err == nil && l.Outbox == many && l.Oldest > 0 && l.Frozen == 0
	})
	b.away.Store(false)
	waitFor(t, "the events of the other", func() bool {
		runs, _, err := s.List(t.Context(), store.RunFilter{Key: "to-b", Limit: 1000, Oldest: true})
		if err != nil || len(runs) < many {
			return false
		}
		for i, r := range runs {
			if r.ID != fmt.Sprintf("b-%03d", i) {
				t.Fatalf("run %s came at place %d", r.ID, i)
			}
		}
		return true
	})
}

// An event of the outbox whose row is damaged keeps nothing from the others, not even those of its own key.
func TestOutboxPassesByDamagedRows(t *testing.T) {
	t.Parallel()
	home := enginetest.MigratedPostgres(t)
	b := &faulty{}
	s := openAs(t, home, map[string]string{"b": enginetest.MigratedPostgres(t)}, time.Minute, func(name string, store *store.Cell) *store.Cell {
		if name == "b" {
			return b.before(store)
		}
		return store
	})
	moved(t, s, "b", "to-b")
	node := join(t, s.Ports())
	accept(t, s.Ports(), order("k", "emits"))
	c := claim(t, s.Ports(), node, "emits")
	b.away.Store(true)
	commit(t, s.Ports(), node, c, model.Succeeded, func(c *model.Change) {
		c.Emit = append(c.Emit, order("to-b", "text"), order("to-b", "event"), order("to-b", "whole"))
	})
	db, err := pgx.Connect(t.Context(), home)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close(context.WithoutCancel(t.Context())) }()
	for _, damage := range []string{
		"update inbox_outbox set intake = 'no json' where intake like '%\"text\"%'",
		"update inbox_outbox set intake = '{\"id\": \"event\", \"event\": 7}' where intake like '%\"event\",%'",
	} {
		if tag, err := db.Exec(t.Context(), damage); err != nil || tag.RowsAffected() != 1 {
			t.Fatalf("%s: %v, %v", damage, tag, err)
		}
	}
	b.away.Store(false)
	waitFor(t, "the event that is whole", func() bool {
		_, err := s.Run(t.Context(), "whole")
		return err == nil
	})
	waitFor(t, "the node to report the others", func() bool {
		err := s.Ports().Scattered.Damaged()
		return err != nil && strings.Contains(err.Error(), "2 events") && strings.Contains(err.Error(), "cell home")
	})
	if _, err := db.Exec(t.Context(), "delete from inbox_outbox"); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the report to end with the damage", func() bool { return s.Ports().Scattered.Damaged() == nil })
}

// A part of an export is bounded for runs of any size.
func TestExportIsBounded(t *testing.T) {
	t.Parallel()
	s := open(t, enginetest.MigratedPostgres(t), nil)
	large := strings.Repeat("x", 3<<20)
	for i := range 3 {
		in := order("k", fmt.Sprint("run-", i))
		in.Event.Payload = map[string]any{"text": large}
		accept(t, s.Ports(), in)
	}
	slots := []int{store.InboxSlot("k")}
	home := s.Home()
	if _, err := home.Moves.Freeze(t.Context(), "move", slots); err != nil {
		t.Fatal(err)
	}
	if l, err := home.Enrolment.Load(t.Context()); err != nil || l.Frozen != 1 {
		t.Errorf("want a frozen slot, have %+v, %v", l, err)
	}
	pages, cursor := 0, ""
	for {
		rows, next, err := home.Moves.Export(t.Context(), store.CellRuns, slots, 0, cursor)
		if err != nil {
			t.Fatal(err)
		}
		if len(rows) > 16<<20 {
			t.Errorf("page %d has %d MB", pages, len(rows)>>20)
		}
		if cursor = next; cursor == "" {
			break
		}
		pages++
	}
	if pages < 1 {
		t.Error("want several pages, have one")
	}
}
