package engine_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"procaas/engine"
	"procaas/engine/enginetest"
	"procaas/engine/guard"
	"procaas/engine/model"
	"procaas/engine/steering"
	"procaas/engine/store"
	"procaas/engine/triggers"
)

const ticking = `
pipelines:
  - id: tick
    stages: [{id: a, handlers: [{id: one, step: {}}]}]
triggers:
  - {id: clock, WHEN, event: tick, key: clock, payload: {n: 1}, catch-up: POLICY}
`

func clockOf(when, policy string) string {
	return strings.NewReplacer("WHEN", when, "POLICY", policy).Replace(ticking)
}

// dues returns the due times that were fired, as events tell them.
func (r *rig) dues() []time.Time {
	var out []time.Time
	for _, c := range r.calls.Calls() {
		out = append(out, c.Event.Time)
	}
	return out
}

func TestTriggerFiresOnceForAllNodes(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start(clockOf("every: 10s", "skip"))
		r.start(clockOf("every: 10s", "skip"))
		r.start(clockOf("every: 10s", "skip"))
		began := time.Now()
		pass(95 * time.Second)
		dues := r.dues()
		if len(dues) != 9 {
			t.Errorf("want 9 firings in 95s, have %v", dues)
		}
		for i, due := range dues {
			if !due.Equal(began.Truncate(10 * time.Second).Add(time.Duration(i+1) * 10 * time.Second)) {
				t.Errorf("firing %d was due at %s", i, due)
			}
		}
		ev := r.calls.Calls()[0].Event
		if ev.Source != "procaas/trigger/clock" || ev.Key != "clock" || ev.Payload.(map[string]any)["n"] != 1 {
			t.Errorf("want source, key and payload, have %+v", ev)
		}
	})
}

func TestTriggerCatchesUpByPolicy(t *testing.T) {
	t.Parallel()
	for policy, want := range map[string]int{"skip": 0, "once": 1, "all": 6} {
		for _, when := range []string{"every: 10m", `cron: "*/10 * * * *"`} {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				_, stop := r.start(clockOf(when, policy))
				pass(25 * time.Minute)
				stop()
				before := len(r.dues())
				if before != 2 {
					t.Errorf("%s: want 2 firings, have %d", when, before)
				}
				pass(time.Hour)
				r.start(clockOf(when, policy))
				pass(time.Minute)
				if have := len(r.dues()) - before; have != want {
					t.Errorf("%s, %s: want %d firings made good, have %d", when, policy, want, have)
				}
			})
		}
	}
}

func TestCronCountsInItsTimeZone(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		// The clock begins at midnight in UTC, which is half past five there.
		r.start(clockOf(`cron: "45 5 * * *", time-zone: Asia/Kolkata`, "skip"))
		pass(time.Hour)
		dues := r.dues()
		if len(dues) != 1 || dues[0].UTC().Format("15:04") != "00:15" {
			t.Errorf("want one firing at 00:15 UTC, have %v", dues)
		}
	})
}

func TestTriggerSurvivesTheStore(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		inbox := &outage{Inbox: r.store.Inbox}
		r.store.Inbox = inbox
		r.run(r.engine(r.store, clockOf("every: 10s", "all")))
		pass(15 * time.Second)
		inbox.down.Store(true)
		pass(30 * time.Second)
		inbox.down.Store(false)
		pass(10 * time.Second)
		if n := len(r.dues()); n != 5 {
			t.Errorf("want all 5 firings, have %d", n)
		}
	})
}

// An outage inbox accepts nothing while it is down.
type outage struct {
	store.Inbox
	down atomic.Bool
}

func (o *outage) Accept(ctx context.Context, node int64, runs []model.Intake) ([]store.Accepted, error) {
	if o.down.Load() {
		return nil, context.DeadlineExceeded
	}
	return o.Inbox.Accept(ctx, node, runs)
}

func TestLoadReplacesTriggers(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		e, _ := r.start(clockOf("every: 1h", "skip"))
		if _, err := e.Load(context.Background(), r.bundle(clockOf("every: 1s", "skip")), store.Actor{Name: "ann"}); err != nil {
			t.Fatal(err)
		}
		pass(10500 * time.Millisecond)
		if n := len(r.dues()); n < 9 || n > 11 {
			t.Errorf("want a firing each second, have %d in 10s", n)
		}
	})
}

// A cell of the inbox that is away refuses single events: they are not lost.
type awayInbox struct {
	store.Inbox
	away atomic.Bool
}

func (o *awayInbox) Accept(ctx context.Context, node int64, runs []model.Intake) ([]store.Accepted, error) {
	if !o.away.Load() {
		return o.Inbox.Accept(ctx, node, runs)
	}
	out := make([]store.Accepted, len(runs))
	for i := range out {
		out[i].Err = store.ErrAway
	}
	return out, nil
}

func TestTriggerSurvivesACellThatIsAway(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		inbox := &awayInbox{Inbox: r.store.Inbox}
		r.store.Inbox = inbox
		r.run(r.engine(r.store, clockOf(`cron: "0 * * * *"`, "skip")))
		pass(time.Until(time.Now().Truncate(time.Hour).Add(59 * time.Minute)))
		inbox.away.Store(true)
		pass(2 * time.Minute)
		inbox.away.Store(false)
		pass(10 * time.Second)
		if n := len(r.dues()); n != 1 {
			t.Errorf("want the firing that was due while the cell was away, have %d", n)
		}
	})
}

// A schedule that changes says nothing about the time before it was there.
func TestChangedScheduleDoesNotFireForThePast(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		e, _ := r.start(clockOf(`cron: "0 * * * *"`, "skip"))
		pass(105 * time.Minute)
		if n := len(r.dues()); n != 1 {
			t.Fatalf("want one firing, have %v", r.dues())
		}
		if _, err := e.Load(context.Background(), r.bundle(clockOf(`cron: "30 * * * *"`, "skip")), operator); err != nil {
			t.Fatal(err)
		}
		pass(30 * time.Minute)
		if n := len(r.dues()); n != 1 {
			t.Errorf("want no firing for half past one at a quarter to two, have %v", r.dues())
		}
		pass(30 * time.Minute)
		if n := len(r.dues()); n != 2 {
			t.Errorf("want one at half past two, have %v", r.dues())
		}
	})
}

// A store whose clock was an hour ahead and is set right again.
type jumpyLedger struct {
	store.Ledger
	ahead atomic.Int64
}

func (s *jumpyLedger) Beat(ctx context.Context, node int64, lease time.Duration, bundle string) (store.Beat, error) {
	b, err := s.Ledger.Beat(ctx, node, lease, bundle)
	b.Now = b.Now.Add(time.Duration(s.ahead.Load()))
	return b, err
}

func TestTriggerGoesOnWhenTheClockOfTheStoreIsSetBack(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		ledger := &jumpyLedger{Ledger: r.store.Ledger}
		r.store.Ledger = ledger
		r.run(r.engine(r.store, clockOf("every: 10s", "skip")))
		pass(15 * time.Second)
		ledger.ahead.Store(int64(time.Hour))
		pass(15 * time.Second)
		ledger.ahead.Store(0)
		pass(5 * time.Second)
		before := len(r.dues())
		pass(time.Minute)
		if n := len(r.dues()) - before; n < 5 || n > 6 {
			t.Errorf("want a firing each 10s from then on, have %d in a minute", n)
		}
	})
}

// clocked is a trigger that fires every ten seconds, with a handler that can last.
func clocked(fields string) string {
	return `
pipelines:
  - id: tick
    stages: [{id: a, handlers: [{id: one, step: {}}]}]
triggers:
  - {id: clock, every: 10s, event: tick, ` + fields + `}
`
}

var hold = guard.ControlChange{Mode: guard.ModeHold, Forever: true}

// control sets the control of a trigger's path.
func (r *rig) control(e *engine.Engine, change guard.ControlChange) {
	r.t.Helper()
	if _, err := e.SetControl(r.t.Context(), triggers.Path("clock"), change, -1, operator); err != nil {
		r.t.Fatal(err)
	}
}

// trigger returns the view of the only trigger.
func (r *rig) trigger(e *engine.Engine) triggers.TriggerView {
	r.t.Helper()
	all, err := e.Triggers(r.t.Context(), 10, func([]string) bool { return true })
	if err != nil || len(all) != 1 {
		r.t.Fatalf("want one trigger, have %v, %v", all, err)
	}
	return all[0]
}

func TestPausedTriggerDoesNotFire(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"skip", "once", "all"} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			first, stopFirst := r.start(clocked("key: k, catch-up: " + policy))
			_, stopSecond := r.start(clocked("key: k, catch-up: " + policy))
			pass(25 * time.Second)
			r.control(first, hold)
			pass(2 * time.Second) // until the other node knows
			before := len(r.dues())
			pass(time.Minute)
			v := r.trigger(first)
			if n := len(r.dues()); n != before || v.State != triggers.StatePaused || v.Pause.By != operator.Name || v.Skipped.Paused != 6 {
				t.Errorf("%s: want %d firings and 6 passed over, have %d, and %+v", policy, before, n, v)
			}
			if len(v.Next) != 10 || v.Skip == nil || v.Skip.Reason != triggers.Paused || v.Last == nil || v.Last.Status != model.Succeeded {
				t.Errorf("%s: want ten times, a skip and the last run, have %+v", policy, v)
			}
			// It stays paused over the restart of all nodes, and nobody makes up for it.
			stopFirst()
			stopSecond()
			e, stop := r.start(clocked("key: k, catch-up: " + policy))
			pass(25 * time.Second)
			if n := len(r.dues()); n != before {
				t.Errorf("%s: a restart has fired %d times", policy, n-before)
			}
			r.control(e, guard.ControlChange{Enabled: true})
			pass(10 * time.Second)
			stop()
			e, _ = r.start(clocked("key: k, catch-up: " + policy))
			pass(2 * time.Second)
			if n := len(r.dues()) - before; n != 1 {
				t.Errorf("%s: want one firing after the pause, have %d", policy, n)
			}
			if v := r.trigger(e); v.State != triggers.StateActive || v.Pause != nil {
				t.Errorf("%s: want it active, have %+v", policy, v)
			}
		})
	}
}

// A pause that ends while no node runs is not made up for, and what is due later is.
func TestPauseThatEndsWhileNoNodeRuns(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		e, stop := r.start(clocked("key: k, catch-up: all"))
		pass(15 * time.Second)
		before := len(r.dues())
		change := hold
		change.Forever, change.Until = false, e.Now().Add(time.Minute)
		r.control(e, change)
		pass(30 * time.Second)
		stop()
		pass(time.Minute) // half of it in the pause
		e, _ = r.start(clocked("key: k, catch-up: all"))
		pass(2 * time.Second)
		if n := len(r.dues()) - before; n != 3 {
			t.Errorf("want the three firings after the pause, have %d", n)
		}
		if v := r.trigger(e); v.Skipped.Paused != 6 {
			t.Errorf("want 6 firings passed over in a minute, have %+v", v.Skipped)
		}
	})
}

func TestMissedFiringsAreCounted(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		_, stop := r.start(clocked("key: k"))
		pass(15 * time.Second)
		stop()
		pass(time.Minute)
		r.start(clocked("key: k"))
		e, _ := r.start(clocked("key: k"))
		v := r.trigger(e)
		if v.Skipped.Missed != 6 || v.Skip == nil || v.Skip.Reason != triggers.Missed {
			t.Errorf("want 6 missed firings, have %+v, %+v", v.Skipped, v.Skip)
		}
		pass(10 * time.Second)
		if n := len(r.dues()); n != 2 {
			t.Errorf("want one firing before and one after, have %d", n)
		}
	})
}

// slowly makes the handler last.
func (r *rig) slowly(d time.Duration) {
	r.on("one", func(ctx context.Context, _ *engine.Call, value any) (model.Result, error) {
		select {
		case <-ctx.Done():
			return model.Result{}, ctx.Err()
		case <-time.After(d):
			return model.Result{Response: value}, nil
		}
	})
}

// TestOverlapPolicies fires every ten seconds runs that last 25 s, on two nodes.
func TestOverlapPolicies(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fields string

		runs, ended int // after 95 s
		skipped     int64
		cancelled   int
	}{
		{"overlap: allow", 9, 7, 0, 0},                       // without a key, all at once
		{"key: k, overlap: allow", 9, 3, 0, 0},               // one after another
		{"overlap: skip", 3, 3, 6, 0},                        // 10, 40, 70
		{"key: k, overlap: buffer-one", 5, 3, 4, 0},          // 10, 20, 40, 60, 90
		{"key: k, overlap: cancel-other", 9, 0, 0, 8},        // each but the last is cancelled
		{"key: k, overlap: skip, catch-up: all", 3, 3, 6, 0}, // catch-up is another matter
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			r.slowly(25 * time.Second)
			e, _ := r.start(clocked(c.fields))
			r.start(clocked(c.fields))
			pass(99 * time.Second)
			list, _, err := r.store.Runs.List(t.Context(), store.RunFilter{Limit: 100})
			if err != nil {
				t.Fatal(err)
			}
			ended, cancelled := 0, 0
			for i := range list {
				switch list[i].Status {
				case model.Succeeded:
					ended++
				case model.Cancelled:
					cancelled++
				default:
				}
			}
			v := r.trigger(e)
			if len(list) != c.runs || ended != c.ended || cancelled != c.cancelled || v.Skipped.Running != c.skipped {
				t.Errorf("%s: want %d runs, %d succeeded, %d cancelled, %d skipped; have %d, %d, %d, %d", c.fields, c.runs, c.ended, c.cancelled, c.skipped,
					len(list), ended, cancelled, v.Skipped.Running)
			}
		})
	}
}

// A failed run that blocks its key has not ended for a policy.
func TestOverlapMindsABlockedKey(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.on("one", func(context.Context, *engine.Call, any) (model.Result, error) {
			return model.Result{}, model.Permanent(errors.New("no"))
		})
		e, _ := r.start(`
flows: [{id: f}]
pipelines: [{id: tick, flow: f, stages: [{id: a, handlers: [{id: one, critical: true, step: {}}]}]}]
triggers: [{id: clock, every: 10s, event: tick, key: k, overlap: skip}]
`)
		pass(35 * time.Second)
		v := r.trigger(e)
		if v.Skipped.Running != 2 || v.Last.Status != model.Failed || v.Skip.Run != v.Last.Run {
			t.Errorf("want two firings skipped for the failed run, have %+v, %+v", v, v.Last)
		}
	})
}

func TestRunNowFiresOnce(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		e, _ := r.start(clocked("key: k, payload: {n: 1}"))
		r.control(e, hold)
		first, err := e.RunTrigger(t.Context(), "clock", "mine", operator)
		if err != nil {
			t.Fatal(err)
		}
		pass(3 * time.Second)
		again, err := e.RunTrigger(t.Context(), "clock", "mine", operator)
		if err != nil || !again.Duplicate || again.Run != first.Run {
			t.Errorf("want the first firing again, have %+v, %v", again, err)
		}
		other, err := e.RunTrigger(t.Context(), "clock", "", operator)
		if err != nil || other.Run == first.Run {
			t.Errorf("want another firing, have %+v, %v", other, err)
		}
		pass(time.Second)
		if n := len(r.dues()); n != 2 {
			t.Errorf("want two runs, have %d", n)
		}
		ev := r.calls.Calls()[0].Event
		if ev.Source != triggers.Source("clock") || ev.Payload.(map[string]any)["n"] != 1 || ev.Labels != "fired-by=run-now" {
			t.Errorf("want the event of the trigger, have %+v", ev)
		}
		if v := r.trigger(e); v.Last == nil || v.Last.Run != other.Run || !v.Last.ByHand {
			t.Errorf("want the last firing by hand, have %+v", v.Last)
		}
		_, err = e.RunTrigger(t.Context(), "clok", "", operator)
		if err == nil || !strings.Contains(err.Error(), "did you mean clock?") {
			t.Errorf("want a suggestion, have %v", err)
		}
		list, err := e.Audit(t.Context(), store.AuditFilter{Limit: 10, Kind: store.AuditTrigger})
		if err != nil || len(list) != 2 || list[0].Name != "triggers/clock" {
			t.Errorf("want two records in the audit, have %+v, %v", list, err)
		}
	})
}

func TestBackfillFiresWhatHasNotFired(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		yaml := clocked("key: k")
		e, stop := r.start(yaml)
		began := e.Now().Truncate(10 * time.Second)
		pass(35 * time.Second) // fires three times
		stop()
		pass(time.Minute) // misses six
		e, _ = r.start(yaml)
		pass(time.Second)
		how := steering.Backfill{From: began, To: e.Now(), DryRun: true}
		dry, err := e.BackfillTrigger(t.Context(), "clock", how, operator)
		if err != nil || dry.Fired != 7 || dry.Ran != 3 || len(r.dues()) != 3 {
			t.Errorf("want 7 to fire and 3 that ran, have %+v, %v", dry, err)
		}
		how.DryRun = false
		done, err := e.BackfillTrigger(t.Context(), "clock", how, operator)
		if err != nil || done.Fired != 7 || done.Ran != 3 || done.Next != nil {
			t.Errorf("want 7 fired and 3 that ran, have %+v, %v", done, err)
		}
		pass(time.Second)
		again, err := e.BackfillTrigger(t.Context(), "clock", how, operator)
		if err != nil || again.Fired != 0 || again.Ran != 10 {
			t.Errorf("want nothing fired again, have %+v, %v", again, err)
		}
		seen := map[time.Time]int{}
		for _, due := range r.dues() {
			seen[due]++
		}
		for at := began; at.Before(how.To); at = at.Add(10 * time.Second) {
			if seen[at] != 1 {
				t.Errorf("want one run for %s, have %d", at, seen[at])
			}
		}
	})
}

// A backfill hands in a part at a time, and waits until the runs of the last part have begun.
func TestBackfillIsPaced(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		yaml := clocked("key: k, catch-up: skip")
		r.slowly(time.Second)
		e, _ := r.start(yaml)
		r.control(e, hold)
		pass(time.Hour)
		how := steering.Backfill{From: e.Now().Add(-time.Hour), To: e.Now()}
		fired, calls := 0, 0
		for {
			done, err := e.BackfillTrigger(t.Context(), "clock", how, operator)
			if err != nil {
				t.Fatal(err)
			}
			fired, calls = fired+done.Fired, calls+1
			if done.Next == nil {
				break
			}
			if done.Waits == "" && len(done.Times) != 100 || done.Waits != "" && len(done.Times) != 0 {
				t.Fatalf("want 100 times, or none while a run waits, have %+v", done)
			}
			how.From = *done.Next
			pass(20 * time.Second)
			list, _, err := r.store.Runs.List(t.Context(), store.RunFilter{Status: model.Waiting, Limit: 1000})
			if err != nil || len(list) > 100 {
				t.Fatalf("want at most 100 runs that wait, have %d, %v", len(list), err)
			}
		}
		pass(2 * time.Minute)
		if n := len(r.dues()); fired != 360 || n != 360 || calls < 10 {
			t.Errorf("want 360 firings in several calls, have %d, %d runs in %d", fired, n, calls)
		}
		for i, due := range r.dues() {
			if i > 0 && !due.After(r.dues()[i-1]) {
				t.Fatalf("want the oldest first, have %s after %s", due, r.dues()[i-1])
			}
		}
	})
}

func TestBackfillRefusesWindows(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		e, _ := r.start(clocked("key: k"), func(o *engine.Options) { o.Retention = 24 * time.Hour })
		now := e.Now()
		for want, how := range map[string]steering.Backfill{
			"want a time before to":                       {From: now, To: now},
			"want a time that has passed":                 {From: now, To: now.Add(time.Hour)},
			"more than 10000 due times":                   {From: now.AddDate(0, 0, -2), To: now},
			"360 of 360 due times are before":             {From: now.Add(-30 * time.Hour), To: now.Add(-29 * time.Hour)},
			"720 of 8640 due times are before":            {From: now.Add(-26 * time.Hour), To: now.Add(-2 * time.Hour)},
			"(the retention of pipeline tick is 24h0m0s)": {From: now.Add(-26 * time.Hour), To: now.Add(-2 * time.Hour)},
		} {
			_, err := e.BackfillTrigger(t.Context(), "clock", how, operator)
			var refused *steering.BackfillError
			if !errors.As(err, &refused) || !strings.Contains(err.Error(), want) {
				t.Errorf("want %q, have %v", want, err)
			}
		}
		how := steering.Backfill{From: now.Add(-30 * time.Hour), To: now.Add(-29 * time.Hour), Forgot: true}
		if done, err := e.BackfillTrigger(t.Context(), "clock", how, operator); err != nil || done.Fired != 100 || done.Left != 260 {
			t.Errorf("want a part of it fired, have %+v, %v", done, err)
		}
	})
}

// A pipeline that keeps few runs forgets which due times have fired.
func TestBackfillKnowsWhatKeepForgets(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		e, _ := r.start(strings.Replace(clocked("key: k"), "id: tick", "id: tick\n    keep: 5", 1))
		began := e.Now()
		pass(5 * time.Minute) // the cleaning runs each minute
		fired := len(r.dues())
		how := steering.Backfill{From: began, To: e.Now()}
		_, err := e.BackfillTrigger(t.Context(), "clock", how, operator)
		if err == nil || !strings.Contains(err.Error(), "pipeline tick keeps 5 runs") {
			t.Errorf("want it refused for keep, have %v", err)
		}
		how.From = e.Now().Add(-35 * time.Second)
		done, err := e.BackfillTrigger(t.Context(), "clock", how, operator)
		if err != nil || done.Fired != 0 || done.Ran != 3 && done.Ran != 4 || len(r.dues()) != fired {
			t.Errorf("want the last times known, have %+v, %v", done, err)
		}
	})
}

// The window has the due times of days on which the clocks change.
func TestBackfillOverAChangeOfClocks(t *testing.T) {
	t.Parallel()
	b := enginetest.Load(t, strings.NewReplacer("every: 10s", `cron: "30 2 * * *", time-zone: Europe/Berlin`).Replace(clocked("key: k")), newRig(t).types...)
	for _, c := range []struct {
		day  time.Time
		want []string
	}{
		{time.Date(2026, 3, 28, 0, 0, 0, 0, time.UTC), []string{"2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"}},
		{time.Date(2026, 10, 24, 0, 0, 0, 0, time.UTC), []string{"2026-10-24T00:30:00Z", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"}},
	} {
		due, err := triggers.Window(b.Triggers[0], c.day, c.day.AddDate(0, 0, 3), 10)
		if err != nil {
			t.Fatal(err)
		}
		var have []string
		for _, at := range due {
			have = append(have, at.Format(time.RFC3339))
		}
		if !slices.Equal(have, c.want) {
			t.Errorf("want %v, have %v", c.want, have)
		}
	}
	// The window begins with a due time, and ends before one.
	at := time.Date(2026, 10, 24, 0, 30, 0, 0, time.UTC)
	if due, err := triggers.Window(b.Triggers[0], at, at.AddDate(0, 0, 1), 10); err != nil || len(due) != 1 || !due[0].Equal(at) {
		t.Errorf("want the first time alone, have %v, %v", due, err)
	}
}
