package engine_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"procaas/engine/model"
	"procaas/engine/store"
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
	bubble(t, func(t *testing.T, r *rig) {
		// The clock begins at midnight in UTC, which is half past five there.
		r.start(clockOf(`cron: "45 5 * * *", time-zone: Asia/Kolkata`, "skip"))
		time.Sleep(time.Hour)
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
		time.Sleep(15 * time.Second)
		inbox.down.Store(true)
		time.Sleep(30 * time.Second)
		inbox.down.Store(false)
		time.Sleep(10 * time.Second)
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
		time.Sleep(10500 * time.Millisecond)
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
		time.Sleep(time.Until(time.Now().Truncate(time.Hour).Add(59 * time.Minute)))
		inbox.away.Store(true)
		time.Sleep(2 * time.Minute)
		inbox.away.Store(false)
		time.Sleep(10 * time.Second)
		if n := len(r.dues()); n != 1 {
			t.Errorf("want the firing that was due while the cell was away, have %d", n)
		}
	})
}

// A schedule that changes says nothing about the time before it was there.
func TestChangedScheduleDoesNotFireForThePast(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		e, _ := r.start(clockOf(`cron: "0 * * * *"`, "skip"))
		time.Sleep(105 * time.Minute)
		if n := len(r.dues()); n != 1 {
			t.Fatalf("want one firing, have %v", r.dues())
		}
		if _, err := e.Load(context.Background(), r.bundle(clockOf(`cron: "30 * * * *"`, "skip")), operator); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Minute)
		if n := len(r.dues()); n != 1 {
			t.Errorf("want no firing for half past one at a quarter to two, have %v", r.dues())
		}
		time.Sleep(30 * time.Minute)
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
		time.Sleep(15 * time.Second)
		ledger.ahead.Store(int64(time.Hour))
		time.Sleep(15 * time.Second)
		ledger.ahead.Store(0)
		time.Sleep(5 * time.Second)
		before := len(r.dues())
		time.Sleep(time.Minute)
		if n := len(r.dues()) - before; n < 5 || n > 6 {
			t.Errorf("want a firing each 10s from then on, have %d in a minute", n)
		}
	})
}
