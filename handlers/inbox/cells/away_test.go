package cells_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/engine/intake"
	"procaas/engine/model"
	"procaas/engine/store"
	"procaas/handlers/inbox/cells"
)

// While a database of the inbox is away, the keys of the others work; its own wait, and
// go on when it comes back.
func TestKeysOfOthersWorkWhileACellIsAway(t *testing.T) {
	t.Parallel()
	ctx, cancel := patience.Context(t.Context(), 2*time.Minute)
	defer cancel()
	cluster := enginetest.OwnPostgres(t)
	s := open(t, enginetest.MigratedPostgres(t), map[string]string{"b": cluster.URL})
	l := &ledger{steps: map[string][]int{}, told: map[string][]int{}}
	e := nodes(t, l, s.Ports())[0]
	// One key lives here, one there; both keys that hear of it live at home.
	here, there := "", ""
	for i := 0; here == "" || there == ""; i++ {
		key := fmt.Sprint("key-", i)
		if here == "" {
			here = key
		} else if slot := store.InboxSlot(key); slot != store.InboxSlot(here) && slot != store.InboxSlot("to-"+here) &&
			slot != store.InboxSlot("to-"+key) {
			there = key
		}
	}
	slot := store.InboxSlot(there)
	if err := s.MoveNow(ctx, cells.Order{Slots: []int{slot}, To: "b", Wait: time.Minute}); err != nil || s.Chart().Owner(slot) != "b" {
		t.Fatalf("want slot %d in b, have it in %s, %v", slot, s.Chart().Owner(slot), err)
	}
	ended := func(key string, n int) func() bool {
		return func() bool {
			counts, err := s.Count(ctx, store.RunFilter{Key: key, Status: model.Succeeded})
			n := n
			for _, c := range counts {
				n -= c.Runs
			}
			return err == nil && n <= 0
		}
	}
	submit(ctx, t, e, there, 1)
	waitFor(t, "the first run of the key", ended(there, 1))
	if err := cluster.Halt(enginetest.StopImmediate); err != nil {
		t.Fatal(err)
	}
	event := intake.Submission{Event: model.Event{
		ID: there + "-1", Source: "test", Type: "step", Key: there,
		Payload: map[string]any{"n": 1},
	}}
	if out, err := e.Submit(ctx, []intake.Submission{event}); err == nil && !errors.Is(out[0].Err, store.ErrAway) || err != nil &&
		!errors.Is(err, store.ErrAway) {
		t.Errorf("want the cell away, have %+v, %v", out, err)
	}
	waitFor(t, "the node to tell that the cell is away", func() bool {
		err := e.Degraded()
		return err != nil && strings.Contains(err.Error(), "cell b")
	})
	const events = 5
	submit(ctx, t, e, here, events)
	waitFor(t, "the runs of the other key", ended(here, events))
	if err := cluster.Start(ctx); err != nil {
		t.Fatal(err)
	}
	submit(ctx, t, e, there, events)
	waitFor(t, "the runs of the key that was away", ended(there, events))
	waitFor(t, "all that they tell", func() bool { return ended("to-"+here, events)() && ended("to-"+there, events)() })
	waitFor(t, "the node to be whole", func() bool { return e.Degraded() == nil })
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range []string{here, there} {
		for i, n := range l.told["to-"+key] {
			if n != i {
				t.Errorf("key %s: event %d was told at place %d", key, n, i)
			}
		}
	}
}

// A cell that shows less than it has answered is refused: its keys wait, and people get an alert.
// So is one that has fenced the node meanwhile.
func TestCellThatWasSetBackIsRefused(t *testing.T) {
	t.Parallel()
	const setBack = "update leases set beats = -1000"
	for name, change := range map[string]string{
		"beats are missing":  setBack,
		"the node is fenced": "begin; " + setBack + "; update nodes set gone = now(), died = true; commit",
	} {
		t.Run(name, func(t *testing.T) { cellThatWasSetBack(t, change) })
	}
}

func cellThatWasSetBack(t *testing.T, change string) {
	t.Parallel()
	ctx, cancel := patience.Context(t.Context(), 2*time.Minute)
	defer cancel()
	dsn := enginetest.MigratedPostgres(t)
	s := open(t, enginetest.MigratedPostgres(t), map[string]string{"b": dsn})
	e := nodes(t, &ledger{steps: map[string][]int{}, told: map[string][]int{}}, s.Ports())[0]
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	waitFor(t, "the node to have renewed its lease in the cell", func() bool {
		var beats int
		return conn.QueryRow(ctx, "select max(beats) from leases").Scan(&beats) == nil && beats > 1
	})
	if _, err := conn.Exec(ctx, change); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the node to refuse the cell", func() bool { return errors.Is(e.Degraded(), store.ErrLost) })
	if err := e.Healthy(ctx); err != nil {
		t.Errorf("want the node ready for the keys of other cells, have %v", err)
	}
}
