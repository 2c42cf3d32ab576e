package sql_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"procaas/dsl/datum"
	"procaas/dsl/tree"
	"procaas/engine"
	"procaas/engine/enginetest"
	"procaas/engine/model"
	"procaas/engine/secrets"
	"procaas/handlers/sql"
	"procaas/handlers/sql/language"
)

// A node makes calls of the handler type as an engine does, in a database of its own.
type node struct {
	t       *testing.T
	pool    *sql.Pool
	metrics *prometheus.Registry
	dsn     string     // of the database, without a proxy
	admin   *pgx.Conn  // to look into it
	mu      sync.Mutex // guards admin
	bundle  *tree.Bundle
}

const table = "create table charges (id bigint generated always as identity primary key, order_id text unique, amount numeric(10, 2) check (amount > 0))"

func newNode(t *testing.T) *node { return newNodeThrough(t, "", "") }

// newNodeThrough returns a node that reaches its database at another host and port, unless that is empty. More is added to its declaration.
func newNodeThrough(t *testing.T, host, more string) *node {
	t.Helper()
	n := &node{t: t, dsn: enginetest.Postgres(t), metrics: prometheus.NewRegistry()}
	u, err := url.Parse(n.dsn)
	if err != nil {
		t.Fatal(err)
	}
	u.RawQuery = url.Values{"search_path": {u.Query().Get("search_path")}}.Encode()
	if host != "" {
		u.Host = host
	}
	if u.User == nil {
		u.User = url.User("postgres")
	}
	n.bundle = bundle(t, u.String(), more)
	n.pool = sql.NewPool(sql.Options{
		Dial: (&net.Dialer{}).DialContext, Metrics: n.metrics, Log: slog.New(slog.DiscardHandler),
		Secrets: func(secrets.Use) (string, error) { return "", errors.New("there are no secrets") },
	})
	t.Cleanup(n.pool.Close)
	if n.admin, err = pgx.Connect(t.Context(), n.dsn); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.admin.Close(context.WithoutCancel(t.Context())) })
	n.exec(table)
	n.exec(sql.DDL)
	return n
}

func bundle(t *testing.T, address, more string) *tree.Bundle {
	t.Helper()
	return enginetest.LoadIn(t, tree.NewLanguage(language.Section()), fmt.Sprintf(`
databases: [{id: billing, address: %q%s}]
pipelines: [{id: p, stages: [{id: s, handlers: [{id: h, sql: {database: billing, statement: select 1}}]}]}]
`, address, more), sql.Types(nil)...)
}

func (n *node) exec(text string) {
	n.t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, err := n.admin.PgConn().Exec(n.t.Context(), text).ReadAll(); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) count(query string) (found int) {
	n.t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.admin.QueryRow(n.t.Context(), "select count(*) from "+query).Scan(&found); err != nil {
		n.t.Fatal(err)
	}
	return found
}

// call makes an attempt of a call with a key.
func (n *node) call(key string, h sql.SQL) (any, error) {
	made := sql.Types(n.pool)[0].New().(*sql.SQL)
	made.Database, made.Statement, made.Parameters, made.ReadOnly = "billing", h.Statement, h.Parameters, h.ReadOnly
	made.Expect, made.MaxRows, made.MaxResponse, made.Timeout = h.Expect, max(h.MaxRows, 1), h.MaxResponse, h.Timeout
	if made.Timeout == 0 {
		made.Timeout = time.Minute
	}
	result, err := made.Handle(n.t.Context(), &engine.Call{Path: "p/s/h", Run: "r-1", Key: "o-1", IdempotencyKey: key, Bundle: n.bundle})
	return result.Response, engine.Classify(err)
}

func (n *node) read(statement string, parameters ...any) (any, error) {
	return n.call("", sql.SQL{Statement: statement, Parameters: parameters, ReadOnly: true, MaxRows: 1000})
}

var charge = sql.SQL{
	Statement: "insert into charges (order_id, amount) values ($1, $2) returning id, amount", Parameters: []any{"o-1", 12.5}, Expect: "one",
}

// TestStatementIsAppliedOnce repeats a call, also at the same time.
func TestStatementIsAppliedOnce(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	want, err := n.call("k-1", charge)
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(want) != "map[row:map[amount:12.50 id:1] rows-affected:1]" {
		t.Errorf("want the row, have %v", want)
	}
	var calls sync.WaitGroup
	for i := range 40 {
		calls.Go(func() {
			key, h := "k-1", charge
			if i%2 == 1 {
				key, h.Parameters = "k-2", []any{"o-2", 1}
			}
			if have, err := n.call(key, h); err != nil || key == "k-1" && !reflect.DeepEqual(have, want) {
				t.Errorf("%s: want the first response, have %v (%v)", key, have, err)
			}
		})
	}
	calls.Wait()
	if have := n.count("charges"); have != 2 {
		t.Errorf("want a charge for each key, have %d", have)
	}
	if have := n.outcomes(); have["applied"] != 2 || have["repeated"] != 39 {
		t.Errorf("want 2 statements applied and 39 repeated, have %v", have)
	}
}

// outcomes returns the metric by outcome.
func (n *node) outcomes() map[string]float64 {
	n.t.Helper()
	families, err := n.metrics.Gather()
	if err != nil || len(families) != 1 || families[0].GetName() != "procaas_sql_statements_total" {
		n.t.Fatalf("want one metric, have %v (%v)", families, err)
	}
	out := map[string]float64{}
	for _, m := range families[0].GetMetric() {
		for _, l := range m.GetLabel() {
			if l.GetName() == "outcome" {
				out[l.GetValue()] = m.GetCounter().GetValue()
			}
		}
	}
	return out
}

// TestLostAnswerOfTheCommitIsDecidedByTheKey loses the answers of commits, after which nobody knows whether they were made.
func TestLostAnswerOfTheCommitIsDecidedByTheKey(t *testing.T) {
	t.Parallel()
	dsn, err := url.Parse(enginetest.Postgres(t))
	if err != nil {
		t.Fatal(err)
	}
	proxy, err := enginetest.StartProxy(dsn.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { proxy.Close() })
	n := newNodeThrough(t, proxy.Addr(), "")
	const calls = 50
	for i := range calls {
		h := charge
		h.Parameters = []any{fmt.Sprint(i), 1}
		proxy.LoseCommits(1, uint64(i))
		if _, err := n.call(fmt.Sprint(i), h); model.ClassOf(err) != "connection" || model.IsPermanent(err) {
			t.Fatalf("want an error of the connection, have %v", err)
		}
		proxy.LoseCommits(0, 0)
		if have, err := n.call(fmt.Sprint(i), h); err != nil || !strings.Contains(fmt.Sprint(have), "rows-affected:1") {
			t.Fatalf("want the response of the first attempt, have %v (%v)", have, err)
		}
	}
	if have := n.count("charges"); have != calls || proxy.Lost() != calls {
		t.Errorf("want %d charges after as many lost answers, have %d after %d", calls, have, proxy.Lost())
	}
}

// TestValuesOfAllTypes reads what the page says.
func TestValuesOfAllTypes(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.settingsOfTheUser("bytea_output = 'escape'", "datestyle = 'SQL, DMY'", "timezone = 'Asia/Tokyo'", "intervalstyle = 'sql_standard'",
		"standard_conforming_strings = off")
	for _, test := range []struct{ expression, want string }{
		{"null::int", `null`},
		{"true", `true`},
		{"9007199254740993", `9007199254740993`},
		{"3::smallint", `3`},
		{"1.5::float8", `1.5`},
		{"'nan'::float8", `"NaN"`},
		{"12.50::numeric(10,2)", `"12.50"`},
		{"'a'::text", `"a"`},
		{`'{"a": [1, 2.5, null]}'::jsonb`, `{"a":[1,2.5,null]}`},
		{"'[1]'::json", `[1]`},
		{`'\x0001ff'::bytea`, `"AAH/"`},
		{"'2026-01-31 10:30:00.25+01'::timestamptz", `"2026-01-31T09:30:00.25Z"`},
		{"'infinity'::timestamptz", `"infinity"`},
		{"'2026-01-31 10:30'::timestamp", `"2026-01-31T10:30:00"`},
		{"'2026-01-31'::date", `"2026-01-31"`},
		{"'1 day 2 hours'::interval", `"P1DT2H"`},
		{"'7B1F1CFD-3B5A-4D5A-9F5D-3A3B0A5B7C11'::uuid", `"7b1f1cfd-3b5a-4d5a-9f5d-3a3b0a5b7c11"`},
		{"array[1, null, 3]", `[1,null,3]`},
		{`array['a,b', '{"}', null, 'NULL', '', '\']`, `["a,b","{\"}",null,"NULL","","\\"]`},
		{"array[array[true, false], array[null, true]]", `[[true,false],[null,true]]`},
		{"'[0:1]={7,8}'::int[]", `[7,8]`},
		{"'{}'::text[]", `[]`},
		{"array['{\"a\": 1}'::jsonb]", `[{"a":1}]`},
		{"row(1, 'a')", `"(1,a)"`},
	} {
		have, err := n.read("select " + test.expression + " as v")
		text, err2 := datum.FormatJSON(have)
		if want := `{"rows":[{"v":` + test.want + `}],"rows-affected":1}`; err != nil || err2 != nil || string(text) != want {
			t.Errorf("%s: want %s, have %s (%v, %v)", test.expression, want, text, err, err2)
		}
	}
}

// settingsOfTheUser lets the node be a user with settings of its own, which must not matter.
func (n *node) settingsOfTheUser(settings ...string) {
	n.t.Helper()
	role := "settings_" + strings.ToLower(rand.Text())
	n.exec("create role " + role + " superuser login")
	n.t.Cleanup(func() {
		_, err := n.admin.Exec(context.WithoutCancel(n.t.Context()), "drop role "+role)
		if err != nil {
			n.t.Error(err)
		}
	})
	for _, setting := range settings {
		n.exec("alter role " + role + " set " + setting)
	}
	u, err := url.Parse(language.All(n.bundle)[0].Address)
	if err != nil {
		n.t.Fatal(err)
	}
	u.User = url.User(role)
	n.bundle = bundle(n.t, u.String(), "")
}

// TestParametersOfAllTypes sends values, which the server converts.
func TestParametersOfAllTypes(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	for _, test := range []struct {
		expression string
		value      any
		want       string
	}{
		{"$1::int + 1", 41, `42`},
		{"$1::int + 1", "41", `42`},
		{"$1::int + 1", 41.0, `42`},
		{"$1::text", 42, `"42"`},
		{"$1::numeric", "12345678901234567890.10", `"12345678901234567890.10"`},
		{"$1::bool", true, `true`},
		{"$1::text is null", nil, `true`},
		{"$1::text", "'; drop table charges; --", `"'; drop table charges; --"`},
		{"$1::timestamptz", "2026-01-31T09:30:00Z", `"2026-01-31T09:30:00Z"`},
		{"$1::jsonb", map[string]any{"a": []any{1}}, `{"a":[1]}`},
		{"$1::jsonb", []any{1, "b"}, `[1,"b"]`},
		{"$1::text", []any{1}, `"[1]"`},
		{"$1::int[]", []any{1, nil, 3}, `[1,null,3]`},
		{"$1::text[]", []any{`a"b\`, "", "NULL", nil, "c,d"}, `["a\"b\\","","NULL",null,"c,d"]`},
		{"$1::int[]", []any{[]any{1, 2}, []any{3, 4}}, `[[1,2],[3,4]]`},
		{"2 = any($1::bigint[])", []any{1, 2}, `true`},
	} {
		have, err := n.read("select "+test.expression+" as v", test.value)
		text, err2 := datum.FormatJSON(have)
		if want := `{"rows":[{"v":` + test.want + `}],"rows-affected":1}`; err != nil || err2 != nil || string(text) != want {
			t.Errorf("%s of %v: want %s, have %s (%v, %v)", test.expression, test.value, want, text, err, err2)
		}
	}
	if n.count("charges") != 0 {
		t.Error("want no charge")
	}
}

// TestErrorsHaveClasses looks at what retries and rules of on-error know of an error, and that none of the statements takes effect.
func TestErrorsHaveClasses(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.exec("insert into charges (order_id, amount) values ('taken', 1)")
	n.exec(`create function raises(code text) returns int language plpgsql as $$ begin
		insert into charges (order_id, amount) values ('raised', 1); raise exception using errcode = code, message = 'no such luck'; end $$`)
	for _, test := range []struct {
		h               sql.SQL
		class, text     string
		code, permanent bool
	}{
		{h: sql.SQL{Statement: charge.Statement, Parameters: []any{"taken", 1}}, class: "409", text: "charges_order_id_key", code: true},
		{h: sql.SQL{Statement: charge.Statement, Parameters: []any{"a", -1}}, class: "422", text: "charges_amount_check", code: true},
		{h: sql.SQL{Statement: charge.Statement, Parameters: []any{"a", "many"}}, class: "400", text: `"many" (22P02)`, code: true},
		{h: sql.SQL{Statement: "select form charges"}, class: "400", text: `column "form" does not exist (42703)`, code: true},
		{h: sql.SQL{Statement: "select raises('P0001')"}, class: "422", text: "no such luck (P0001)", code: true},
		{h: sql.SQL{Statement: "select raises('40001')"}, class: "503", text: "no such luck", code: true},
		{h: sql.SQL{Statement: "select raises('53200')"}, class: "503", text: "no such luck", code: true},
		{h: sql.SQL{Statement: "select raises('57P01')"}, class: "connection", text: "no such luck"},
		{h: sql.SQL{Statement: "select raises('25006')"}, class: "connection", text: "no such luck"},
		{h: sql.SQL{Statement: "select raises('28000')"}, class: "credentials", text: "no such luck"},
		{h: sql.SQL{Statement: "delete from charges", ReadOnly: true}, class: "400", text: "read-only transaction", code: true},
		{h: sql.SQL{Statement: "update charges set amount = 2 where order_id = 'nobody'", Expect: "one"}, class: "404", text: "has 0 rows, and expect is one"},
		{h: sql.SQL{Statement: "update charges set amount = 2", Expect: "none"}, class: "409", text: "has 1 rows, and expect is none"},
		{h: sql.SQL{Statement: "select generate_series(1, 2) from raises('P0001')", Expect: "some"}, class: "422", text: "no such luck", code: true},
		{h: sql.SQL{Statement: "with a as (insert into charges (order_id, amount) values ('b', 1)) select generate_series(1, 9)", MaxRows: 8},
			class: "other", text: "more than max-rows, 8", permanent: true},
		{h: sql.SQL{Statement: "with a as (insert into charges (order_id, amount) values ('b', 1)) select repeat('a', 2000)", MaxResponse: 1000},
			class: "other", text: "larger than max-response, 1000 bytes", permanent: true},
		{h: sql.SQL{Statement: "select 1 as a, 2 as a"}, class: "other", text: "two columns have the name a", permanent: true},
		{h: sql.SQL{Statement: "select $1", Parameters: []any{"a\x00b"}}, class: "other", text: "$1: it has a character 0", permanent: true},
		{h: sql.SQL{Statement: "select $1"}, class: "other", text: "and 0 values", permanent: true},
		{h: sql.SQL{Statement: "commit"}, class: "other", text: "begins with select", permanent: true},
		{h: sql.SQL{Statement: "call p()"}, class: "400", text: "procedure p() does not exist", code: true},
	} {
		_, err := n.call(fmt.Sprintf("%s %q", test.h.Statement, test.h.Parameters), test.h)
		status, _ := errors.AsType[*model.StatusError](err)
		hasCode := status != nil && status.Body != nil && status.Body.(map[string]any)["code"] != ""
		if model.ClassOf(err) != test.class || model.IsPermanent(err) != test.permanent || hasCode != test.code || !strings.Contains(fmt.Sprint(err), test.text) {
			t.Errorf("%s %v: want the class %s and %q, have %s, permanent %v, code %v: %v", test.h.Statement, test.h.Parameters, test.class, test.text,
				model.ClassOf(err), model.IsPermanent(err), hasCode, err)
		}
		if !strings.HasPrefix(fmt.Sprint(err), "database billing: ") {
			t.Errorf("want the name of the database, have %v", err)
		}
	}
	if charges, keys := n.count("charges"), n.count("procaas_applied"); charges != 1 || keys != 0 {
		t.Errorf("want no effect and no key, have %d charges and %d keys", charges-1, keys)
	}
	if _, err := n.call("after", charge); err != nil {
		t.Errorf("want the connections to work, have %v", err)
	}
}

// TestStatementThatHangs waits for a lock of somebody else. The attempt ends in time, and the server takes the statement back.
func TestStatementThatHangs(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.exec("begin; lock table charges")
	h := charge
	h.Timeout = 100 * time.Millisecond
	if _, err := n.call("k-1", h); model.ClassOf(err) != "timeout" || model.IsPermanent(err) {
		t.Errorf("want a timeout, have %v", err)
	}
	n.exec("commit")
	if _, err := n.call("k-1", charge); err != nil || n.count("charges") != 1 {
		t.Errorf("want one charge by the next attempt, have %d (%v)", n.count("charges"), err)
	}
}

// TestTableOfKeysIsMissing says how to make it. A statement that only reads needs none.
func TestTableOfKeysIsMissing(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.exec("drop table procaas_applied")
	if _, err := n.call("k-1", charge); model.ClassOf(err) != "400" || !strings.Contains(fmt.Sprint(err), "procaas sql ddl") {
		t.Errorf("want the remedy, have %v", err)
	}
	if have, err := n.read("select count(*) from charges"); err != nil || fmt.Sprint(have) != "map[rows:[map[count:0]] rows-affected:1]" {
		t.Errorf("want to read, have %v (%v)", have, err)
	}
	n.exec(sql.DDL)
	if _, err := n.call("k-1", charge); err != nil {
		t.Error(err)
	}
}

// TestOldKeysAreForgotten removes keys that are older than the declaration says, in several batches.
func TestOldKeysAreForgotten(t *testing.T) {
	t.Parallel()
	n := newNodeThrough(t, "", ", keep-keys: 7d")
	n.exec(`insert into procaas_applied (key, applied) select 'old-' || i, now() - interval '8 days' from generate_series(1, 2500) i`)
	n.exec(`insert into procaas_applied (key, applied) select 'new-' || i, now() - interval '6 days' from generate_series(1, 10) i`)
	n.pool.ForgetOld(t.Context())
	if have := n.count("procaas_applied"); have != 2510 {
		t.Errorf("want a node that has written no key to leave them, have %d", have)
	}
	if _, err := n.call("k-1", charge); err != nil {
		t.Fatal(err)
	}
	n.pool.ForgetOld(t.Context())
	if have := n.count("procaas_applied"); have != 11 {
		t.Errorf("want the ten young keys and that of the call, have %d", have)
	}
}

// TestDatabaseThatIsAway is one that no server answers for, then one that is not allowed, then one that is there again.
func TestDatabaseThatIsAway(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := l.Addr().String()
	l.Close()
	n := newNodeThrough(t, nobody, "")
	if _, err := n.call("k-1", charge); model.ClassOf(err) != "connection" || model.IsPermanent(err) {
		t.Errorf("want an error of the connection, have %v", err)
	}
	if want := "database billing: dial tcp " + nobody + ": connect: connection refused"; fmt.Sprint(n.pool.Degraded()) != want {
		t.Errorf("want %q among what does not work, have %v", want, n.pool.Degraded())
	}
	u, err := url.Parse(n.dsn)
	if err != nil {
		t.Fatal(err)
	}
	n.bundle = bundle(t, "postgres://nobody@"+u.Host+"/no-such-database", "")
	if _, err := n.call("k-1", charge); model.ClassOf(err) != "credentials" || model.IsPermanent(err) {
		t.Errorf("want an error of the credentials, have %v", err)
	}
	n.pool.Keep(n.bundle)
	if err := n.pool.Degraded(); err == nil || strings.Contains(err.Error(), nobody) {
		t.Errorf("want only the newest declaration among what does not work, have %v", err)
	}
}

// TestParametersAreThoseOfPostgreSQL compares what is said of a statement with what a server says.
func TestParametersAreThoseOfPostgreSQL(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	for _, text := range []string{
		"select 1", "select 1;", "select 1; -- end\n /* of it */", "SELECT $1::int", "(select $1::int) union (select $2::int)",
		"select '$1', $1::text", `select "a$1" from (select 1 as "a$1") x`, "select 'it''s $2', $1::int", `select e'\'$2', $1::int`, `select 'a\', $1::int`,
		"select $$ $2 $$, $1::int", "select $x$ $$ $2 $x$, $1::int", "select a$1 from (select 1 as a$1) x", "select /* $3 /* $4 */ */ $2::int, $1::int -- $5",
		"values ($1::int, $2::text)", "with x as (select $1::int as a) select a from x", "select 1 as é, $1::int as é2", "select 1.5e3, $1::int",
		"select b'101', x'1f', n'$9', u&'$8', $1::int", "select $1::int as name'", "select 1; select 2", "select 'a", "select /* a", "select $$ a", "", " ; ",
		"select $0", "select $1::int, $3::int", `select "`, "select E'\\", "select $a", "select 1 = any($1::int[])", "select '{\"a\": 1}'::jsonb ? $1",
	} {
		s, err := language.ParseStatement(text)
		described, refused := n.admin.PgConn().Prepare(t.Context(), "", text, nil)
		if (err != nil) != (refused != nil || text == "" || text == " ; ") {
			t.Errorf("%s: have %v, and the server says %v", text, err, refused)
		} else if err == nil && s.Parameters != len(described.ParamOIDs) {
			t.Errorf("%s: have %d parameters, and the server has %d", text, s.Parameters, len(described.ParamOIDs))
		}
	}
}

// FuzzParseStatement looks for texts that do not end, and for statements that are said to be single ones and have several verbs.
func FuzzParseStatement(f *testing.F) {
	for _, text := range []string{"select $1", "select 'a''b' -- c\n", "with x as ($a$b$a$) /* /* */ */ select \"c\"", "e'\\''", "$"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := language.ParseStatement(text)
		if err == nil && (s.Verb == "" || s.Parameters < 0) {
			t.Errorf("%q: have %+v", text, s)
		}
		again, failed := language.ParseStatement("/* a */ " + text)
		if (err == nil) != (failed == nil) || err == nil && again != s {
			t.Errorf("%q: have %+v (%v), and %+v (%v) behind a comment", text, s, err, again, failed)
		}
	})
}
