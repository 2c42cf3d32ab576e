package engine_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	"procaas/cmd/procaas/addons"
	"procaas/engine"
	"procaas/engine/guard"
	"procaas/engine/intake"
	"procaas/engine/model"
	"procaas/engine/stats"
	"procaas/engine/store"
)

const controlled = `
pipelines:
  - id: work
    stages:
      - id: a
        handlers: [{id: one, step: {}}]
      - id: b
        handlers:
          - {id: two, critical: false, step: {}}
          - {id: three, critical: false, step: {}}
`

var operator = store.Actor{Name: "ann", Reason: "incident 7"}

// set sets a control that must be taken.
func (r *rig) set(e *engine.Engine, path string, c guard.ControlChange) guard.ControlView {
	r.t.Helper()
	v, err := e.SetControl(context.Background(), path, c, -1, operator)
	if err != nil {
		r.t.Fatal(err)
	}
	return v
}

func (r *rig) remove(e *engine.Engine, path string) {
	r.t.Helper()
	if _, err := e.RemoveControl(context.Background(), path, -1, operator); err != nil {
		r.t.Fatal(err)
	}
}

// count counts the calls of a handler since it was asked last.
func (r *rig) count(path string) int {
	n := 0
	for _, have := range r.paths() {
		if have == path {
			n++
		}
	}
	return n
}

// load submits events at a steady pace to engines in turn, until stop.
func (r *rig) load(every time.Duration, engines ...*engine.Engine) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			if _, err := engines[i%len(engines)].Submit(ctx, []intake.Submission{{Event: event("work", "")}}); err != nil && ctx.Err() == nil {
				r.t.Error(err)
			}
			time.Sleep(every)
		}
	})
	stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	r.t.Cleanup(stop)
	return stop
}

func TestSwitchHoldsOnAllNodesWithinASecondAndAfterARestart(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		first, _ := r.start(controlled)
		second, stopSecond := r.start(controlled)
		stop := r.load(14*time.Millisecond, first, second)
		pass(time.Second)
		if r.count("work/b/two") == 0 {
			t.Fatal("want calls before the switch")
		}
		for i := range 10 {
			v := r.set(first, "work/b/two", guard.ControlChange{})
			if v.Mode != guard.ModeSkip || v.Until == nil || time.Until(*v.Until).Round(time.Minute) != time.Hour {
				t.Fatalf("want a switch that is off for an hour, have %+v", v)
			}
			pass(time.Second)
			before, others := r.count("work/b/two"), r.count("work/b/three")
			pass(time.Duration(i+1) * 26 * time.Millisecond)
			if after := r.count("work/b/two"); after != before {
				t.Fatalf("toggle %d: want no call after a second, have %d", i, after-before)
			}
			if r.count("work/b/three") == others && i > 2 {
				t.Fatal("want the others to go on")
			}
			r.remove(second, "work/b/two")
			pass(time.Second)
			if r.count("work/b/two") == before {
				t.Fatalf("toggle %d: want calls again a second after the switch is on", i)
			}
		}
		stop()
		r.set(first, "work/b/two", guard.ControlChange{Forever: true})
		stopSecond()
		third, _ := r.start(controlled)
		before := r.count("work/b/two")
		run := r.submit(third, event("work", ""))
		v := r.settle(third, run, model.Succeeded)
		if r.count("work/b/two") != before {
			t.Error("want the switch to survive a restart")
		}
		if h := v.Handlers[1]; h.Outcome != model.OutcomeSkipped || h.Reason != "switched off at work/b/two by ann: incident 7" {
			t.Errorf("want the reason with who and why, have %+v", h)
		}
	})
}

func TestSwitchEndsByItself(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		e, _ := r.start(controlled)
		r.set(e, "work/b", guard.ControlChange{Until: time.Now().Add(time.Minute), RateLimit: "100/s"})
		r.settle(e, r.submit(e, event("work", "")), model.Succeeded)
		r.want("work/a/one")
		pass(time.Minute)
		r.settle(e, r.submit(e, event("work", "")), model.Succeeded)
		if r.count("work/b/two") != 1 || r.count("work/b/three") != 1 {
			t.Errorf("want both handlers again, have %v", r.paths())
		}
		list, err := e.Controls(context.Background())
		if err != nil || len(list) != 1 || list[0].Expired || list[0].RateLimit != "100/s" {
			t.Errorf("want the limit to outlive the switch, have %+v, %v", list, err)
		}
	})
}

func TestHoldParksRunsAndLiftingItWakesThemInOrder(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		first, _ := r.start(three)
		second, _ := r.start(three)
		r.set(first, "work/b", guard.ControlChange{Mode: guard.ModeHold, Forever: true}) // critical, and no force
		pass(time.Second)
		var runs []string
		for i := range 40 {
			runs = append(runs, r.submit([]*engine.Engine{first, second}[i%2], event("work", fmt.Sprint("k", i%4))))
		}
		for _, run := range runs[:4] {
			v := r.settle(first, run, model.Parked)
			if h := v.Handlers[len(v.Handlers)-1]; h.Reason != "held at work/b by ann: incident 7" {
				t.Fatalf("want the reason of the hold, have %+v", h)
			}
		}
		pass(3 * time.Hour)
		if r.count("work/b/two") != 0 {
			t.Fatalf("want no call while it is held, have %v", r.paths())
		}
		r.remove(second, "work/b")
		pass(time.Second)
		if n := r.count("work/b/two"); n < 4 {
			t.Errorf("want all parked runs to go on within a second, have %d", n)
		}
		for _, run := range runs {
			r.settle(first, run, model.Succeeded)
		}
		last := map[string]int{}
		for _, c := range r.calls.Calls() {
			if c.Path != "work/b/two" {
				continue
			}
			at := slices.Index(runs, c.Run)
			if at < last[c.Key] {
				t.Errorf("run %d of key %s overtook an earlier one", at, c.Key)
			}
			last[c.Key] = at
		}
	})
}

// Runs of an older definition obey a control whose path the present one does not have. Whoever lifts it lets them go on.
func TestAHoldOfAPathThatIsGoneCanBeLifted(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		ctx := context.Background()
		e, _ := r.start(three)
		r.set(e, "work/b", guard.ControlChange{Mode: guard.ModeHold, Forever: true})
		pass(time.Second)
		run := r.submit(e, event("work", "k"))
		r.settle(e, run, model.Parked)
		if _, err := e.Load(ctx, r.bundle(strings.Replace(three, "id: work", "id: other", 1)), operator); err != nil {
			t.Fatal(err)
		}
		if _, err := e.SetControl(ctx, "work/c", guard.ControlChange{Enabled: true}, -1, operator); err == nil {
			t.Error("want a path that has neither steps nor a control refused")
		}
		if _, err := e.SetControl(ctx, "work/b", guard.ControlChange{Mode: guard.ModeHold, Forever: true}, -1, operator); err == nil {
			t.Error("want no new control of a path that is gone")
		}
		r.set(e, "work/b", guard.ControlChange{Enabled: true})
		r.settle(e, run, model.Succeeded)
	})
}

func TestHeldHandlerGoesOnWhileAnotherOneIsUnderWay(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		open := make(gate)
		r.on("two", open.do)
		e, _ := r.start(controlled)
		r.set(e, "work/b/three", guard.ControlChange{Mode: guard.ModeHold})
		run := r.submit(e, event("work", ""))
		pass(10 * time.Second)
		r.want("work/a/one", "work/b/two")
		r.remove(e, "work/b/three")
		pass(time.Second)
		r.want("work/a/one", "work/b/two", "work/b/three")
		close(open)
		r.settle(e, run, model.Succeeded)
	})
}

// Colleagues who limit what somebody else has switched off leave that one's name and reason on the switch.
func TestEachPartOfAControlKeepsWhoSetIt(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		first, _ := r.start(controlled)
		second, _ := r.start(controlled)
		off := r.set(first, "work/b/two", guard.ControlChange{})
		bob := store.Actor{Name: "bob", Reason: "load"}
		both := guard.ControlChange{Until: *off.Until, RateLimit: "2/s"}
		v, err := second.SetControl(t.Context(), "work/b/two", both, off.Revision, bob)
		if err != nil {
			t.Fatal(err)
		}
		r.checkSetters(first, v, "limit: bob (load); switch: ann (incident 7)")
		v = r.set(first, "work/b/two", both) // again: ann means all of it
		r.checkSetters(second, v, "limit: ann (incident 7); switch: ann (incident 7)")
		if v, err = second.SetControl(t.Context(), "work/b/two", guard.ControlChange{Enabled: true, RateLimit: "3/s"}, -1, bob); err != nil {
			t.Fatal(err)
		}
		r.checkSetters(first, v, "limit: bob (load)")
	})
}

// checkSetters compares who set the parts of a control, as it was answered and as a node lists it.
func (r *rig) checkSetters(e *engine.Engine, answered guard.ControlView, want string) {
	r.t.Helper()
	listed, err := e.Controls(context.Background())
	if err != nil {
		r.t.Fatal(err)
	}
	for _, v := range append(listed, answered) {
		var have []string
		for _, part := range slices.Sorted(maps.Keys(v.Setters)) {
			have = append(have, fmt.Sprintf("%s: %s (%s)", part, v.Setters[part].By, v.Setters[part].Reason))
		}
		if text := strings.Join(have, "; "); text != want {
			r.t.Errorf("want %s, have %s", want, text)
		}
	}
}

func TestControlsAreRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.language = addons.Language()
	e := r.engine(r.store, controlled+"  - {id: push, queue: {priority: 5}}\n")
	low, high := -1.0, 5.0
	for _, c := range []struct {
		path   string
		change guard.ControlChange
		code   string
		says   string
	}{
		{"work/b/tow", guard.ControlChange{}, "unknown_control_path", "did you mean work/b/two?"},
		{"work/a/one", guard.ControlChange{}, "critical_handler", "work/a/one is critical"},
		{"work/a", guard.ControlChange{}, "critical_handler", "work/a/one is critical"},
		{"work", guard.ControlChange{}, "critical_handler", "work/a/one is critical"},
		{"work", guard.ControlChange{Mode: "stop"}, "invalid_control", "want mode skip or hold"},
		{"push", guard.ControlChange{Enabled: true, RateLimit: "10/s"}, "invalid_control", "procaas queue pause push"},
		{"push", guard.ControlChange{}, "invalid_control", "a queue without stages"},
		{"wrok", guard.ControlChange{Enabled: true}, "unknown_control_path", "did you mean work?"},
		{"work", guard.ControlChange{Enabled: true, Mode: guard.ModeHold}, "invalid_control", "mode hold is for"},
		{"work", guard.ControlChange{Mode: guard.ModeKeep}, "invalid_control", "mode keep is for"},
		{
			"work",
			guard.ControlChange{Enabled: true, Mode: guard.ModeKeep, Until: time.Now().Add(-time.Second)},
			"invalid_control",
			"want a time to come",
		},
		{"work", guard.ControlChange{Mode: guard.ModeHold, Until: time.Now().Add(-time.Second)}, "invalid_control", "want a time to come"},
		{"work", guard.ControlChange{Mode: guard.ModeHold, Until: time.Now().Add(1e6 * time.Hour)}, "invalid_control", "within 100 years"},
		{"work", guard.ControlChange{Mode: guard.ModeHold, Forever: true, Until: time.Now().Add(time.Hour)}, "invalid_control", "have both"},
		{"work", guard.ControlChange{Enabled: true, RateLimit: "0/s"}, "invalid_control", "rate above 0"},
		{"work", guard.ControlChange{Enabled: true, RateLimit: "fast"}, "invalid_control", "100/s"},
		{"work", guard.ControlChange{Enabled: true, RateLimit: "1/500d"}, "invalid_control", "from 1/d"},
		{"work", guard.ControlChange{Enabled: true, RateLimit: "99999999/s"}, "invalid_control", "from 1/d"},
		{"work", guard.ControlChange{Enabled: true, RateLimit: "1/s", Over: "drop"}, "invalid_control", "wait or skip"},
		{"work/b/two", guard.ControlChange{Enabled: true, RolloutPercent: &low}, "invalid_control", "from 0 to 100"},
		{"work/b", guard.ControlChange{Enabled: true, RolloutPercent: &high}, "invalid_control", "path of a handler"},
		{"work/a/one", guard.ControlChange{Enabled: true, RolloutPercent: &high}, "critical_handler", "work/a/one is critical"},
	} {
		_, err := e.SetControl(context.Background(), c.path, c.change, -1, operator)
		var refused *guard.ControlError
		if !errors.As(err, &refused) || refused.Code != c.code || !strings.Contains(refused.Message, c.says) {
			t.Errorf("%s %+v: want %s: … %s …, have %v", c.path, c.change, c.code, c.says, err)
		}
	}
	if list, err := e.Controls(context.Background()); err != nil || len(list) != 0 {
		t.Errorf("want nothing changed, have %+v, %v", list, err)
	}
	if _, err := e.RemoveControl(context.Background(), "work", -1, operator); err == nil ||
		!strings.Contains(err.Error(), "no control at work") {
		t.Errorf("want no control to remove, have %v", err)
	}
}

func TestUndoPutsBackWhatWasBefore(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	r := newRig(t)
	e := r.engine(r.store, controlled)
	first := r.set(e, "work/b", guard.ControlChange{Enabled: true, RateLimit: "5/s"})
	second := r.set(e, "work/b", guard.ControlChange{Forever: true})
	if _, _, err := e.UndoControl(ctx, first.Revision, operator); !errors.Is(err, store.ErrConflict) {
		t.Errorf("want an undo refused that would lose a later change, have %v", err)
	}
	path, v, err := e.UndoControl(ctx, second.Revision, operator)
	if err != nil || path != "work/b" || v == nil || v.RateLimit != "5/s" || !v.Enabled {
		t.Fatalf("want the limit back, have %s %+v, %v", path, v, err)
	}
	gone, err := e.RemoveControl(ctx, "work/b", v.Revision, operator)
	if err != nil {
		t.Fatal(err)
	}
	if _, v, err = e.UndoControl(ctx, gone, operator); err != nil || v == nil || v.RateLimit != "5/s" {
		t.Errorf("want the removal undone, have %+v, %v", v, err)
	}
	if _, _, err := e.UndoControl(ctx, 999, operator); err == nil {
		t.Error("want an unknown revision refused")
	}
}

// TestCriticalHandlersAreSkippedByForceOnly tries controls at random, set without
// force while the handlers were not critical yet.
func TestCriticalHandlersAreSkippedByForceOnly(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			before := r.engine(r.store, strings.ReplaceAll(controlled, "{id: one,", "{id: one, critical: false,"))
			forced := false
			for i := range rapid.IntRange(1, 4).Draw(rt, "controls") {
				path := rapid.SampledFrom([]string{"work", "work/a", "work/a/one", "work/b", "work/b/two"}).Draw(rt, fmt.Sprint("path", i))
				percent := rapid.Float64Range(0, 100).Draw(rt, fmt.Sprint("percent", i))
				c := guard.ControlChange{
					Enabled: rapid.Bool().Draw(rt, fmt.Sprint("enabled", i)), RateLimit: "1/s",
					Over:  rapid.SampledFrom([]string{"wait", "skip"}).Draw(rt, fmt.Sprint("over", i)),
					Force: rapid.IntRange(0, 5).Draw(rt, fmt.Sprint("force", i)) == 0,
				}
				if strings.Count(path, "/") == 2 {
					c.RolloutPercent = &percent
				}
				r.set(before, path, c)
				forced = forced || c.Force
			}
			e, stop := r.start(controlled)
			for range 3 {
				v := r.settle(e, r.submit(e, event("work", "")), model.Succeeded)
				if o := v.Handlers[0].Outcome; o != model.OutcomeSucceeded && !forced {
					t.Errorf("critical handler is %s: %s", o, v.Handlers[0].Reason)
				}
			}
			stop()
		})
	})
}

func TestRateLimitIsForAllNodesTogether(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		first, _ := r.start(controlled)
		second, _ := r.start(controlled)
		r.set(first, "work/a/one", guard.ControlChange{Enabled: true, RateLimit: "40/s"})
		pass(time.Second)
		stop := r.load(10*time.Millisecond, first, second) // 100 a second
		pass(5 * time.Second)
		before := r.count("work/a/one")
		pass(10 * time.Second)
		if rate := float64(r.count("work/a/one")-before) / 10; rate < 36 || rate > 44 {
			t.Errorf("want 40 calls a second, have %g", rate)
		}
		stop()
		// Runs that wait far in the future go on when the limit is gone.
		before = r.count("work/a/one")
		r.remove(first, "work/a/one")
		pass(time.Second)
		if n := r.count("work/a/one") - before; n < 500 {
			t.Errorf("want the runs that were sent away to go on, have %d calls", n)
		}
	})
}

// A rolling restart must not send a service more than its limit allows.
func TestRateLimitHoldsWhileANodeJoins(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		limited := strings.ReplaceAll(controlled, "{id: one,", "{id: one, rate-limit: {rate: 40/s},")
		first, _ := r.start(limited)
		stop := r.load(10*time.Millisecond, first) // 100 a second
		pass(5 * time.Second)
		r.start(limited)
		most := 0
		for range 50 {
			before := r.count("work/a/one")
			pass(100 * time.Millisecond)
			most = max(most, r.count("work/a/one")-before)
		}
		before := r.count("work/a/one")
		pass(5 * time.Second)
		if rate := float64(r.count("work/a/one")-before) / 5; rate < 30 || rate > 44 {
			t.Errorf("want 40 calls a second after a node has joined, have %g", rate)
		}
		if most > 8 {
			t.Errorf("want 4 calls in each tenth of a second while a node joins, and few more, have %d", most)
		}
		stop()
	})
}

func TestCallsUnderWayAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var mu sync.Mutex
		now, most := 0, 0
		r.on("one", func(context.Context, *engine.Call, any) (model.Result, error) {
			mu.Lock()
			now++
			most = max(most, now)
			mu.Unlock()
			time.Sleep(50 * time.Millisecond)
			mu.Lock()
			now--
			mu.Unlock()
			return model.Result{}, nil
		})
		e, _ := r.start(strings.ReplaceAll(controlled, "{id: one,", "{id: one, max-in-flight: 3,"))
		began := time.Now()
		var runs []string
		for range 60 {
			runs = append(runs, r.submit(e, event("work", "")))
		}
		for _, run := range runs {
			r.settle(e, run, model.Succeeded)
		}
		if took := time.Since(began); most != 3 || took > 5*time.Second {
			t.Errorf("want 3 calls at once and little waste, have %d in %s", most, took)
		}
	})
}

func TestRolloutIsStickyAndGrows(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		e, _ := r.start(strings.ReplaceAll(controlled, "{id: two,", "{id: two, rollout: {percent: 20, by: !$ event.payload.id},"))
		among := func() (in []bool) {
			for i := range 100 {
				ev := event("work", "")
				ev.Payload = map[string]any{"id": fmt.Sprint("user-", i)}
				v := r.settle(e, r.submit(e, ev), model.Succeeded)
				in = append(in, v.Handlers[1].Outcome == model.OutcomeSucceeded)
			}
			return in
		}
		first, again := among(), among()
		if !slices.Equal(first, again) {
			t.Error("want the same users again")
		}
		half := 50.0
		r.set(e, "work/b/two", guard.ControlChange{Enabled: true, RolloutPercent: &half})
		more := among()
		n := [2]int{}
		for i := range first {
			if first[i] && !more[i] {
				t.Errorf("user %d is out again", i)
			}
			for k, in := range [][]bool{first, more} {
				if in[i] {
					n[k]++
				}
			}
		}
		if n[0] < 8 || n[0] > 35 || n[1] < 35 || n[1] > 65 {
			t.Errorf("want about 20 and 50 of 100, have %v", n)
		}
	})
}

func TestSwitchesAreSeen(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		registry := prometheus.NewRegistry()
		e, _ := r.start(controlled, func(o *engine.Options) { o.Metrics = stats.NewMetrics(registry) })
		pass(time.Second)
		r.set(e, "work/b", guard.ControlChange{})
		r.set(e, "work/a/one", guard.ControlChange{Mode: guard.ModeHold, Forever: true, RateLimit: "3/s"})
		pass(2 * time.Second)
		var have []string
		for _, h := range e.Handlers() {
			have = append(have, h.Path+" "+h.Switch+" "+h.RateLimit+" "+strings.Join(h.Effective, "; "))
		}
		want := []string{
			"work/a/one hold 3/s held at work/a/one by ann: incident 7; limited to 3/s at work/a/one by ann: incident 7",
			"work/b/two off  switched off at work/b until 2000-01-01T01:00:01Z by ann: incident 7",
			"work/b/three off  switched off at work/b until 2000-01-01T01:00:01Z by ann: incident 7",
		}
		if !slices.Equal(have, want) {
			t.Errorf("want %q, have %q", want, have)
		}
		off := 0.0
		for name, value := range samples(t, registry) {
			if strings.HasPrefix(name, "procaas_switch_off ") {
				off += value
			}
		}
		if off != 3 {
			t.Errorf("want three handlers off, have %g", off)
		}
	})
}

func TestDryRunTellsWhatWouldBe(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		e, _ := r.start(three)
		pass(time.Minute) // or it is the rate of the time since the start
		for range 6 {
			r.settle(e, r.submit(e, event("work", "k")), model.Succeeded)
		}
		effect, err := e.ControlEffect(context.Background(), "work/a", guard.ControlChange{Mode: guard.ModeHold})
		if err != nil || !effect.DryRun || len(effect.Handlers) != 1 || effect.CallsPerS < 0.1 || effect.CallsPerS > 0.11 ||
			!effect.Handlers[0].Critical {
			t.Errorf("want what hangs on it, have %+v, %v", effect, err)
		}
		if list, err := e.Controls(context.Background()); err != nil || len(list) != 0 {
			t.Errorf("want nothing changed, have %+v, %v", list, err)
		}
	})
}

func TestANodeThatCannotReadItsSettingsStartsNoCall(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		deaf := &deafSettings{Settings: r.store.Settings}
		db := r.store
		db.Settings = deaf
		e, _ := r.startOn(db, controlled)
		other, _ := r.start(controlled)
		pass(time.Second)
		deaf.turn(true)
		r.set(other, "work/b/two", guard.ControlChange{})
		stop := r.load(20*time.Millisecond, e)
		pass(6 * time.Second)
		before := r.count("work/b/two")
		pass(10 * time.Second)
		if after := r.count("work/b/two"); after != before {
			t.Errorf("want no call with settings of more than 5 s ago, have %d", after-before)
		}
		stop()
		deaf.turn(false)
		before = r.count("work/b/three")
		pass(2 * time.Second)
		if r.count("work/b/three") == before || r.count("work/b/two") > before {
			t.Errorf("want the node to go on with the switch off, have %v", r.paths())
		}
	})
}

// deafSettings cannot tell the controls while it is deaf.
type deafSettings struct {
	store.Settings
	mu   sync.Mutex
	deaf bool
}

func (s *deafSettings) turn(deaf bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deaf = deaf
}

func (s *deafSettings) Controls(ctx context.Context) (map[string]store.Setting, int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.deaf {
		return nil, 0, errors.New("no answer")
	}
	return s.Settings.Controls(ctx)
}

// A slowLedger takes its time to write.
type slowLedger struct {
	store.Ledger
	delay atomic.Int64
}

func (s *slowLedger) Commit(ctx context.Context, node int64, changes []model.Change) ([]error, error) {
	time.Sleep(time.Duration(s.delay.Load()))
	return s.Ledger.Commit(ctx, node, changes)
}

func TestSwitchCountsForCallsThatAreBeingSaved(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{guard.ModeSkip, guard.ModeHold} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			slow := &slowLedger{Ledger: r.store.Ledger}
			db := r.store
			db.Ledger = slow
			e, _ := r.startOn(db, controlled)
			pass(time.Second)
			slow.delay.Store(int64(3 * time.Second)) // before the calls of the second stage
			run := r.submit(e, event("work", ""))
			pass(time.Second)
			r.set(e, "work/b", guard.ControlChange{Mode: mode})
			pass(20 * time.Second)
			r.want("work/a/one")
			if mode == guard.ModeHold {
				r.remove(e, "work/b")
			}
			v := r.settle(e, run, model.Succeeded)
			want := map[string]string{guard.ModeSkip: model.OutcomeSkipped, guard.ModeHold: model.OutcomeSucceeded}[mode]
			if h := v.Handlers[1]; h.Outcome != want || mode == guard.ModeHold && h.Attempts != 1 {
				t.Errorf("%s: want %s, have %+v", mode, want, h)
			}
		})
	}
}

// What a run has done is undone as soon as it may be, and not a day later: a parked run
// says what its compensation waits for.
func TestLiftingAHoldWakesARunThatUndoes(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		e, _ := r.start(`
pipelines:
  - id: work
    stages:
      - id: a
        handlers: [{id: pay, call: {pipeline: pay}}]
  - id: pay
    inputs: {}
    stages:
      - id: a
        handlers: [{id: one, step: {}, compensate: {step: {}}}]
      - id: b
        handlers: [{id: two, step: {}}]
`)
		open := make(gate)
		r.on("two", func(ctx context.Context, c *engine.Call, value any) (model.Result, error) {
			_, _ = open.do(ctx, c, value)
			return model.Result{}, model.Permanent(errors.New("no"))
		})
		run := r.submit(e, event("work", ""))
		synctest.Wait()
		r.set(e, "pay", guard.ControlChange{Mode: guard.ModeHold, Forever: true})
		close(open)
		r.settle(e, run, model.Parked)
		pass(time.Hour)
		r.want("pay/a/one", "pay/b/two")
		r.remove(e, "pay")
		r.settle(e, run, model.Failed)
		r.want("pay/a/one", "pay/b/two", "pay/a/one/compensate")
	})
}

// A compensation has a switch of its own. Held, it waits. Off, it is not called, and the run says so until a retry. With its
// whole pipeline off, what has been done is undone all the same.
func TestACompensationHasASwitchOfItsOwn(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		const path = "work/a/one/compensate"
		e, _ := r.start(`
pipelines:
  - id: work
    stages:
      - {id: a, handlers: [{id: one, step: {}, compensate: {step: {}}}]}
      - {id: b, handlers: [{id: two, step: {}}]}
`)
		open := make(gate)
		r.on("two", func(ctx context.Context, c *engine.Call, value any) (model.Result, error) {
			_, _ = open.do(ctx, c, value)
			return model.Result{}, model.Permanent(errors.New("no"))
		})
		whole := r.submit(e, event("work", ""))
		synctest.Wait()
		r.set(e, "work", guard.ControlChange{Mode: guard.ModeSkip, Force: true, Forever: true})
		close(open)
		r.settle(e, whole, model.Cancelled)
		r.want("work/a/one", "work/b/two", path)
		r.remove(e, "work")

		r.set(e, path, guard.ControlChange{Mode: guard.ModeHold, Forever: true})
		held := r.submit(e, event("work", ""))
		if v := r.settle(e, held, model.Parked); !strings.Contains(v.Reason+fmt.Sprint(v.Handlers), "held at "+path) {
			t.Errorf("want the run to say what holds it, have %+v", v)
		}
		r.remove(e, path)
		r.settle(e, held, model.Cancelled)

		var refused *guard.ControlError
		off := guard.ControlChange{Mode: guard.ModeSkip, Forever: true}
		_, err := e.SetControl(context.Background(), path, off, -1, store.Actor{Name: "ann"})
		if !errors.As(err, &refused) || refused.Code != "critical_handler" || !strings.Contains(refused.Message, "hold it instead") {
			t.Errorf("want force to be needed, have %v", err)
		}
		off.Force = true
		r.set(e, path, off)
		left := r.submit(e, event("work", ""))
		v := r.settle(e, left, model.Failed)
		if v.FailedPath != path || len(v.NotUndone) != 1 || !strings.Contains(v.NotUndone[0].Error, "not called: switched off at "+path) {
			t.Errorf("want the run to list what is not undone, have %+v", v)
		}
		if list, _, err := e.List(context.Background(), store.RunFilter{NotUndone: true}); err != nil || len(list) != 1 || list[0].ID != left {
			t.Errorf("want the run in the list, have %v, %+v", err, list)
		}
		r.remove(e, path)
		if _, err := e.Retry(context.Background(), left, store.Actor{Name: "ann"}); err != nil {
			t.Fatal(err)
		}
		r.settle(e, left, model.Cancelled)
		for _, wrong := range []guard.ControlChange{{Enabled: true, Deadline: "1s", DeadlineForce: true}, {Enabled: true, Force: true, RolloutPercent: new(float64)}} {
			if _, err := e.SetControl(context.Background(), path, wrong, -1, store.Actor{Name: "ann"}); !errors.As(err, &refused) {
				t.Errorf("want %+v refused, have %v", wrong, err)
			}
		}
	})
}
