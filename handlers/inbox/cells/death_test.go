package cells_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"procaas/engine/enginetest"
	"procaas/engine/model"
	"procaas/engine/store"
	"procaas/handlers/inbox/cells"
)

// A mortal cell kills the process that makes a move, before a step or after it.
type mortal struct {
	store.SlotMoves
	at   string
	part string // how the name of the part ends at which it does
	die  *atomic.Pointer[func()]
}

// step does one step, and lets the process die at it.
func (m *mortal) step(name, move string, do func() error) error {
	die := m.die.Load()
	if !strings.HasSuffix(move, m.part) || m.part == "" && strings.HasSuffix(move, "/tasks") {
		return do()
	}
	if die != nil && m.at == "before "+name {
		(*die)()
		return context.Canceled
	}
	err := do()
	if die != nil && m.at == "after "+name {
		(*die)()
		return context.Canceled
	}
	return err
}

func (m *mortal) Arrive(ctx context.Context, move string, slots []int) error {
	return m.step("arrive", move, func() error { return m.SlotMoves.Arrive(ctx, move, slots) })
}

func (m *mortal) Freeze(ctx context.Context, move string, slots []int) (left int, err error) {
	return left, m.step("freeze", move, func() error { left, err = m.SlotMoves.Freeze(ctx, move, slots); return err })
}

func (m *mortal) Import(ctx context.Context, move string, what store.CellPart, rows []byte) error {
	return m.step("import of "+string(what), move, func() error { return m.SlotMoves.Import(ctx, move, what, rows) })
}

func (m *mortal) Open(ctx context.Context, move string, after int64) error {
	return m.step("open", move, func() error { return m.SlotMoves.Open(ctx, move, after) })
}

func (m *mortal) Drop(ctx context.Context, move string, slots []int) (more bool, err error) {
	return more, m.step("drop", move, func() error { more, err = m.SlotMoves.Drop(ctx, move, slots); return err })
}

// A move whose process dies is undone by another one before the switch, and ended after
// it. Nothing is lost either way, and what the dead one does later changes nothing.
func TestMoveIsTakenOver(t *testing.T) {
	t.Parallel()
	for at, want := range map[string]string{
		"after import of events": cells.Home, "after freeze": cells.Home, "after import of runs": cells.Home,
		"before open": "b", "after open": "b", "after drop": "b",
	} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			takeOver(t, at, want)
		})
	}
}

func takeOver(t *testing.T, at, want string) {
	ctx := t.Context()
	home, others := enginetest.MigratedPostgres(t), map[string]string{"b": enginetest.MigratedPostgres(t)}
	var die atomic.Pointer[func()]
	dying := openAs(t, home, others, time.Second, func(_ string, store *store.Cell) *store.Cell {
		store.Moves = &mortal{SlotMoves: store.Moves, at: at, die: &die}
		return store
	})
	works := dying
	in := func(key string, n int) model.Intake {
		return model.Intake{
			ID: fmt.Sprintf("%s-%d", key, n), Hash: "h", Flow: "f", Key: key, Ordered: true, Dedup: true, Pipeline: "p",
			Event: model.Event{ID: fmt.Sprintf("%s-%d", key, n), Source: "test", Type: "made", Key: key, Time: time.UnixMicro(1).UTC()},
		}
	}
	accept := func(n int) {
		t.Helper()
		for _, key := range names(5) {
			waitFor(t, "the slots to work again", func() bool {
				out, err := works.Accept(ctx, 0, []model.Intake{in(key, n)})
				return err == nil && out[0].Err == nil
			})
		}
	}
	accept(0)
	accept(1)
	kill := func() { die.Store(nil); dying.Die() }
	die.Store(&kill)
	// Its error is that of the one who dies.
	_ = dying.MoveNow(ctx, cells.Order{Slots: cells.All(), To: "b", Wait: time.Minute})
	other := openAs(t, home, others, time.Second, nil) // only now: it would not wait for one that stalls
	works = other
	waitFor(t, "the move to be taken over", func() bool {
		v, err := other.Inbox(ctx)
		return err == nil && len(v.Moves) == 1 && v.Moves[0].Ended != nil
	})
	if v, err := other.Inbox(ctx); err != nil || len(other.Chart().SlotsOf(want)) != store.InboxSlots ||
		want == "b" != (v.Moves[0].Error == "") {
		t.Fatalf("want all slots in cell %s, have %+v, %v", want, v, err)
	}
	accept(2)
	node, err := other.Join(ctx, "node", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	have := map[string][]string{}
	for range 3 {
		runs, err := other.Claim(ctx, node, 100, "bundle")
		if err != nil {
			t.Fatal(err)
		}
		var changes []model.Change
		for _, r := range runs {
			have[r.Key] = append(have[r.Key], r.ID)
			changes = append(changes, model.Change{Run: r.ID, Version: r.Version, Status: model.Succeeded, Pipeline: "p", Bundle: "bundle"})
		}
		errs, err := other.Commit(ctx, node, changes)
		if err != nil || slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
			t.Fatalf("commit: %v, %v", errs, err)
		}
	}
	for _, key := range names(5) {
		if got := strings.Join(have[key], " "); got != fmt.Sprintf("%s-0 %s-1 %s-2", key, key, key) {
			t.Errorf("key %s: want its three runs in order, have %s", key, got)
		}
		if out, err := other.Accept(ctx, 0, []model.Intake{in(key, 0)}); err != nil || !out[0].Duplicate {
			t.Errorf("key %s: want a repetition known, have %+v, %v", key, out, err)
		}
	}
}

// A move in parts whose process dies in the second of them has moved the first: every
// slot works in one cell, and no run is lost, doubled or out of its order.
func TestPartsOfAMoveAreTakenOver(t *testing.T) {
	t.Parallel()
	for at, wantSecond := range map[string]string{
		"before arrive": cells.Home, "after freeze": cells.Home,
		"after import of runs": cells.Home, "before open": "b", "after open": "b", "after drop": "b",
	} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			dieInSecondPart(t, at, wantSecond)
		})
	}
}

func dieInSecondPart(t *testing.T, at, wantSecond string) {
	ctx := t.Context()
	home, others := enginetest.MigratedPostgres(t), map[string]string{"b": enginetest.MigratedPostgres(t)}
	var die atomic.Pointer[func()]
	dying := openAs(t, home, others, time.Second, func(_ string, store *store.Cell) *store.Cell {
		store.Moves = &mortal{SlotMoves: store.Moves, at: at, part: "/1", die: &die}
		return store
	})
	dying.SetPart(1) // a slot with runs is a part of its own
	keys := names(4)
	slices.SortFunc(keys, func(a, b string) int { return store.InboxSlot(a) - store.InboxSlot(b) })
	for n := range 2 {
		for _, key := range keys {
			accept(t, dying.Ports(), order(key, fmt.Sprintf("%s-%d", key, n)))
		}
	}
	o := cells.Order{To: "b", Wait: time.Minute}
	for _, key := range keys {
		o.Slots = append(o.Slots, store.InboxSlot(key))
	}
	kill := func() { die.Store(nil); dying.Die() }
	die.Store(&kill)
	_ = dying.MoveNow(ctx, o) // its error is that of the one who dies
	other := openAs(t, home, others, time.Second, nil)
	waitFor(t, "the move to be taken over", func() bool {
		v, err := other.Inbox(ctx)
		return err == nil && len(v.Moves) == 1 && v.Moves[0].Ended != nil
	})
	want := []string{"b", wantSecond, cells.Home, cells.Home}
	for i, key := range keys {
		if owner := other.Chart().Owner(store.InboxSlot(key)); owner != want[i] {
			t.Errorf("part %d: want its slot in %s, have it in %s", i, want[i], owner)
		}
	}
	v, err := other.Inbox(ctx)
	if moved := slices.Index(want, cells.Home); err != nil || v.Moves[0].Moved != moved || v.Moves[0].Error == "" {
		t.Errorf("want %d slots moved and the reason for it, have %+v, %v", moved, v.Moves[0], err)
	}
	accepted := func(in model.Intake) {
		t.Helper()
		waitFor(t, "the slot to work", func() bool {
			out, err := other.Accept(ctx, 0, []model.Intake{in})
			return err == nil && out[0].Err == nil
		})
	}
	for _, key := range keys {
		accepted(order(key, key+"-2"))
		if out, err := other.Accept(ctx, 0, []model.Intake{order(key, key+"-0")}); err != nil || !out[0].Duplicate {
			t.Errorf("key %s: want a repetition known, have %+v, %v", key, out, err)
		}
	}
	node := join(t, other.Ports())
	for n := range 3 {
		runs, err := other.Claim(ctx, node, 100, "bundle")
		if err != nil || len(runs) != len(keys) {
			t.Fatalf("want a run of each key, have %d, %v", len(runs), err)
		}
		for _, r := range runs {
			if r.ID != fmt.Sprintf("%s-%d", r.Key, n) {
				t.Errorf("key %s: run %s came at place %d", r.Key, r.ID, n)
			}
			commit(t, other.Ports(), node, r, model.Succeeded)
		}
	}
	if runs, err := other.Claim(ctx, node, 100, "bundle"); err != nil || len(runs) > 0 {
		t.Errorf("want no run twice, have %d more, %v", len(runs), err)
	}
}

// What a dead process goes on to do with a move that was taken over changes nothing.
func TestMoveOfADeadProcessIsFenced(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	home, b := enginetest.MigratedPostgres(t), enginetest.MigratedPostgres(t)
	s := open(t, home, map[string]string{"b": b})
	from, err := opener(home)(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	to, err := opener(b)(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	slots := cells.All()
	// Nobody knows of this move: it was taken over and undone.
	if _, err := from.Moves.Freeze(ctx, "zombie", slots); err != nil {
		t.Fatal(err)
	}
	if err := to.Moves.Import(ctx, "zombie", store.CellRuns, []byte(`[{}]`)); err == nil {
		t.Error("runs were imported by a move that nobody knows")
	}
	if err := to.Moves.Open(ctx, "zombie", 0); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the slots to be thawed", func() bool {
		all, err := from.Moves.Slots(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return !slices.ContainsFunc(all, func(c store.CellSlot) bool { return c.State != store.SlotOpen })
	})
	if all, err := to.Moves.Slots(ctx); err != nil || len(all) != 0 {
		t.Errorf("want no slots in b, have %d, %v", len(all), err)
	}
	if owned := s.Chart().SlotsOf(cells.Home); len(owned) != store.InboxSlots {
		t.Errorf("want all slots at home, have %d", len(owned))
	}
}

// A run that a node owns keeps a move from its end; then the slots work again.
func TestMoveGivesUpForLongRuns(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := open(t, enginetest.MigratedPostgres(t), map[string]string{"b": enginetest.MigratedPostgres(t)})
	node, err := s.Join(ctx, "node", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	in := model.Intake{
		ID: "run", Hash: "h", Flow: "f", Key: "k", Ordered: true, Dedup: true, Pipeline: "p", Own: true,
		Event: model.Event{ID: "event", Source: "test", Type: "made", Key: "k", Time: time.UnixMicro(1).UTC()},
	}
	out, err := s.Accept(ctx, node, []model.Intake{in})
	if err != nil || out[0].Claimed == nil {
		t.Fatalf("want the run owned, have %+v, %v", out, err)
	}
	if err := s.MoveNow(ctx, cells.Order{Slots: []int{store.InboxSlot("k")}, To: "b", Wait: 50 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	if done := s.Chart().Done; len(done) != 1 || !strings.Contains(done[0].Error, "1 runs of the slots were still under way") {
		t.Fatalf("want the move undone for the run, have %+v", done)
	}
	c := out[0].Claimed
	errs, err := s.Commit(ctx, node, []model.Change{{
		Run: c.ID, Version: c.Version, Status: model.Succeeded, Pipeline: "p",
		Bundle: "bundle",
	}})
	if err != nil || errs[0] != nil {
		t.Fatalf("commit: %v, %v", errs, err)
	}
	if err := s.MoveNow(ctx, cells.Order{Slots: []int{store.InboxSlot("k")}, To: "b", Wait: time.Minute}); err != nil {
		t.Fatal(err)
	}
	if owner := s.Chart().Owner(store.InboxSlot("k")); owner != "b" {
		t.Errorf("want the slot in b, have it in %s", owner)
	}
	for _, bad := range []cells.Order{
		{Slots: []int{1}, To: "c"},
		{To: "b"},
		{Slots: []int{-1}, To: "b"},
		{Slots: []int{store.InboxSlot("k")}, To: "b"},
		{Slots: []int{1}, To: "b", Wait: time.Hour},
		{Slots: cells.All(), To: "b"},
	} {
		if err := s.MoveNow(ctx, bad); err == nil {
			t.Errorf("order %v to %s was taken", len(bad.Slots), bad.To)
		}
	}
}
