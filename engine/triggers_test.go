package engine_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"procaas/engine"
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

// dues gives the due times that were fired, as events tell them.
func (r *rig) dues() []time.Time {
	var out []time.Time
	for _, c := range r.calls.Calls() {
		out = append(out, c.Event.Time)
	}
	return out
}

func TestTriggerFiresOnceForAllNodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start(clockOf("every: 10s", "skip"))
		r.start(clockOf("every: 10s", "skip"))
		r.start(clockOf("every: 10s", "skip"))
		began := time.Now()
		time.Sleep(95 * time.Second)
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
				time.Sleep(25 * time.Minute)
				stop()
				before := len(r.dues())
				if before != 2 {
					t.Errorf("%s: want 2 firings, have %d", when, before)
				}
				time.Sleep(time.Hour)
				r.start(clockOf(when, policy))
				time.Sleep(time.Minute)
				if have := len(r.dues()) - before; have != want {
					t.Errorf("%s, %s: want %d firings made good, have %d", when, policy, want, have)
				}
			})
		}
	}
}

func TestCronCountsInItsTimeZone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start(clockOf(`cron: "30 8 * * *", time-zone: Asia/Kolkata`, "skip"))
		time.Sleep(24 * time.Hour)
		dues := r.dues()
		if len(dues) != 1 || dues[0].UTC().Format("15:04") != "03:00" {
			t.Errorf("want one firing at 03:00 UTC, have %v", dues)
		}
	})
}

func TestTriggerSurvivesTheStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		store := &outage{Store: r.store}
		r.run(r.engine(store, clockOf("every: 10s", "all")))
		time.Sleep(15 * time.Second)
		store.down.Store(true)
		time.Sleep(30 * time.Second)
		store.down.Store(false)
		time.Sleep(10 * time.Second)
		if n := len(r.dues()); n != 5 {
			t.Errorf("want all 5 firings, have %d", n)
		}
	})
}

// An outage store accepts nothing while it is down.
type outage struct {
	engine.Store
	down atomic.Bool
}

func (o *outage) Accept(ctx context.Context, node int64, runs []engine.Intake) ([]engine.Accepted, error) {
	if o.down.Load() {
		return nil, context.DeadlineExceeded
	}
	return o.Store.Accept(ctx, node, runs)
}

func TestLoadReplacesTriggers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		e, _ := r.start(clockOf("every: 1h", "skip"))
		if _, err := e.Load(context.Background(), r.bundle(clockOf("every: 1s", "skip")), engine.Actor{Name: "ann"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10500 * time.Millisecond)
		if n := len(r.dues()); n < 9 || n > 11 {
			t.Errorf("want a firing each second, have %d in 10s", n)
		}
	})
}
