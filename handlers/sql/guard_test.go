package sql_test

import (
	"fmt"
	"net/url"
	"testing"
	"time"

	"procaas/dsl/tree"
	"procaas/engine"
	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/engine/guard"
	"procaas/engine/intake"
	"procaas/engine/memory"
	"procaas/engine/model"
	"procaas/engine/store"
	"procaas/handlers/sql"
	"procaas/handlers/sql/language"
)

const sleeping = `
databases: [{id: billing, address: %q, max-connections: 2, timeout: 1s}]
pipelines:
  - id: charge
    stages:
      - id: a
        handlers:
          - id: insert
            sql: {database: billing, statement: "insert into charges (order_id, amount) select $1, 1 from pg_sleep(0.03)", parameters: [!$ event.id]}
            retry: {attempts: 11, min-delay: 20ms, max-delay: 20ms, jitter: 0}
`

// TestDatabaseIsProtectedAsAService runs more statements than there are connections, for longer than an attempt may take. None of them
// waits inside of its attempt. Then the database is away for longer than all attempts of a run, and no run fails.
func TestDatabaseIsProtectedAsAService(t *testing.T) {
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
	o := engine.DefaultOptions()
	o.Store, o.Types, o.Drain = memory.New(nil).Ports(), sql.Types(n.pool), time.Millisecond
	o.Bundle = enginetest.LoadIn(t, tree.NewLanguage(language.Section()), fmt.Sprintf(sleeping, language.All(n.bundle)[0].Address), o.Types...)
	e := enginetest.Start(t, o)
	sent := 0
	submit := func(events int) {
		for range events {
			sent++
			if _, err := e.Submit(t.Context(), []intake.Submission{{Event: model.Event{Type: "charge", ID: fmt.Sprint(sent)}}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	ended := func(status model.Status) int {
		p, err := e.Preview(t.Context(), store.RunFilter{Status: status})
		if err != nil {
			t.Fatal(err)
		}
		return p.Total
	}
	all := func() bool {
		if failed := ended(model.Failed); failed > 0 {
			t.Fatalf("want no run to fail, have %d of %d; %+v", failed, sent, e.Services())
		}
		return ended(model.Succeeded) == sent
	}
	submit(100)
	patience.Until(t, "all runs of the burst", all)
	if services := e.Services(); len(services) != 1 || services[0].ID != "billing" || services[0].State() != guard.ServiceUp || !services[0].Critical {
		t.Errorf("want the database among what handlers call, have %+v", services)
	}
	proxy.Refuse(time.Hour)
	submit(20)
	patience.Until(t, "the database to be down", func() bool { return e.Services()[0].State() == guard.ServiceDown })
	submit(20)
	proxy.Refuse(0)
	patience.Until(t, "all runs after the outage", all)
	if have := n.count("charges"); have != sent {
		t.Errorf("want %d charges, have %d", sent, have)
	}
}
