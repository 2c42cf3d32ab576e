package sqlite_test

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"procaas/engine/enginetest/conformance"
	"procaas/engine/model"
	"procaas/engine/store"
)

// beside opens the file of a store a second time.
func beside(t *testing.T, file string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", file+"?_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func TestTrimForgetsEndedRunsInParts(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "trim.db")
	s := open(t, file)
	node, err := s.Join(t.Context(), "n", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	const runs = 450
	var in []model.Intake
	var ends []model.Change
	for i := range runs + 1 { // the last one does not end
		id := fmt.Sprintf("r%03d", i)
		source := "shop"
		if i < 3 {
			source = "procaas/trigger/yearly"
		}
		in = append(in, model.Intake{
			ID: id, Event: model.Event{ID: id, Source: source, Type: "made"}, Flow: "made", Key: id,
			Pipeline: "made", Dedup: true, Own: true,
		})
		ends = append(ends, model.Change{Run: id, Status: model.Succeeded, Pipeline: "made"})
	}
	if _, err := s.Accept(t.Context(), node, in); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(t.Context(), node, ends[:runs]); err != nil {
		t.Fatal(err)
	}
	if more, err := s.Trim(t.Context(), store.Retention{Keep: time.Hour}); more || err != nil {
		t.Fatalf("want nothing to trim, have %v, %v", more, err)
	}
	left := func() (n int) {
		for cursor := ""; ; {
			page, next, err := s.List(t.Context(), store.RunFilter{Limit: 1000, Cursor: cursor})
			if err != nil {
				t.Fatal(err)
			}
			if n += len(page); next == "" {
				return n
			}
			cursor = next
		}
	}
	// As the migration has noted it that has set ids of emitted events apart.
	db := beside(t, file)
	if _, err := db.ExecContext(t.Context(), "insert into events (source, id, run, hash, accepted) select 'procaas/emitted/' || source, id, run, hash, accepted from events "+
		"where source = 'shop'"); err != nil {
		t.Fatal(err)
	}
	for part, want := range []int{runs + 1 - 200, runs + 1 - 400, 1} {
		more, err := s.Trim(t.Context(), store.Retention{Keep: time.Microsecond})
		if have := left(); err != nil || have != want || more != (want > 1) {
			t.Errorf("part %d: want %d runs left, have %d, more %v, %v", part, want, have, more, err)
		}
	}
	for source, want := range map[string]string{
		"shop": fmt.Sprintf("r%03d", runs), "procaas/emitted/shop": fmt.Sprintf("r%03d", runs),
		"procaas/trigger/yearly": "r002",
	} {
		if last, err := s.LastEvent(t.Context(), source); err != nil || last != want {
			t.Errorf("%s: want %s remembered, have %q, %v", source, want, last, err)
		}
	}
}

func TestRunsAreKeptByTheirPipeline(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "kept.db")
	conformance.Retention(t, open(t, file).Ports(), aging(file))
}

func TestRunsLeaveThroughAnArchive(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "archived.db")
	conformance.Archive(t, open(t, file).Ports(), aging(file))
}

// aging makes what is in a file older.
func aging(file string) func(t *testing.T, by time.Duration) {
	return func(t *testing.T, by time.Duration) {
		db := beside(t, file)
		for _, sql := range []string{"update history set ended = ended - ?", "update events set accepted = accepted - ?"} {
			if _, err := db.ExecContext(t.Context(), sql, by.Microseconds()); err != nil {
				t.Fatal(err)
			}
		}
	}
}
