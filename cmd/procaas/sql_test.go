package main

import (
	"context"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"procaas/engine/clock"
	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/engine/model"
	"procaas/handlers/sql"
)

const chargingFlow = `
databases: [{id: billing, address: "URL"}]
pipelines:
  - id: charge
    shared-state: {id: null}
    stages:
      - id: a
        handlers:
          - id: insert
            sql:
              database: billing
              statement: insert into charges (order_id) values ($1) returning id
              parameters: [!$ event.id]
              expect: one
            retry: {attempts: 0, min-delay: 200ms, max-delay: 200ms, jitter: 0}
            result: {id: !$ sources.insert.response.row.id}
`

var repeatedStatements = regexp.MustCompile(`procaas_sql_statements_total\{database="billing",outcome="repeated"\} (\d+)`)

// TestSQLSurvivesKill9 kills a node three times while its runs insert rows. The answers of a third of their commits are lost, too, so
// the node has to find out at the next attempt, often as another process. Each run has one row, and knows its id.
func TestSQLSurvivesKill9(t *testing.T) {
	t.Parallel()
	ctx, cancel := patience.Context(t.Context(), 2*time.Minute)
	defer cancel()
	database := enginetest.Postgres(t)
	admin, err := pgx.Connect(ctx, database)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = admin.Close(context.WithoutCancel(ctx)) }()
	// Nothing but the key of the call keeps an order from two charges.
	if _, err := admin.PgConn().Exec(ctx, "create table charges (id bigserial primary key, order_id text not null);"+sql.DDL).ReadAll(); err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	proxy, err := enginetest.StartProxy(u.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { proxy.Close() })
	through, err := proxy.Through(database)
	if err != nil {
		t.Fatal(err)
	}
	c := newCrashing(t, "sqlite:"+t.TempDir()+"/sql.db", chargingFlow, through)
	count := func(what string) (n int) {
		if err := admin.QueryRow(ctx, "select count("+what+") from charges").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	const events, kills = 300, 3
	proxy.LoseCommits(1./3, 1)
	server := c.start(ctx)
	runs := c.submitEach(ctx, "charge", events)
	for kill := 1; kill <= kills; kill++ {
		for count("*") < kill*events/(kills+1) {
			if !clock.Pause(ctx, 10*time.Millisecond) {
				t.Fatalf("want more than %d charges", count("*"))
			}
		}
		server.kill()
		server = c.start(ctx)
	}
	ids := map[string]bool{}
	for n, run := range runs {
		id := fmt.Sprint(c.await(ctx, run, model.Succeeded, "").SharedState["id"])
		var order string
		if err := admin.QueryRow(ctx, "select order_id from charges where id = $1::text::bigint", id).Scan(&order); err != nil || order != strconv.Itoa(n) {
			t.Errorf("run of order %d: the charge %s is that of %q (%v)", n, id, order, err)
		}
		ids[id] = true
	}
	if rows, orders := count("*"), count("distinct order_id"); rows != events || orders != events || len(ids) != events {
		t.Errorf("want a charge of each of %d runs, have %d for %d orders, and %d ids in runs", events, rows, orders, len(ids))
	}
	if found := repeatedStatements.FindSubmatch(c.metrics()); found == nil || proxy.Lost() < events/10 {
		t.Errorf("%d answers of commits were lost, and the node that was started last has repeated %q: the test shows nothing", proxy.Lost(), found)
	}
	server.terminate()
}
