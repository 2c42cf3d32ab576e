package main

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"procaas/cmd/procaas/internal/serve"
	"procaas/engine/api/cli"
	"procaas/engine/api/client"
	"procaas/engine/api/wire"
	"procaas/engine/checkpoint"
	"procaas/engine/clock"
	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/engine/model"
	"procaas/engine/store"
	"procaas/engine/triggers"
)

// nightShift fires at times that the clocks of Berlin skip or repeat, too.
const nightShift = `
pipelines:
  - id: shift
    stages: [{id: a, handlers: [{id: b, wait: {for: 1ms}}]}]
triggers:
  - {id: night, cron: "*/10 1-3 * * *", time-zone: Europe/Berlin, event: shift}
  - {id: tick, every: 200ms, event: shift, catch-up: all}
`

// backfilled lists the runs of backfills.
func backfilled(ctx context.Context, t *testing.T, c *client.Client) (all []checkpoint.RunView) {
	t.Helper()
	f := store.RunFilter{Labels: triggers.FiredBy + "=" + triggers.ByBackfill, Limit: 1000}
	for {
		page, err := c.Runs(ctx, f)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, page.Items...)
		if page.Next == nil {
			return all
		}
		f.Cursor = *page.Next
	}
}

// TestBackfillSurvivesKill9 kills the only node in the middle of a backfill, and repeats the command. Each due time has one run, also on
// the day on which the clocks of Berlin go forward from 2 to 3.
func TestBackfillSurvivesKill9(t *testing.T) {
	t.Parallel()
	ctx, cancel := patience.Context(t.Context(), 2*time.Minute)
	defer cancel()
	const command = "triggers backfill night --from 2026-03-20T00:00:00Z --to 2026-04-09T22:00:00Z --forgotten --reason late"
	const days, daily, skipped = 21, 18, 6 // from 02:00 to 02:50 on March 29, which fire with 03:00
	node := newCrashing(t, enginetest.MigratedPostgres(t), nightShift, "")
	first := node.start(ctx)
	run := func() (int, string) {
		var out bytes.Buffer
		code := Main(ctx, append(strings.Fields(command), "--server", "http://"+node.listen), cli.Streams{In: strings.NewReader(""), Out: &out, Err: &out})
		return code, out.String()
	}
	ended := make(chan string, 1)
	go func() {
		_, said := run()
		ended <- said
	}()
	for len(backfilled(ctx, t, node.client)) < 50 {
		if !clock.Pause(ctx, 5*time.Millisecond) {
			t.Fatal("the backfill does not begin")
		}
	}
	first.kill()
	t.Logf("the command says after the kill: %s", <-ended)

	second := node.start(ctx)
	if code, said := run(); code != cli.ExitFine || !strings.Contains(said, " fired, ") {
		t.Fatalf("want the rest fired, have %d: %s", code, said)
	}
	code, said := run()
	if code != cli.ExitFine || !strings.Contains(said, "night: 0 fired, 372 already ran") {
		t.Errorf("want nothing fired again, have %d: %s", code, said)
	}
	due := map[string]int{}
	byDay := map[string]int{}
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range backfilled(ctx, t, node.client) {
		due[r.Event.ID]++
		byDay[r.Event.Time.In(zone).Format(time.DateOnly)]++
		if at, ok := triggers.DueAt(r.Event.ID); !ok || !at.Equal(r.Event.Time) {
			t.Errorf("want the due time as id and time of the event, have %s and %s", r.Event.ID, r.Event.Time)
		}
	}
	for id, runs := range due {
		if runs != 1 {
			t.Errorf("due time %s has %d runs", id, runs)
		}
	}
	if len(due) != days*daily-skipped || len(byDay) != days || byDay["2026-03-29"] != daily-skipped || byDay["2026-03-28"] != daily {
		t.Errorf("want %d due times on %d days, have %d: %v", days*daily-skipped, days, len(due), byDay)
	}
	second.terminate()
}

// TestPauseHoldsOnAllNodesAndSurvivesKill9 pauses a trigger that fires each 200 ms on two nodes, kills both, and resumes it.
func TestPauseHoldsOnAllNodesAndSurvivesKill9(t *testing.T) {
	t.Parallel()
	ctx, cancel := patience.Context(t.Context(), 2*time.Minute)
	defer cancel()
	a := newCrashing(t, enginetest.MigratedPostgres(t), nightShift, "")
	b := newCrashing(t, a.store, nightShift, "")
	first, second := a.start(ctx), b.start(ctx)
	tick := func(c *client.Client) triggers.TriggerView {
		all, err := c.Triggers(ctx, 10)
		if err != nil || len(all) != 2 {
			return triggers.TriggerView{}
		}
		return all[1]
	}
	fires := func(c *client.Client) {
		t.Helper()
		eventually(t, "the trigger fires", func() bool { v := tick(c); return v.Last != nil && v.Last.Run != "" })
	}
	// still waits until ten due times have passed without a firing, and returns the last firing.
	still := func(c *client.Client) (last time.Time) {
		t.Helper()
		var passed int64
		eventually(t, "the trigger is still", func() bool {
			v := tick(c)
			if v.Last == nil {
				return false
			}
			if !v.Last.Time.Equal(last) {
				last, passed = v.Last.Time, v.Skipped.Paused
			}
			return v.State == triggers.StatePaused && v.Skipped.Paused >= passed+10
		})
		return last
	}
	fires(a.client)
	var out bytes.Buffer
	code := Main(ctx, strings.Fields("triggers pause tick --forever --reason moving --server http://"+a.listen), cli.Streams{In: strings.NewReader(""), Out: &out, Err: &out})
	if code != cli.ExitFine || !strings.Contains(out.String(), "triggers/tick: paused") {
		t.Fatalf("want it paused, have %d: %s", code, &out)
	}
	before := still(b.client)
	if v := tick(b.client); v.Pause == nil || v.Pause.Reason != "moving" || v.Pause.Until != nil {
		t.Errorf("want the reason on the other node, have %+v", v.Pause)
	}
	first.kill()
	second.kill()
	first, second = a.start(ctx), b.start(ctx)
	if after := still(a.client); !after.Equal(before) {
		t.Errorf("want the last firing at %s, have %s", before, after)
	}
	resumed := time.Now()
	code = Main(ctx, strings.Fields("triggers resume tick --server http://"+b.listen), cli.Streams{In: strings.NewReader(""), Out: &out, Err: &out})
	if code != cli.ExitFine {
		t.Fatalf("want it resumed, have %d: %s", code, &out)
	}
	eventually(t, "the trigger fires again", func() bool { v := tick(a.client); return v.Last != nil && v.Last.Time.After(before) })
	// catch-up: all makes up for no due time of the pause, also after a restart.
	first.kill()
	second.kill()
	first = a.start(ctx)
	fires(a.client)
	page, err := a.client.Runs(ctx, store.RunFilter{Pipeline: "shift", Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range page.Items {
		if at := r.Event.Time; at.After(before) && at.Before(resumed.Add(-time.Second)) {
			t.Errorf("the trigger has fired for %s, in the pause from %s to %s", at, before, resumed)
		}
	}
	first.terminate()
}

// TestTriggersForOperators steers triggers as operators do.
func TestTriggersForOperators(t *testing.T) {
	t.Parallel()
	ctx, cancel := patience.Context(t.Context(), time.Minute)
	defer cancel()
	o := &operated{t: t, dir: t.TempDir()}
	o.write(`
flows: [{id: books}]
pipelines:
  - {id: close-ledger, flow: books, stages: [{id: a, handlers: [{id: b, wait: {for: 1ms}}]}]}
  - {id: other, stages: [{id: a, handlers: [{id: b, wait: {for: 1h}}]}]}
triggers:
  - {id: close-ledger, cron: "30 4 * * *", time-zone: Europe/Paris, event: close-ledger, key: main, overlap: buffer-one}
  - {id: hourly, every: 1h, event: other, overlap: skip}
`)
	o.server = startNode(t, "sqlite:"+filepath.Join(t.TempDir(), "o.db"), o.dir, func(f *serve.Flags) { f.Retention = 7 * 24 * time.Hour })
	o.client = client.New(o.server, "")
	command := func(line string, exit int, want ...string) {
		t.Helper()
		var out bytes.Buffer
		code := Main(ctx, append(strings.Fields(line), "--server", o.server), cli.Streams{In: strings.NewReader(""), Out: &out, Err: &out})
		if code != exit {
			t.Errorf("procaas %s: want exit code %d, have %d", line, exit, code)
		}
		for _, w := range want {
			if !strings.Contains(out.String(), w) {
				t.Errorf("procaas %s: want %q, have\n%s", line, w, &out)
			}
		}
	}
	command("triggers list --next 3", cli.ExitFine, "close-ledger  30 4 * * * Europe/Paris  close-ledger  buffer-one  active  -", "close-ledger: next at ", "hourly", "every 1h0m0s")
	command("triggers list --next 101", cli.ExitUsage, "want a number from 0 to 100")
	command("triggers run-now close-ledger --id mine --wait 30s --reason tried", cli.ExitFine, "close-ledger: fired, run", "succeeded")
	command("triggers run-now close-ledger --id mine", cli.ExitFine, "had fired already with this id")
	command("triggers list", cli.ExitFine, ", by hand", "succeeded")
	command("triggers run-now hourly --wait 1ms", cli.ExitBroken, "has not ended within 1ms")
	command("triggers run-now close-ledgr", cli.ExitUsage, "there is no trigger close-ledgr; did you mean close-ledger?")
	command("triggers pause close-ledgr", cli.ExitUsage, "there is no trigger close-ledgr; did you mean triggers/close-ledger?")
	command("triggers pause a/b", cli.ExitUsage, "want the id of a trigger")
	command("triggers pause close-ledger --for 2h --dry-run", cli.ExitFine, "triggers/close-ledger: would be paused until")
	command("triggers pause close-ledger --for 2h --reason moving", cli.ExitFine, "triggers/close-ledger: paused until", "procaas triggers backfill close-ledger makes up for that")
	command("triggers list", cli.ExitFine, "paused", "by anonymous: moving")
	command("switch list", cli.ExitFine, "triggers/close-ledger  hold until")
	command("triggers run-now close-ledger --wait 30s", cli.ExitFine, "fired, run")
	command("triggers resume close-ledger", cli.ExitFine, "triggers/close-ledger: active", "it fires when it is due next")
	command("triggers resume close-ledger", cli.ExitFine, "nothing is set")
	command("audit --kind trigger", cli.ExitFine, "triggers/close-ledger", "tried", "fired by hand")
	command("audit --kind control", cli.ExitFine, "triggers/close-ledger", "moving")
	command("triggers backfill close-ledger", cli.ExitUsage, "backfill needs --from")
	command("triggers backfill close-ledger --from yesterday", cli.ExitUsage, "want a time such as")
	const week = "triggers backfill close-ledger --from 2026-01-05T00:00:00Z --to 2026-01-12T00:00:00Z"
	command(week, cli.ExitUsage, "7 of 7 due times are before", "--forgotten")
	command(week+" --dry-run", cli.ExitFine, "2026-01-05T04:30:00+01:00", "2026-01-11T04:30:00+01:00", "close-ledger: 7 would fire, 0 already ran")
	command(week+" --forgotten", cli.ExitFine, "close-ledger: 7 fired, 0 already ran")
	command(week+" --forgotten --format json", cli.ExitFine, `"fired": 0`, `"ran": 7`)
	command("triggers backfill hourly --from 2020-01-01T00:00:00Z", cli.ExitUsage, "more than 10000 due times", "want a shorter one, such as up to 2021-02-20T16:00:00Z")

	// A token that is bound to a pipeline steers the triggers that run it, and sees no others.
	admin, err := o.client.NewToken(ctx, wire.NewToken{Name: "ann", Role: "admin", Forever: true})
	if err != nil {
		t.Fatal(err)
	}
	bound, err := client.New(o.server, admin.Secret).NewToken(ctx, wire.NewToken{Name: "clerk", Role: "operator", Paths: []string{"close-ledger"}})
	if err != nil {
		t.Fatal(err)
	}
	command("triggers list --token "+bound.Secret, cli.ExitFine, "close-ledger")
	all, err := client.New(o.server, bound.Secret).Triggers(ctx, 1)
	if err != nil || len(all) != 1 || all[0].ID != "close-ledger" {
		t.Errorf("want its trigger alone, have %+v, %v", all, err)
	}
	for range 2 { // the second time, its own control is there already
		command("triggers pause close-ledger --token "+bound.Secret, cli.ExitFine, "paused until")
	}
	command("triggers resume close-ledger --token "+bound.Secret, cli.ExitFine, "active")
	command("triggers run-now close-ledger --wait 30s --token "+bound.Secret, cli.ExitFine, "succeeded")
	command("triggers pause hourly --token "+bound.Secret, cli.ExitFindings, "needs one that holds for")
	command("triggers run-now hourly --token "+bound.Secret, cli.ExitFindings, "needs one that holds for")
	command("triggers backfill hourly --from 3h --token "+bound.Secret, cli.ExitFindings, "needs one that holds for")
	if got, err := client.New(o.server, admin.Secret).Runs(ctx, store.RunFilter{Pipeline: "other", Status: model.Parked, Limit: 10}); err != nil || len(got.Items) != 1 {
		t.Errorf("want the one run of the firing by hand, have %d, %v", len(got.Items), err)
	}
}
