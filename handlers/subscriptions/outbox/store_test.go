package outbox_test

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"procaas/engine/enginetest"
	"procaas/handlers/subscriptions/broker"
	"procaas/handlers/subscriptions/brokertest"
	"procaas/handlers/subscriptions/outbox"
)

// newStoreRig makes the tables of a store, and a program that may do nothing but submit. read says whether a node has read them.
func newStoreRig(t *testing.T, read bool) (r *rig, program *pgx.Conn) {
	t.Helper()
	r = newRigAt(t, enginetest.MigratedPostgres(t))
	r.sub.Broker, r.sub.Servers, r.sub.Auth, r.sub.Table = "store", nil, nil, ""
	u, err := url.Parse(r.dsn)
	if err != nil {
		t.Fatal(err)
	}
	role := strings.Trim(u.Path, "/") + "_app" // roles are of the server, and databases of a test
	r.exec("create role " + role + " login")
	t.Cleanup(func() { r.dropRole(role) })
	r.exec("grant usage on schema " + u.Query().Get("search_path") + " to " + role)
	r.exec("grant execute on function procaas_submit to " + role)
	if read {
		r.exec("insert into documents (kind, name, version, value, changed, node) values ('subscription-group', 'store/submitted/submitted', 1, 'submitted', now(), 0)")
	}
	u.User = url.User(role)
	if program, err = pgx.Connect(r.ctx, u.String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = program.Close(context.Background()) })
	return r, program
}

// TestProgramsSubmit lets a program submit in its transactions. What it rolls back never comes.
func TestProgramsSubmit(t *testing.T) {
	t.Parallel()
	r, program := newStoreRig(t, true)
	open := outbox.OfStore(r.dsn)
	s, err := open(r.ctx, brokertest.Options(&r.sub, nil))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	if s.Origin() == "" {
		t.Error("want an origin, so that the store notes that somebody reads")
	}
	gone, err := program.Begin(r.ctx)
	if err != nil {
		t.Fatal(err)
	}
	var id, made string
	if err := gone.QueryRow(r.ctx, "select procaas_submit('paid', 'gone')").Scan(&id); err != nil {
		t.Fatal(err)
	}
	if err := gone.Rollback(r.ctx); err != nil {
		t.Fatal(err)
	}
	if err := program.QueryRow(r.ctx, `select procaas_submit('paid', 'o-1', '{"amount": 42}', 'p-1')`).Scan(&id); err != nil || id != "p-1" {
		t.Fatalf("want the id p-1, have %q (%v)", id, err)
	}
	if err := program.QueryRow(r.ctx, "select procaas_submit(type => 'paid')").Scan(&made); err != nil {
		t.Fatal(err)
	}
	var got []broker.Message
	for len(got) < 2 {
		got = append(got, r.fetch(s)...)
	}
	if m := got[0]; m.ID != "p-1" || m.Subject != "paid" || m.Key != "o-1" || string(m.Body) != `{"amount": 42}` || m.Time.IsZero() {
		t.Errorf("want what was submitted, have %+v", m)
	}
	if m := got[1]; m.ID != made || len(made) < 30 || m.Key != "" || string(m.Body) != "{}" {
		t.Errorf("want an event with the id %s, have %+v", made, m)
	}
	r.done(s, got)
	if n := r.count("submitted"); n != 0 {
		t.Errorf("want no rows left, have %d", n)
	}
	if _, err := program.Exec(r.ctx, "select * from submitted"); err == nil || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("want that a program cannot read what others submit, have %v", err)
	}
	if _, err := outbox.OfStore("")(r.ctx, brokertest.Options(&r.sub, nil)); err == nil || !strings.Contains(err.Error(), "no PostgreSQL") {
		t.Errorf("want an error for a store without procaas_submit, have %v", err)
	}
}

// TestAWrongSubmissionFailsAtOnce calls the function with what could become no event.
func TestAWrongSubmissionFailsAtOnce(t *testing.T) {
	t.Parallel()
	r, program := newStoreRig(t, true)
	for call, want := range map[string]string{
		"procaas_submit('')":                                      "want a type, have none",
		"procaas_submit(null)":                                    "want a type, have none",
		"procaas_submit(repeat('x', 201))":                        "want a type of at most 200 bytes, have 201",
		"procaas_submit('a', repeat('é', 513))":                   "want a key of at most 1024 bytes, have 1026",
		"procaas_submit('a', id => '')":                           "want an id of 1 to 200 bytes, have 0",
		"procaas_submit('a', payload => null)":                    "want a payload, have null",
		"procaas_submit('a', '', to_jsonb(repeat('x', 1000000)))": "want a payload of at most 1000000 bytes, have 1000002",
	} {
		_, err := program.Exec(r.ctx, "select "+call)
		if why, ok := errors.AsType[*pgconn.PgError](err); !ok || why.Code != "22023" || !strings.Contains(why.Message, want) {
			t.Errorf("%s: want %q, have %v", call, want, err)
		}
	}
	if n := r.count("submitted"); n != 0 {
		t.Errorf("want nothing stored, have %d rows", n)
	}
}

// TestNobodySubmitsToNobody calls the function while no node reads what it stores, in a database that is not the home of an inbox, and
// without the right.
func TestNobodySubmitsToNobody(t *testing.T) {
	t.Parallel()
	r, program := newStoreRig(t, false)
	_, err := program.Exec(r.ctx, "select procaas_submit('a')")
	if why, ok := errors.AsType[*pgconn.PgError](err); !ok || why.Code != "55000" || !strings.Contains(why.Hint, "broker: store") {
		t.Errorf("want that nobody reads, have %v", err)
	}
	r.exec("insert into inbox_cell values ('orders', 'other', 1)")
	_, err = program.Exec(r.ctx, "select procaas_submit('a')")
	if why, ok := errors.AsType[*pgconn.PgError](err); !ok || why.Code != "55000" || !strings.Contains(why.Hint, "first database") {
		t.Errorf("want the database that is the home, have %v", err)
	}
	var public bool
	if err := r.db.QueryRow(r.ctx, "select has_function_privilege('public', 'procaas_submit(text, text, jsonb, text)', 'execute')").Scan(&public); err != nil || public {
		t.Errorf("want that nobody may submit without a grant, have %t (%v)", public, err)
	}
}

// TestSubmittedEventsAreErased removes what is of a key, among more than one look reads.
func TestSubmittedEventsAreErased(t *testing.T) {
	t.Parallel()
	r, program := newStoreRig(t, true)
	if _, err := program.Exec(r.ctx, "select procaas_submit('paid', 'k-' || n % 2) from generate_series(1, 250) n"); err != nil {
		t.Fatal(err)
	}
	of := func(m *broker.Message) bool { return m.Key == "k-1" }
	for _, step := range []struct {
		remove      bool
		found, left int
	}{{false, 125, 250}, {true, 125, 125}, {true, 0, 125}} {
		n, err := outbox.EraseSubmitted(r.ctx, r.dsn, of, step.remove)
		if left := r.count("submitted"); err != nil || n != step.found || left != step.left {
			t.Errorf("want %d found and %d left, have %d and %d (%v)", step.found, step.left, n, left, err)
		}
	}
}
