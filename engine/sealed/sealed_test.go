package sealed_test

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"procaas/engine/enginetest"
	"procaas/engine/enginetest/conformance"
	"procaas/engine/enginetest/conformance/tasks"
	"procaas/engine/memory"
	"procaas/engine/model"
	"procaas/engine/postgres"
	"procaas/engine/sealed"
	"procaas/engine/sqlite"
	"procaas/engine/sqlstore"
	"procaas/engine/store"
)

// file makes a file with a key-encryption key.
func file(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys.json")
	if _, err := sealed.NewKey(path); err != nil {
		t.Fatal(err)
	}
	return path
}

// seal puts the keys of a file around a store.
func seal(t testing.TB, s store.Store, file string) store.Store {
	t.Helper()
	ring := &sealed.Ring{File: file, Log: slog.New(slog.DiscardHandler)}
	if err := ring.Store(t.Context(), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

func inMemory() store.Store { return memory.New(time.Now).Ports() }

func inFile(t testing.TB, path string) store.Store {
	t.Helper()
	db, err := sqlite.Open(t.Context(), path, sqlite.Options{Migrate: true, Fast: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return db.Ports()
}

var whole = flag.Bool("whole", false, "run the whole suite over SQLite, too")

// parts are groups of the suite whose data takes another form in a database than in memory.
var parts = []string{"Inbox", "Access", "Awaits", "Fallback", "Documents", "Erase"}

// TestConformance runs the suite of all stores over sealed ones.
func TestConformance(t *testing.T) {
	t.Parallel()
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		conformance.Store(t, func(t *testing.T) store.Store { return seal(t, inMemory(), file(t)) })
	})
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		only, but := parts, []string{"Model", "ClaimsManyTypes"}
		if *whole {
			only, but = nil, nil
		}
		open := func(t *testing.T) store.Store {
			return seal(t, inFile(t, filepath.Join(t.TempDir(), "store.db")), file(t))
		}
		conformance.Store(t, open, only...)
		t.Run("Tasks", func(t *testing.T) {
			t.Parallel()
			tasks.Conformance(t, func(t *testing.T) *store.TaskStore { return open(t).Tasks }, but...)
		})
	})
}

// TestConformanceOfPostgres is TestConformance for PostgreSQL. Its tasks are those of an add-on.
func TestConformanceOfPostgres(t *testing.T) {
	t.Parallel()
	only := []string{"Documents", "Erase"}
	if *whole {
		only = nil
	}
	conformance.Store(t, func(t *testing.T) store.Store { return seal(t, inPostgres(t, enginetest.MigratedPostgres(t)), file(t)) }, only...)
}

func inPostgres(t testing.TB, dsn string) store.Store {
	t.Helper()
	db, err := postgres.Open(t.Context(), dsn, postgres.Options{Migrate: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return db.Ports()
}

// TestProgramsWithoutEncryptionAreRefused asks the tables which programs can work with them. One of an earlier release would take sealed
// values for payloads.
func TestProgramsWithoutEncryptionAreRefused(t *testing.T) {
	t.Parallel()
	earlier := []sqlstore.History{{Table: "procaas_schema", Latest: sqlstore.EncryptionVersion - 1}}
	for kind, open := range map[string]func() (s store.Store, driver, dsn string){
		"sqlite": func() (store.Store, string, string) {
			path := filepath.Join(t.TempDir(), "store.db")
			return inFile(t, path), "sqlite", path
		},
		"postgres": func() (store.Store, string, string) {
			dsn := enginetest.Postgres(t) // its migrations say which programs they are for
			return inPostgres(t, dsn), "pgx", dsn
		},
	} {
		bare, driver, dsn := open()
		db, err := sql.Open(driver, dsn)
		must(t, err)
		t.Cleanup(func() { db.Close() })
		refusal := func() error {
			var now sqlstore.Version
			must(t, db.QueryRowContext(t.Context(), "select version, floor from schema_floor where history = ''").Scan(&now.Applied, &now.Floor))
			return sqlstore.RefuseNewer(earlier, []sqlstore.Version{now})
		}
		if err := refusal(); err != nil {
			t.Errorf("%s, before encryption: %v", kind, err)
		}
		accept(t, seal(t, bare, file(t)), intake("a"))
		if err := refusal(); err == nil || !strings.Contains(err.Error(), "use a newer procaas") {
			t.Errorf("%s: a program without encryption works with it: %v", kind, err)
		}
	}
}

func BenchmarkStore(b *testing.B) {
	for _, kind := range []string{"plain", "sealed"} {
		b.Run(kind, func(b *testing.B) {
			conformance.Benchmark(b, func(b *testing.B) store.Store {
				s := inFile(b, filepath.Join(b.TempDir(), "store.db"))
				if kind == "sealed" {
					s = seal(b, s, file(b))
				}
				return s
			})
		})
	}
}

// said is what a customer has said, which must be nowhere in a sealed store.
const said = "what only this customer has said"

func intake(run string) model.Intake {
	return model.Intake{
		ID: run, Hash: "hash of " + said, Flow: "orders", Key: "k-" + run, Ordered: true, Dedup: true, Pipeline: "made",
		Event: model.Event{
			ID: "event-" + run, Source: "test", Type: "made", Payload: map[string]any{"said": said}, Start: json.RawMessage(`"` + said + `"`),
		},
	}
}

func accept(t testing.TB, s store.Store, in ...model.Intake) []store.Accepted {
	t.Helper()
	out, err := s.Inbox.Accept(t.Context(), 0, in)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func join(t testing.TB, s store.Store) int64 {
	t.Helper()
	node, err := s.Ledger.Join(t.Context(), "n", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return node
}

func claim(t testing.TB, s store.Store, node int64) store.Claimed {
	t.Helper()
	if _, err := s.Ledger.Beat(t.Context(), node, time.Hour, "bundle"); err != nil {
		t.Fatal(err)
	}
	all, err := s.Ledger.Claim(t.Context(), node, 1, "bundle")
	if err != nil || len(all) != 1 {
		t.Fatalf("claimed %v, %v", all, err)
	}
	return all[0]
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func equal(t testing.TB, what string, have, want any) {
	t.Helper()
	if d := cmp.Diff(want, have); d != "" {
		t.Errorf("%s: -want +have\n%s", what, d)
	}
}

// TestNothingStaysPlain writes what a customer has said through each port, and reads it back. The file of the store has it nowhere.
func TestNothingStaysPlain(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	s := seal(t, inFile(t, path), file(t))
	node := join(t, s)
	large := intake("large")
	large.Event.Payload = []any{strings.Repeat(said, 1000)}
	accept(t, s, intake("a"), large)
	for range 2 {
		c := claim(t, s, node)
		must(t, c.Unfold())
		want := intake("a").Event.Payload
		if c.ID == "large" {
			want = large.Event.Payload
		}
		equal(t, "payload", c.Event.Payload, want)
		equal(t, "start", string(c.Event.Start), `"`+said+`"`)
		change := model.Change{
			Run: c.ID, Flow: c.Flow, Key: c.Key, Status: model.Succeeded, Bundle: "bundle", Pipeline: "made", Checkpoint: []byte(said),
			Shared: []byte(`{"note":"` + said + `"}`), Emit: []model.Intake{intake("emitted-" + c.ID)},
		}
		if c.ID == "large" {
			change.Status, change.FailedPath, change.Error, change.Shared = model.Failed, "made/s/h", said, nil
		}
		errs, err := s.Ledger.Commit(t.Context(), node, []model.Change{change})
		must(t, errors.Join(append(errs, err)...))
	}
	must(t, s.Runs.Retry(t.Context(), "large", store.Actor{Name: "ann"}))
	r, err := s.Runs.Run(t.Context(), "a")
	must(t, err)
	equal(t, "checkpoint", string(r.Checkpoint), said)
	e, err := s.Runs.Entity(t.Context(), "orders", "k-a")
	must(t, err)
	equal(t, "shared", string(e.Shared), `{"note":"`+said+`"}`)
	log, err := s.Audits.Audit(t.Context(), store.AuditFilter{Kind: store.AuditRun, Limit: 1})
	must(t, err)
	if len(log) != 1 || !bytes.Contains(log[0].Before, []byte(said)) {
		t.Errorf("have the audit %+v", log)
	}
	must(t, s.Runs.Cancel(t.Context(), "large", store.Actor{Name: "ann"}, store.Tell{Generation: 1, Events: []model.Intake{intake("told")}}))

	spec := store.TaskSpec{Type: "mail", Key: "k", Payload: json.RawMessage(`"` + said + `"`)}
	_, err = s.Tasks.Queue.PutTasks(t.Context(), []store.TaskSpec{spec})
	must(t, err)
	all, err := s.Tasks.Work.ClaimTasks(t.Context(), store.TaskClaim{Types: []store.TaskWant{{Type: "mail", Limit: 1}}, Lease: time.Hour})
	must(t, err)
	equal(t, "payload of a task", string(all[0].Payload), `"`+said+`"`)
	_, err = s.Tasks.Work.ReportTasks(t.Context(), store.TaskReport{Failed: []store.TaskFailure{
		{TaskRef: all[0].Ref(), Error: strings.Repeat(said, 100)},
	}})
	must(t, err)
	all, err = s.Tasks.Admin.PeekTasks(t.Context(), store.TaskFilter{Type: "mail", State: store.TaskFailed})
	must(t, err)
	if len(all) != 1 || !strings.HasPrefix(all[0].Error, said) {
		t.Errorf("have dead letters %+v", all)
	}
	_, err = s.Tasks.Queue.PutTasks(t.Context(), []store.TaskSpec{spec})
	must(t, err)
	all, err = s.Tasks.Work.ClaimTasks(t.Context(), store.TaskClaim{Types: []store.TaskWant{{Type: "mail", Limit: 1}}, Lease: time.Hour})
	must(t, err)
	result := map[store.TaskRef]json.RawMessage{all[0].Ref(): json.RawMessage(`"` + said + `"`)}
	_, err = s.Tasks.Work.ReportTasks(t.Context(), store.TaskReport{Completed: []store.TaskRef{all[0].Ref()}, Results: result})
	must(t, err)
	all, err = s.Tasks.Admin.PeekTasks(t.Context(), store.TaskFilter{Type: "mail", State: store.TaskCompleted})
	must(t, err)
	equal(t, "result of a task", string(all[0].Result), `"`+said+`"`)

	_, err = s.Documents.WriteDocuments(t.Context(), 0, []store.DocumentWrite{{Kind: "k", Name: "n", Value: []byte(said)}}, nil)
	must(t, err)
	d, err := s.Documents.Document(t.Context(), "k", "n")
	must(t, err)
	equal(t, "document", string(d.Value), said)
	must(t, s.Degradation.Report(t.Context(), node, 1, []model.Tally{{Path: said, Second: 1, Good: 1}}))
	in, err := s.Degradation.Deliberate(t.Context(), 0)
	must(t, err)
	equal(t, "tallies", in.Fresh, []model.Tally{{Path: said, Second: 1, Good: 1}})
	must(t, s.Degradation.Conclude(t.Context(), store.Conclusion{Turn: in.Turn, Taken: in.Taken, State: []byte(said)}))
	state, _, err := s.Degradation.Outages(t.Context())
	must(t, err)
	equal(t, "state", string(state), said)

	for _, name := range []string{path, path + "-wal"} {
		data, err := os.ReadFile(name)
		must(t, err)
		for _, text := range []string{said, said[:12]} {
			if bytes.Contains(data, []byte(text)) {
				t.Errorf("%q is in %s", text, name)
			}
		}
		if !bytes.Contains(data, []byte("k-a")) && strings.HasSuffix(name, "-wal") {
			t.Error("the key is not in the log, so the test shows nothing")
		}
	}
}

// TestMovedValueIsDamaged gives a run the sealed data of another one.
func TestMovedValueIsDamaged(t *testing.T) {
	t.Parallel()
	bare := inMemory()
	s := seal(t, bare, file(t))
	accept(t, s, intake("a"))
	a, err := bare.Runs.Run(t.Context(), "a")
	must(t, err)
	moved := intake("b")
	moved.Event.Payload = a.Event.Payload
	accept(t, bare, moved)
	b, err := s.Runs.Run(t.Context(), "b")
	must(t, err)
	if !errors.Is(b.Damage, store.ErrDamaged) || !strings.Contains(b.Damage.Error(), "run b") || b.Event.Payload != nil {
		t.Errorf("want run b damaged, have %v of %v", b.Damage, b.Event.Payload)
	}
	node := join(t, s)
	damaged := 0
	for range 2 {
		if c := claim(t, s, node); c.ID == "b" && errors.Is(c.Damage, store.ErrDamaged) {
			damaged++
		} else {
			equal(t, "payload of "+c.ID, c.Event.Payload, intake("a").Event.Payload)
		}
	}
	equal(t, "damaged runs", damaged, 1)
}

// TestDamagedTaskIsADeadLetter gives a task the sealed payload of another key.
func TestDamagedTaskIsADeadLetter(t *testing.T) {
	t.Parallel()
	bare := inFile(t, filepath.Join(t.TempDir(), "tasks.db"))
	s := seal(t, bare, file(t))
	put := func(s store.Store, key string, payload json.RawMessage) {
		_, err := s.Tasks.Queue.PutTasks(t.Context(), []store.TaskSpec{{Type: "mail", Key: key, Payload: payload}})
		must(t, err)
	}
	put(s, "a", json.RawMessage(`1`))
	all, err := bare.Tasks.Admin.PeekTasks(t.Context(), store.TaskFilter{Type: "mail"})
	must(t, err)
	put(bare, "b", all[0].Payload)
	all, err = s.Tasks.Work.ClaimTasks(t.Context(), store.TaskClaim{Types: []store.TaskWant{{Type: "mail", Limit: 9}}, Lease: time.Hour})
	must(t, err)
	if len(all) != 1 || all[0].Key != "a" || string(all[0].Payload) != "1" {
		t.Errorf("claimed %+v", all)
	}
	dead, err := s.Tasks.Admin.PeekTasks(t.Context(), store.TaskFilter{Type: "mail", State: store.TaskFailed})
	must(t, err)
	if len(dead) != 1 || dead[0].Key != "b" || !strings.Contains(dead[0].Error, fmt.Sprintf("payload of task %d", dead[0].ID)) {
		t.Errorf("have dead letters %+v", dead)
	}
}
