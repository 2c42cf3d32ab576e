package sqlite

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"procaas/engine/model"
)

// SQLite makes a table of a list of more than two values with each execution of a statement, which costs more than many statements.
func TestStatementsOfAFlowMakeNoTables(t *testing.T) {
	t.Parallel()
	s := openNew(t)
	node, err := s.Join(t.Context(), "n", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for _, ordered := range []bool{true, false} {
		in := model.Intake{
			ID: fmt.Sprint("run-", ordered), Event: model.Event{ID: "e", Type: "made"}, Flow: "orders", Key: "k", Pipeline: "made", Bundle: "b",
			Ordered: ordered, Dedup: ordered, Own: true,
		}
		if _, err := s.Accept(t.Context(), node, []model.Intake{in}); err != nil {
			t.Fatal(err)
		}
		for version, status := range []model.Status{model.Running, model.Succeeded} {
			c := model.Change{
				Run: in.ID, Version: int64(version), Status: status, Bundle: "b", Pipeline: "made", Flow: in.Flow, Key: in.Key, Alone: !ordered,
			}
			if errs, err := s.Commit(t.Context(), node, []model.Change{c}); err != nil || errs[0] != nil {
				t.Fatalf("commit %s: %v, %v", status, err, errs)
			}
		}
	}
	if err := s.writer.do(t.Context(), func(w *tx) error {
		seen := 0
		for query := range w.stmts {
			if !strings.Contains(query, "runs") {
				continue
			}
			seen++
			for _, opcode := range opcodes(t, w, query) {
				if opcode == "OpenEphemeral" {
					t.Errorf("this makes a table each time:\n%s", query)
				}
			}
		}
		if seen < 6 {
			t.Errorf("want the statements of two flows, have %d", seen)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

var placeholder = regexp.MustCompile(`\?\d*`)

// opcodes returns the steps of the program that SQLite makes of a statement.
func opcodes(t *testing.T, w *tx, query string) []string {
	t.Helper()
	var args []any
	for _, p := range placeholder.FindAllString(query, -1) {
		if n, err := strconv.Atoi(p[1:]); err != nil || n > len(args) {
			args = append(args, nil)
		}
	}
	r, err := w.conn.QueryContext(t.Context(), "explain "+query, args...)
	if err != nil {
		t.Fatalf("explain %s: %v", query, err)
	}
	type step struct {
		addr, p1, p2, p3, p5 int
		opcode, p4, remark   sql.NullString
	}
	all, err := collect(r, func(r *sql.Rows) (s step, err error) {
		return s, r.Scan(&s.addr, &s.opcode, &s.p1, &s.p2, &s.p3, &s.p4, &s.p5, &s.remark)
	})
	if err != nil || len(all) == 0 {
		t.Fatalf("explain %s: %d steps, %v", query, len(all), err)
	}
	var names []string
	for _, s := range all {
		names = append(names, s.opcode.String)
	}
	return names
}

// The constraints of the tables have another text than in their first migration, and refuse the same.
func TestConstraintsRefuseOtherPlacesAndStatuses(t *testing.T) {
	t.Parallel()
	s := openNew(t)
	in := model.Intake{ID: "run", Event: model.Event{ID: "e", Type: "made"}, Flow: "orders", Key: "k", Pipeline: "made"}
	if _, err := s.Accept(t.Context(), 0, []model.Intake{in}); err != nil {
		t.Fatal(err)
	}
	for _, wrong := range []string{
		"update runs set place = 'nowhere'",
		"update runs set place = 'running'",
		"insert into history (seq, id, flow, key, ordered, status, version, generation, pipeline, bundle, accepted, ended, failed_path, error, " +
			"error_class, reason, event) values (1, 'run', 'orders', 'k', 0, 'lost', 1, 0, 'made', 'b', 1, 1, '', '', '', '', x'00')",
	} {
		err := s.writer.do(t.Context(), func(w *tx) error { return w.exec(wrong) })
		if err == nil || !strings.Contains(err.Error(), "CHECK constraint") {
			t.Errorf("%s: want it refused by a constraint, have %v", wrong, err)
		}
	}
	if err := s.writer.do(t.Context(), func(w *tx) error {
		for _, place := range []place{ready, running, parked, held, blocked, queued, scheduled, "deferred", failed} {
			node := 0
			if place == running {
				node = 1
			}
			if err := w.exec("update runs set place = ?, node = ?", place, node); err != nil {
				t.Errorf("%s: %v", place, err)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	var found string
	if err := s.read.QueryRowContext(t.Context(), "pragma integrity_check").Scan(&found); err != nil || found != "ok" {
		t.Errorf("want the file intact, have %q, %v", found, err)
	}
}

func openNew(t *testing.T) *Store {
	t.Helper()
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "store.db"), Options{Migrate: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}
