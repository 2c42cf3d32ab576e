package cells_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"procaas/engine/enginetest"
	"procaas/engine/model"
	"procaas/engine/postgres"
	"procaas/engine/store"
	"procaas/handlers/inbox"
	"procaas/handlers/inbox/cells"
)

// A cell is removed only when nothing is left in it, on all nodes, and for good: those
// that start later do without it, and its number does not come again.
func TestCellIsRemoved(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	home, b, c := enginetest.MigratedPostgres(t), enginetest.MigratedPostgres(t), enginetest.MigratedPostgres(t)
	s, other := open(t, home, map[string]string{"b": b}), open(t, home, map[string]string{"b": b})
	by := store.Actor{Name: "ann", Reason: "sold"}
	refused := func(cell string, forget bool, want string) {
		t.Helper()
		err := s.RemoveCell(ctx, cell, forget, by)
		if order := (*inbox.OrderError)(nil); !errors.As(err, &order) || !strings.Contains(err.Error(), want) {
			t.Errorf("removal of %s: want it refused since %q, have %v", cell, want, err)
		}
	}
	refused(cells.Home, true, "it stays")
	refused("x", true, "no cell")
	moved(t, s, "b", "k")
	refused("b", true, "has 1 slots of keys")
	node := join(t, s.Ports())
	accept(t, s.Ports(), order("k", "over"))
	commit(t, s.Ports(), node, claim(t, s.Ports(), node, "over"), model.Succeeded)
	moved(t, s, cells.Home, "k")
	refused("b", false, "such as over, that have ended")
	if err := s.RemoveCell(ctx, "b", true, by); err != nil {
		t.Fatal(err)
	}
	refused("b", true, "no cell")
	if records, err := s.Audit(ctx, store.AuditFilter{Limit: 1}); err != nil || len(records) != 1 || records[0].Name != "b" ||
		records[0].By != by {
		t.Errorf("want the removal audited, have %+v, %v", records, err)
	}
	for _, db := range []*cells.Store{s, other} {
		waitFor(t, "the cell to be gone", func() bool {
			v, err := db.Inbox(ctx)
			return err == nil && len(v.Cells) == 1
		})
		if err := db.Unreachable(); err != nil {
			t.Errorf("a removed cell is away: %v", err)
		}
		if _, err := db.Run(ctx, "over"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("want the run forgotten, have %v", err)
		}
	}
	if _, err := s.Beat(ctx, node, time.Hour, ""); err != nil {
		t.Errorf("the node does not go on: %v", err)
	}
	accept(t, s.Ports(), order("k", "next"))
	if runs, err := s.Claim(ctx, node, 10, "bundle"); err != nil || len(runs) != 1 {
		t.Errorf("want a run to claim, have %d, %v", len(runs), err)
	}
	// Named again it is left alone, and another one has a number of its own.
	late := open(t, home, map[string]string{"b": b, "c": c})
	if v, err := late.Inbox(ctx); err != nil || len(v.Cells) != 2 || v.Cells[1].Name != "c" || v.Cells[1].Away != "" {
		t.Fatalf("want cells home and c, have %+v, %v", v.Cells, err)
	}
	if number := late.Chart().Cells["c"]; number != 2 {
		t.Errorf("want number 2, have %d", number)
	}
	moved(t, late, "c", "k2")
	accept(t, late.Ports(), order("k2", "of-c"))
	if r, err := late.Run(ctx, "of-c"); err != nil || r.Key != "k2" {
		t.Errorf("want the run of c, have %+v, %v", r, err)
	}
	if runs, _, err := late.List(ctx, store.RunFilter{Limit: 10}); err != nil || len(runs) != 2 {
		t.Errorf("want two runs, have %d, %v", len(runs), err)
	}
}

// What works on a database since before it became a cell yields to other cells like one that was opened later, and a
// database that has tasks becomes none.
func TestStoresThatWereOpenBeforeTheCellsGiveWay(t *testing.T) {
	t.Parallel()
	ctx, home, other := t.Context(), enginetest.MigratedPostgres(t), enginetest.MigratedPostgres(t)
	early, err := opener(home)(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer early.Close()
	s := open(t, home, map[string]string{"b": other})
	move(t, s, cells.All(), "b")
	task := store.TaskSpec{Type: "w", Unique: "u"}
	if out := outcomes(t, early.Tasks, []store.TaskSpec{task}); !errors.Is(out[0].Err, store.ErrMoving) {
		t.Errorf("want a name refused that belongs elsewhere, have %+v", out)
	}
	join(t, early.Store)
	out, err := early.Inbox.Accept(ctx, 0, []model.Intake{order("k", "run")})
	if err != nil || !errors.Is(out[0].Err, store.ErrMoving) {
		t.Errorf("want an event refused that belongs elsewhere, have %+v, %v", out, err)
	}
	used, err := opener(enginetest.MigratedPostgres(t))(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer used.Close()
	put(t, used.Tasks, task)
	if err := used.Enrolment.Enroll(ctx, store.CellID{Inbox: "i", Name: "c", Number: 2}, false); !errors.Is(err, store.ErrConflict) {
		t.Errorf("want a database with tasks refused, have %v", err)
	}
}

// A program without the queue moves keys, and leaves slots of tasks where they are. It removes a cell that may have tasks only if they
// are to be forgotten.
func TestInboxWithoutQueue(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	home, b := enginetest.MigratedPostgres(t), enginetest.MigratedPostgres(t)
	plain := func(ctx context.Context, dsn string) (*store.Cell, error) {
		db, err := postgres.Open(ctx, dsn, postgres.Options{Cell: true})
		if err != nil {
			return nil, err
		}
		return db.Cell(), nil
	}
	first, err := plain(ctx, home)
	if err != nil {
		t.Fatal(err)
	}
	s, err := cells.Open(ctx, cells.Options{Home: first, Cells: map[string]func(context.Context) (*store.Cell, error){
		"b": func(ctx context.Context) (*store.Cell, error) { return plain(ctx, b) },
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if s.Ports().Tasks != nil {
		t.Error("want no port for tasks")
	}
	move(t, s, cells.All(), "b")
	for slot := range store.InboxSlots + store.TaskSlots {
		want := "b"
		if slot >= store.InboxSlots {
			want = cells.Home
		}
		if have := s.Chart().Owner(slot); have != want {
			t.Fatalf("slot %d: want it in %s, have it in %s", slot, want, have)
		}
	}
	move(t, s, cells.All(), cells.Home)
	by := store.Actor{Name: "ann"}
	if err := s.RemoveCell(ctx, "b", false, by); err == nil || !strings.Contains(err.Error(), "no queue to tell") {
		t.Errorf("want the removal refused, have %v", err)
	}
	if err := s.RemoveCell(ctx, "b", true, by); err != nil {
		t.Error(err)
	}
}
