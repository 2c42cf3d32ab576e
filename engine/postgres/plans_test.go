package postgres_test

import (
	"fmt"
	"strings"
	"testing"

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
	s := open(t, enginetest.Postgres(t))
	c, err := s.Pool().Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Release()
	for _, statement := range []string{oneKey, "analyze runs"} {
		if _, err := c.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range postgres.FindNext {
		prepared, err := c.Conn().Prepare(t.Context(), name, text)
		if err != nil {
			t.Fatal(err)
		}
		args := strings.TrimSuffix(strings.Repeat("null, ", len(prepared.ParamOIDs)), ", ")
		rows, err := c.Query(t.Context(), fmt.Sprintf(`explain execute "%s" (%s)`, name, args))
		if err != nil {
			t.Fatal(err)
		}
		var plan strings.Builder
		for rows.Next() {
			var line string
			if err := rows.Scan(&line); err != nil {
				t.Fatal(err)
			}
			fmt.Fprintln(&plan, line)
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(plan.String(), "using runs_key on runs q") {
			t.Errorf("%s: want the key looked up, have\n%s", name, plan.String())
		}
	}
}
