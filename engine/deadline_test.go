package engine_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"procaas/engine"
	"procaas/engine/core"
	"procaas/engine/enginetest"
	"procaas/engine/guard"
	"procaas/engine/model"
	"procaas/engine/store"
)

var errBusy = &model.StatusError{Status: 503, Method: "POST", URL: "http://svc/"}

// hanging is a pipeline whose secondary handler hangs, before one that is critical.
const hanging = `
pipelines:
  - id: work
    deadline: 10s
    stages:
      - {id: a, handlers: [{id: tell, critical: false, deadline: 2s, retry: {attempts: 0}, step: {}}]}
      - {id: b, handlers: [{id: pay, retry: {attempts: 0}, step: {}}]}
`

// hang never answers.
func hang(ctx context.Context, _ *engine.Call, _ any) (model.Result, error) {
	<-ctx.Done()
	return model.Result{}, ctx.Err()
}

// A service that hangs holds the run up until the deadline and no longer, and learns how much time
// is left. The deadline of the pipeline ends the run, with all that hangs in it.
func TestHangingServiceHoldsUpUntilTheDeadline(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.on("tell", hang)
		e, _ := r.start(hanging)
		began := time.Now()
		v := r.settle(e, r.submit(e, event("work", "k")), model.Succeeded)
		if took := time.Since(began); took < 2*time.Second || took > 2100*time.Millisecond {
			t.Errorf("want the run held up for 2s, have %s", took)
		}
		if h := v.Handlers[0]; h.Outcome != model.OutcomeFailed ||
			!strings.Contains(h.Error, "the deadline of handler work/a/tell, 2s, has passed during attempt 1") {
			t.Errorf("want tell left out for its deadline, have %+v", h)
		}
		calls := r.calls.Calls()
		if left := calls[0].TimeLeft; left <= 1900*time.Millisecond || left > 2*time.Second {
			t.Errorf("tell: want 2s left, have %s", left)
		}
		if left := calls[1].TimeLeft; left <= 7800*time.Millisecond || left > 8*time.Second {
			t.Errorf("pay: want 8s left of the deadline of the pipeline, have %s", left)
		}
		r.on("pay", hang)
		began = time.Now()
		id := r.submit(e, event("work", "k"))
		pass(9 * time.Second)
		v = r.settle(e, id, model.Failed)
		if took := time.Since(began); took < 10*time.Second || took > 10100*time.Millisecond {
			t.Errorf("want the run failed after 10s, have %s", took)
		}
		if v.ErrorClass != model.ClassDeadline || !strings.Contains(v.Error, "the deadline of pipeline work, 10s, has passed during attempt 1") {
			t.Errorf("want the class deadline, have %s: %s", v.ErrorClass, v.Error)
		}
	})
}

// An operator who limits a handler for a while wants its calls later, and not left out by their deadlines.
func TestDeadlinesStandStillWhileAnOperatorsLimitIsWaitedFor(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		e, _ := r.start(hanging)
		r.set(e, "work/a/tell", guard.ControlChange{Enabled: true, RateLimit: "1/5s"})
		var runs []string
		for range 4 {
			runs = append(runs, r.submit(e, event("work", "")))
		}
		pass(time.Minute)
		for _, id := range runs {
			if v := r.settle(e, id, model.Succeeded); v.Handlers[0].Outcome != model.OutcomeSucceeded {
				t.Errorf("want tell done, have %+v", v.Handlers[0])
			}
		}
	})
}

// A hold makes a queue. The time that its runs spend in that queue, once it is lifted, costs no handler its deadline,
// whatever the queue is for.
func TestDeadlinesStandStillWhileHeldRunsWaitForTheirTurn(t *testing.T) {
	t.Parallel()
	for name, bound := range map[string]string{
		"calls under way": "max-in-flight: 1",
		"the rate":        "rate-limit: {rate: 1/3s}",
		"a service":       "retry: {attempts: 1}",
	} {
		for _, path := range []string{"work", "work/a/one", "work/b/tell"} {
			t.Run(name+" at "+strings.ReplaceAll(path, "/", "."), func(t *testing.T) {
				bubble(t, func(t *testing.T, r *rig) {
					r.on("tell", (&target{latency: 1500 * time.Millisecond}).do)
					e, _ := r.start(strings.Replace(queued, "BOUND", bound, 1))
					by := store.Actor{Name: "ann"}
					r.set(e, path, guard.ControlChange{Mode: guard.ModeHold, Forever: true})
					for range 6 {
						r.submit(e, event("work", ""))
					}
					pass(10 * time.Second)
					if _, err := e.RemoveControl(context.Background(), path, -1, by); err != nil {
						t.Fatal(err)
					}
					pass(time.Minute)
					r.succeeded(e, time.Minute)
					if n := r.leftOut(e, "work/b/tell"); n != 0 {
						t.Errorf("want no run to go on without its call, have %d of 6", n)
					}
				})
			})
		}
	}
}

// queued is a pipeline whose last handler has a deadline and is called by one run at a time.
const queued = `
services:
  - {id: push, url: "http://127.0.0.1:2", timeout: 1700ms, max-in-flight: 1}
pipelines:
  - id: work
    stages:
      - {id: a, handlers: [{id: one, step: {}}]}
      - {id: b, handlers: [{id: tell, critical: false, deadline: 2s, BOUND, step: {service: push}}]}
`

// The clock of a deadline is in the checkpoint: a node that dies, and another one that takes over,
// give a handler no more time.
func TestAnotherNodeGivesNoMoreTime(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.on("tell", func(context.Context, *engine.Call, any) (model.Result, error) {
			return model.Result{}, model.After(300*time.Millisecond, errors.New("busy"))
		})
		const slow = `
pipelines:
  - id: work
    stages:
      - {id: a, handlers: [{id: tell, deadline: 20s, retry: {attempts: 0}, step: {}}]}
`
		faulty := &enginetest.Faulty{Store: r.store}
		e, _ := r.startOn(faulty.Ports(), slow)
		began := time.Now()
		id := r.submit(e, event("work", "k"))
		pass(2 * time.Second)
		faulty.Cut() // as kill -9 does: nothing of the node reaches the store any more
		other, _ := r.start(slow)
		pass(time.Until(began.Add(18 * time.Second)))
		v := r.settle(other, id, model.Failed)
		if took := time.Since(began); took < 19*time.Second || took > 20100*time.Millisecond {
			t.Errorf("want the end at the deadline of 20s, have it after %s", took)
		}
		if v.ErrorClass != model.ClassDeadline {
			t.Errorf("want the class deadline, have %s: %s", v.ErrorClass, v.Error)
		}
		for _, c := range r.calls.Calls() {
			if c.TimeLeft > 20*time.Second {
				t.Errorf("a call was told of %s", c.TimeLeft)
			}
		}
	})
}

// deadlineModel goes by the deadlines of a random pipeline, with services that answer, fail or hang,
// operators who hold handlers, and crashes.
type deadlineModel struct {
	*rapid.T
	run    *core.Run
	now    time.Time
	stood  time.Duration // that operators have held a handler
	began  time.Time
	first  map[string]time.Duration // when a handler's turn came, by the clock that stops while operators hold
	own    map[string]time.Duration
	whole  time.Duration
	going  map[string]core.Attempt
	held   map[string]core.Verdict
	paused bool
	stands bool // it was paused before the present step
}

// TestNothingBeginsAfterADeadline is the model of deadlines: no attempt begins after one, each is
// told the time that is left, and who breaks attempts off then sees the run end in time.
func TestNothingBeginsAfterADeadline(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		m := &deadlineModel{
			T: rt, now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), first: map[string]time.Duration{}, own: map[string]time.Duration{},
			going: map[string]core.Attempt{}, held: map[string]core.Verdict{},
		}
		plans, found, err := load(m.draw())
		if err != nil || len(plans) == 0 {
			rt.Fatalf("%v %+v", err, found)
		}
		start := core.Start{ID: "r", Flow: "p", Key: "k", Event: model.Event{ID: "e", Type: "p", Time: m.now}}
		m.run, m.began = core.Begin(plans[0], start), m.now
		m.step()
		for range 200 {
			if m.run.Status().Ended() {
				break
			}
			if saved := m.run.Checkpoint(); rapid.IntRange(0, 7).Draw(rt, "crash") == 0 {
				if m.run, err = core.Resume(plans[0], start, saved); err != nil {
					rt.Fatal(err)
				}
				clear(m.going)
			} else {
				m.happen()
			}
			m.step()
		}
		endless := slices.ContainsFunc(slices.Collect(maps.Values(m.going)), func(t core.Attempt) bool { return t.Deadline.IsZero() })
		if !m.run.Status().Ended() && m.whole > 0 && !m.paused && !endless && m.clock() >= m.whole {
			rt.Fatalf("the run goes on %s after its beginning, and its deadline is %s", m.clock(), m.whole)
		}
	})
}

// draw makes a pipeline.
func (m *deadlineModel) draw() string {
	var b strings.Builder
	deadline := func(indent, what string) time.Duration {
		d := time.Duration(rapid.SampledFrom([]int{0, 0, 1, 3, 8}).Draw(m.T, what)) * time.Second
		if d > 0 {
			fmt.Fprintf(&b, "%sdeadline: %s\n", indent, d)
		}
		return d
	}
	const again = "\n      retry: {attempts: 0, min-delay: 400ms}"
	b.WriteString("pipelines:\n- id: p\n")
	m.whole = deadline("  ", "of the pipeline")
	b.WriteString("  stages:\n")
	for i := range rapid.IntRange(1, 3).Draw(m.T, "stages") {
		fmt.Fprintf(&b, "  - id: s%d\n", i)
		deadline("    ", "of a stage")
		b.WriteString("    handlers:\n")
		for j := range rapid.IntRange(1, 3).Draw(m.T, "handlers") {
			path := fmt.Sprintf("p/s%d/h%d%d", i, i, j)
			fmt.Fprintf(&b, "    - id: h%d%d\n      critical: %v\n", i, j, rapid.Bool().Draw(m.T, "critical"))
			m.own[path] = deadline("      ", "of a handler")
			what := rapid.SampledFrom([]string{
				"request: {}" + again, "request: {}" + again, "call: {pipeline: sub}",
				"for-each: {items: [1, 2, 3], max-parallel: 2}\n      request: {}" + again,
			})
			fmt.Fprintf(&b, "      %s\n", what.Draw(m.T, "what"))
		}
	}
	b.WriteString("- id: sub\n  inputs: {}\n")
	deadline("  ", "of the called one")
	b.WriteString("  stages: [{id: s, handlers: [{id: a, retry: {attempts: 0}, request: {}}]}, {id: t, handlers: [{id: b, request: {}}]}]\n")
	return b.String()
}

// clock is the time since the beginning, without that for which operators have held a handler.
func (m *deadlineModel) clock() time.Duration { return m.now.Sub(m.began) - m.stood }

func (m *deadlineModel) live() core.Live {
	before := m.stood > 0 || m.stands
	return core.Live{Now: m.now, Guard: func(a core.Ask) core.Verdict {
		v := m.held[a.Ref]
		m.turn(a.Ref)
		m.paused = m.paused || v.People || v.Turn && before
		return v
	}}
}

// turn notes when the turn of a handler has come.
func (m *deadlineModel) turn(ref string) {
	path := model.PathOf(ref)
	if _, ok := m.first[path]; !ok {
		m.first[path] = m.clock()
	}
}

// step asks what may start, and compares it with the model.
func (m *deadlineModel) step() {
	before := m.paused
	m.paused, m.stands = false, before
	tasks := m.run.Ready(m.live())
	for _, t := range tasks {
		m.going[t.Ref()] = t
		if !t.Deadline.IsZero() && !t.Deadline.After(m.now) {
			m.Fatalf("%s begins at %s, and its deadline was %s", t.Ref(), m.now, t.Deadline)
		}
		if before || m.paused {
			continue
		}
		if m.whole > 0 && (t.Deadline.IsZero() || t.Deadline.After(m.now.Add(m.whole-m.clock()))) {
			m.Fatalf("%s has %s left of the pipeline, and is told %s", t.Ref(), m.whole-m.clock(), t.Deadline.Sub(m.now))
		}
		if own := m.own[t.Step.Path]; own > 0 && t.Deadline.After(m.now.Add(own-(m.clock()-m.first[t.Step.Path]))) {
			m.Fatalf("%s is told %s after its turn of %s", t.Ref(), t.Deadline.Sub(m.now), own)
		}
	}
}

// happen lets a call end, or time pass up to what is due next. Whoever makes calls breaks them off at
// their deadlines.
func (m *deadlineModel) happen() {
	refs := make([]string, 0, len(m.going))
	for ref := range m.going {
		refs = append(refs, ref)
	}
	switch what := rapid.IntRange(0, 9).Draw(m.T, "what happens"); {
	case what < 4 && len(refs) > 0:
		ref := rapid.SampledFrom(slices.Sorted(slices.Values(refs))).Draw(m.T, "call")
		m.finish(ref, rapid.SampledFrom([]error{nil, errBusy, errBusy, context.DeadlineExceeded}).Draw(m.T, "error"))
	case what == 4:
		path := rapid.SampledFrom([]string{"p/s0/h00", "p/s0/h01", "p/s1/h10"}).Draw(m.T, "path")
		if _, ok := m.held[path]; ok {
			delete(m.held, path)
		} else {
			m.held[path] = core.Verdict{
				Hold: m.now.Add(time.Hour), Reason: "held", People: rapid.Bool().Draw(m.T, "by people"),
				Turn: rapid.Bool().Draw(m.T, "in line"),
			}
		}
	default:
		m.pass(time.Duration(rapid.IntRange(50, 2500).Draw(m.T, "ms")) * time.Millisecond)
	}
}

// pass lets time pass, but not beyond what is due.
func (m *deadlineModel) pass(by time.Duration) {
	to := m.now.Add(by)
	if next := m.run.Next(); !next.IsZero() && next.Before(to) && next.After(m.now) {
		to = next
	}
	for _, t := range m.going {
		if !t.Deadline.IsZero() && t.Deadline.Before(to) {
			to = t.Deadline
		}
	}
	if m.paused {
		m.stood += to.Sub(m.now)
	}
	m.now = to
	for ref, t := range m.going {
		if !t.Deadline.IsZero() && !t.Deadline.After(m.now) {
			m.finish(ref, context.DeadlineExceeded)
		}
	}
}

func (m *deadlineModel) finish(ref string, err error) {
	delete(m.going, ref)
	m.run.Finish(ref, core.Outcome{Err: engine.Classify(err)}, m.live())
}
