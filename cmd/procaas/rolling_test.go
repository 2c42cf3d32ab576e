package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/engine/sqlstore"
)

var (
	releaseBefore = flag.String("release-before", "", "the program of the release before, for TestRollingUpgrade; without it, the store is "+
		"made newer than this program")
	rollingCalls = flag.Int("rolling-calls", 75, "how many calls of flows each phase of TestRollingUpgrade lasts at least")
)

// TestRollingUpgrade replaces three nodes one by one while events come, and looks at what came of them as TestTorture does. Given the
// program of the release before, its nodes begin, the first one of this release migrates, and nodes are replaced back and forward once
// more. Otherwise the tables become those of a release to come, which only adds to them: this program must go on, and start again.
func TestRollingUpgrade(t *testing.T) {
	t.Parallel()
	seed := drawSeed(t)
	db := enginetest.OwnPostgres(t)
	w := newWorld(t, seed)
	s := &sender{t: t}
	if *releaseBefore == "" {
		s.pause = 100 * time.Millisecond // others need the processors, too; at night nobody does
	}
	for i := range 3 {
		s.nodes = append(s.nodes, newVictim(t, i+1, seed, w, db))
	}
	for _, v := range s.nodes {
		v.binary = *releaseBefore
		v.start(t.Context())
	}

	sending, cancel := context.WithCancel(t.Context())
	var senders sync.WaitGroup
	for i := range 12 {
		senders.Go(func() { s.send(sending, t.Context(), i, rand.New(rand.NewPCG(seed, uint64(i)+100))) })
	}
	// The senders' answers fail while a node is replaced, but never those of all nodes.
	phase := func(name string) {
		t.Helper()
		had, began := len(w.heard()), time.Now()
		patience.Until(t, name+": calls", func() bool { return len(w.heard()) >= had+*rollingCalls })
		calls := w.heard()[had:]
		t.Logf("%s: %d calls in %s, p99 of the time between calls of a run %s", name, len(calls),
			time.Since(began).Round(time.Millisecond), stepsP99(calls).Round(time.Millisecond))
	}
	roll := func(name, binary string) {
		t.Helper()
		for i, v := range s.nodes {
			v.end(syscall.SIGTERM)
			v.binary = binary
			v.start(t.Context())
			phase(fmt.Sprintf("%s, %d of 3 nodes", name, i+1))
		}
	}
	phase("nodes of the release before")
	if *releaseBefore == "" {
		addColumns(t, db.URL)
		phase("tables of the next release")
	}
	roll("forward", "")
	if *releaseBefore != "" {
		roll("back", *releaseBefore)
		roll("forward again", "")
	}
	cancel()
	w.calmDown()
	senders.Wait()

	h := &history{sent: s.sent, runs: settledRuns(t, s.nodes[0].client)}
	for _, v := range s.nodes {
		v.end(syscall.SIGTERM)
		if v.faults["ends without goodbye"] > 0 {
			t.Errorf("node %d did not end well, though nothing was in its way; its log ends with\n%s", v.number, lastOf(v.log.Name()))
		}
		h.lapses = append(h.lapses, v.lapses...)
	}
	h.calls = w.heard()
	t.Logf("%d events, %d calls, %d lapses", len(h.sent), len(h.calls), len(h.lapses))
	failWith(t, h.violations())
}

// addColumns brings tables that a release to come has, and says that programs which know the present version work with them.
func addColumns(t *testing.T, dsn string) {
	t.Helper()
	c, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.WithoutCancel(t.Context()))
	const next = 1_000_000
	var version int64
	if err := c.QueryRow(t.Context(), "select max(version_id) from procaas_schema").Scan(&version); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Exec(t.Context(), sqlstore.SetFloor, "", next, version); err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"runs", "history", "nodes", "leases", "settings", "audit", "tasks"} {
		if _, err := c.Exec(t.Context(), "alter table "+table+" add column next_release bigint not null default 0"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Exec(t.Context(), "insert into procaas_schema (version_id, is_applied) values ($1, true)", next); err != nil {
		t.Fatal(err)
	}
}

// stepsP99 is the 99th percentile of the times between an effect of a run and the beginning of the next call of it.
func stepsP99(calls []heardCall) time.Duration {
	last := map[string]time.Time{}
	var took []time.Duration
	for _, c := range calls {
		if before, ok := last[c.run]; ok && c.start.After(before) {
			took = append(took, c.start.Sub(before))
		}
		if c.answered {
			last[c.run] = c.applied
		}
	}
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return took[len(took)*99/100]
}
