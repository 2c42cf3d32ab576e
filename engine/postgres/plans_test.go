package postgres_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"procaas/engine/enginetest"
	"procaas/engine/postgres"
)

// oneKey fills the table with the runs of one key, all of them queued.
const oneKey = `insert into runs (accepted, due, deadline, priority, ordered, block, place, id, flow, key, pipeline, event)
	select now(), now(), now(), 0, true, true, 'queued', 'r' || i, 'f', 'k', 'p', '' from generate_series(1, 5000) i`

// When the server last looked, all runs were of one key. The next run of another key is found by
// its key all the same, and not on a walk through all runs in their order.
func TestTheNextRunOfAKeyIsLookedUp(t *testing.T) {
	t.Parallel()
	c := filled(t, oneKey)
	for name, text := range postgres.FindNext {
		prepared, err := c.Prepare(t.Context(), name, text)
		if err != nil {
			t.Fatal(err)
		}
		args := strings.TrimSuffix(strings.Repeat("null, ", len(prepared.ParamOIDs)), ", ")
		plan := planOf(t, c, fmt.Sprintf(`explain execute "%s" (%s)`, name, args))
		if !strings.Contains(plan, "using runs_key on runs q") {
			t.Errorf("%s: want the key looked up, have\n%s", name, plan)
		}
	}
}

// manyKeys fills the table with runs of as many keys, all of them ready.
const manyKeys = `insert into runs (accepted, due, deadline, priority, ordered, block, place, id, flow, key, pipeline, event)
	select now(), now(), now(), 0, true, true, 'ready', 'r' || i, 'f', lpad(i::text, 5, '0'), 'p', '' from generate_series(1, 20000) i`

// A look for the next run of the first key reads the index at this key, and not on to the last one.
func TestTheNextRunOfAKeyIsNotSoughtAmongOtherKeys(t *testing.T) {
	t.Parallel()
	c := filled(t, manyKeys)
	plan := planOf(t, c, "explain (analyze, buffers) select "+postgres.FirstQueued("k")+" from (values ('f', '00001')) as k (flow, key)")
	_, hits, _ := strings.Cut(plan, "shared hit=")
	var pages int
	if _, err := fmt.Sscan(hits, &pages); err != nil || pages > 20 {
		t.Errorf("want at most 20 pages read, have %d (%v)\n%s", pages, err, plan)
	}
}

// filled returns a connection to a store whose table of runs a statement has filled.
func filled(t *testing.T, fill string) *pgx.Conn {
	t.Helper()
	c, err := open(t, enginetest.MigratedPostgres(t)).Pool().Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Release)
	for _, statement := range []string{fill, "analyze runs"} {
		if _, err := c.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	return c.Conn()
}

// planOf returns what an explain says.
func planOf(t *testing.T, c *pgx.Conn, explain string) string {
	t.Helper()
	rows, err := c.Query(t.Context(), explain)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}
