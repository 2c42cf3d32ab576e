package cells_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"procaas/engine/enginetest"
	"procaas/engine/enginetest/conformance"
	"procaas/engine/enginetest/conformance/tasks"
	"procaas/engine/model"
	"procaas/engine/postgres"
	"procaas/engine/sealed"
	"procaas/engine/store"
	"procaas/handlers/inbox/cells"
	"procaas/handlers/queue"
)

// opener opens a database as a cell.
func opener(dsn string) func(context.Context) (*store.Cell, error) {
	return func(ctx context.Context) (*store.Cell, error) {
		db, err := postgres.Open(ctx, dsn, postgres.Options{Migrate: true, Cell: true})
		if err != nil {
			return nil, err
		}
		c := db.Cell()
		return c, queue.Attach(ctx, c, dsn, queue.Options{MaxConns: 4})
	}
}

// open makes a store of a home and more cells.
func open(t testing.TB, home string, others map[string]string) *cells.Store {
	t.Helper()
	return openAs(t, home, others, time.Minute, nil) // nobody stalls for so long
}

// openAs does so too, with the time after which moves are taken over, and a function that may be before each cell. All
// names the cell that has all slots; without it, that is the home.
func openAs(t testing.TB, home string, others map[string]string, takeOver time.Duration,
	before func(name string, store *store.Cell) *store.Cell, all ...string,
) *cells.Store {
	t.Helper()
	wrap := func(name, dsn string) func(context.Context) (*store.Cell, error) {
		return func(ctx context.Context) (*store.Cell, error) {
			store, err := opener(dsn)(ctx)
			if err != nil || before == nil {
				return store, err
			}
			return before(name, store), nil
		}
	}
	first, err := wrap(cells.Home, home)(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	o := cells.Options{Home: first, Cells: map[string]func(context.Context) (*store.Cell, error){}, TakeOver: takeOver}
	for name, dsn := range others {
		o.Cells[name] = wrap(name, dsn)
	}
	for _, name := range all {
		other, err := o.Cells[name](t.Context())
		if err == nil {
			err = cells.Give(t.Context(), first, other, name)
		}
		if err != nil {
			t.Fatal(err)
		}
		o.Cells[name] = func(context.Context) (*store.Cell, error) { return other, nil }
	}
	s, err := cells.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// away makes a store of two cells of which the one that is not the home has all keys.
func away(t testing.TB) *cells.Store {
	t.Helper()
	return openAs(t, enginetest.MigratedPostgres(t), map[string]string{"b": enginetest.MigratedPostgres(t)}, time.Minute, nil, "b")
}

// sealing lets the cells of one process seal their data.
func sealing(t testing.TB, file string) func(name string, c *store.Cell) *store.Cell {
	ring := &sealed.Ring{File: file, Log: slog.New(slog.DiscardHandler)}
	return func(_ string, c *store.Cell) *store.Cell {
		if err := ring.Cell(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		return c
	}
}

// keys makes a file with a key-encryption key.
func keys(t testing.TB) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "keys.json")
	if _, err := sealed.NewKey(file); err != nil {
		t.Fatal(err)
	}
	return file
}

// sealedAway is away with encryption.
func sealedAway(t testing.TB) *cells.Store {
	t.Helper()
	return openAs(t, enginetest.MigratedPostgres(t), map[string]string{"b": enginetest.MigratedPostgres(t)}, time.Minute, sealing(t, keys(t)), "b")
}

var whole = flag.Bool("whole", false, "check all of the contract, not only what a store of cells does by itself")

// A store of cells keeps the whole contract for the keys of a cell; only between keys of
// several cells is there no order. Nodes and what operators do to runs have most code of
// their own here, and are always checked; make test-long ONLY=cells checks the rest, which takes minutes.
func TestConformance(t *testing.T) {
	t.Parallel()
	groups := []string{"Nodes", "Moves", "Bundles", "Erase", "TrimRuns"}
	if *whole {
		groups = nil // all
	}
	conformance.Store(t, func(t *testing.T) store.Store { return away(t).Ports() }, groups...)
}

// TestConformanceOfSealedCells is TestConformance with encryption, and the contract of tasks. Most of it is for the night: cells and encryption
// have tests of their own.
func TestConformanceOfSealedCells(t *testing.T) {
	t.Parallel()
	open := func(t *testing.T) store.Store { return sealedAway(t).Ports() }
	if !*whole {
		conformance.Store(t, open, "Documents")
		return
	}
	conformance.Store(t, open)
	t.Run("Tasks", func(t *testing.T) {
		t.Parallel()
		tasks.Conformance(t, func(t *testing.T) *store.TaskStore { return open(t).Tasks })
	})
}

// What is done to runs is audited where they are, so each cell has a chain.
func TestEachCellHasAChainOfItsAudit(t *testing.T) {
	t.Parallel()
	s := away(t)
	by := store.Actor{Name: "ann"}
	if _, err := s.Home().Settings.SetConfig(t.Context(), "A", []byte("1"), -1, by); err != nil {
		t.Fatal(err)
	}
	done, err := s.Accept(t.Context(), 0, []model.Intake{{
		ID: "run", Event: model.Event{ID: "e", Type: "t", Source: "s", Time: time.Now()},
		Flow: "f", Key: "k",
	}})
	if err != nil || done[0].Err != nil {
		t.Fatal(done, err)
	}
	if err := s.Cancel(t.Context(), done[0].Run, by, store.Tell{}); err != nil {
		t.Fatal(err)
	}
	chains, err := s.VerifyAudit(t.Context(), nil)
	if err != nil || len(chains) != 2 {
		t.Fatal(chains, err)
	}
	for i, name := range []string{cells.Home, "b"} {
		if c := chains[i]; c.Cell != name || c.Records != 1 || c.Break != nil {
			t.Errorf("want one record in %s, have %+v", name, c)
		}
	}
}

// TestCellsBeginRunsByWhatTheHomeServes: a cell hears with the beats of nodes what the home serves, and never goes back.
func TestCellsBeginRunsByWhatTheHomeServes(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	cell := enginetest.MigratedPostgres(t)
	s := open(t, enginetest.MigratedPostgres(t), map[string]string{"b": cell})
	moved(t, s, "b", "k")
	node := join(t, s.Ports())
	for i, hash := range []string{"one", "two"} {
		if _, err := s.Ports().Bundles.Activate(ctx, hash, []byte("files"), false, store.Actor{Name: "ann"}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Beat(ctx, node, time.Hour, hash); err != nil {
			t.Fatal(err)
		}
		run := fmt.Sprint("run-", i)
		accept(t, s.Ports(), order("k", run))
		c := claim(t, s.Ports(), node, run)
		if c.Bundle != hash {
			t.Errorf("%s began by %q, want %q", run, c.Bundle, hash)
		}
		commit(t, s.Ports(), node, c, model.Succeeded)
	}
	db, err := postgres.Open(ctx, cell, postgres.Options{Cell: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.Cell().Enrolment.Serve(ctx, "older", 1); err != nil {
		t.Fatal(err)
	}
	if split, _, err := db.Cell().Enrolment.Serving(ctx); err != nil || split != "two" {
		t.Errorf("the cell serves %q, %v, want two", split, err)
	}
}
