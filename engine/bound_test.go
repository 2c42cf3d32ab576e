package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"procaas/engine"
	"procaas/engine/enginetest"
	"procaas/engine/guard"
	"procaas/engine/model"
)

const slowTell = `
pipelines:
  - id: work
    stages:
      - id: a
        handlers:
          - {id: charge, step: {}}
          - {id: tell, critical: false, step: {}}
          - {id: note, critical: false, deadline: 100ms, step: {}}
          - {id: think, critical: false, wait: {}}
`

// slowly takes a time, or ends with its call.
func slowly(took time.Duration) enginetest.Do {
	return func(ctx context.Context, _ *engine.Call, v any) (model.Result, error) {
		select {
		case <-time.After(took):
			return model.Result{Response: v}, nil
		case <-ctx.Done():
			return model.Result{}, ctx.Err()
		}
	}
}

// Operators bound what a slow handler may cost. The shorter one of their deadline and the file's holds, critical handlers and
// waits are left alone, and it ends by itself.
func TestDeadlineOfOperators(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.on("charge", slowly(500*time.Millisecond))
		r.on("tell", slowly(3*time.Second))
		r.on("note", slowly(3*time.Second))
		r.types = append(r.types, enginetest.Scripted("wait", slowly(2*time.Second)))
		e, _ := r.start(slowTell)
		r.settle(e, r.submit(e, event("work", "o-1")), model.Succeeded)

		change := guard.ControlChange{Enabled: true, Deadline: "300ms", DeadlineUntil: time.Now().Add(time.Minute)}
		effect, err := e.ControlEffect(t.Context(), "work", change)
		if err != nil || effect.Ended != 2 || effect.Slower != 1 {
			t.Errorf("want 1 of 2 calls that took longer, have %+v, %v", effect, err)
		}
		if _, err := e.SetControl(t.Context(), "work", change, -1, operator); err != nil {
			t.Fatal(err)
		}
		if h, _ := e.Handler("work/a/tell"); len(h.Effective) != 1 || !strings.Contains(h.Effective[0], "deadline of 300ms, by operators at work until") {
			t.Errorf("want it told what bounds the handler, have %q", h.Effective)
		}
		v := r.settle(e, r.submit(e, event("work", "o-2")), model.Succeeded)
		for _, h := range v.Handlers {
			took := h.Finished.Sub(*h.Started)
			switch h.Path {
			case "work/a/charge":
				if h.Outcome != model.OutcomeSucceeded || took < 500*time.Millisecond {
					t.Errorf("want the critical handler left alone, have %+v", h)
				}
			case "work/a/tell":
				if h.Outcome != model.OutcomeFailed || took > 350*time.Millisecond || !strings.Contains(h.Error, "the deadline of operators at work") {
					t.Errorf("want the slow handler cut at 300ms, have it after %s: %s", took, h.Error)
				}
			case "work/a/note":
				if took > 150*time.Millisecond || !strings.Contains(h.Error, "handler work/a/note") {
					t.Errorf("want the shorter deadline of the file to hold, have %s: %s", took, h.Error)
				}
			case "work/a/think":
				if h.Outcome != model.OutcomeSucceeded {
					t.Errorf("want the wait left alone, have %+v", h)
				}
			}
		}
		pass(time.Minute)
		v = r.settle(e, r.submit(e, event("work", "o-3")), model.Succeeded)
		for _, h := range v.Handlers {
			if h.Path == "work/a/tell" && h.Outcome != model.OutcomeSucceeded {
				t.Errorf("want the deadline ended by itself, have %+v", h)
			}
		}
	})
}

// A handler that waits for its next attempt has only the time of a deadline that comes meanwhile, also on another node.
func TestDeadlineOfOperatorsReachesRunsUnderWay(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.on("tell", func(context.Context, *engine.Call, any) (model.Result, error) {
			return model.Result{}, model.After(200*time.Millisecond, errors.New("busy"))
		})
		const retries = `
pipelines:
  - id: work
    stages: [{id: a, handlers: [{id: tell, critical: false, retry: {attempts: 0}, step: {}}]}]
`
		faulty := &enginetest.Faulty{Store: r.store}
		e, _ := r.startOn(faulty.Ports(), retries)
		run := r.submit(e, event("work", "o-1"))
		pass(10 * time.Second)
		if _, err := e.SetControl(t.Context(), "work/a/tell", guard.ControlChange{Enabled: true, Deadline: "20s"}, -1, operator); err != nil {
			t.Fatal(err)
		}
		set := time.Now()
		pass(15 * time.Second)
		faulty.Cut() // as kill -9 does
		other, _ := r.start(retries)
		v := r.settle(other, run, model.Succeeded)
		if took := time.Since(set); took < 19*time.Second || took > 23*time.Second {
			t.Errorf("want 20s from the order on, across the crash, have %s", took)
		}
		if v.Handlers[0].Outcome != model.OutcomeFailed || !strings.Contains(v.Handlers[0].Error, "the deadline of operators at work/a/tell") {
			t.Errorf("want it left out by the deadline, have %+v", v.Handlers[0])
		}
	})
}

func TestDeadlineOfOperatorsIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		e, _ := r.start(`
pipelines:
  - id: work
    stages: [{id: a, handlers: [{id: charge, step: {}}]}]
`)
		for deadline, want := range map[string]string{
			"": "want a deadline", "soon": "want a duration", "0s": "want a duration", "48h": "want a duration", "300ms": "is critical",
		} {
			_, err := e.SetControl(t.Context(), "work", guard.ControlChange{
				Enabled: true, Deadline: deadline, DeadlineUntil: time.Now().Add(time.Hour),
			}, -1, operator)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("deadline %q: want %q, have %v", deadline, want, err)
			}
		}
		v, err := e.SetControl(t.Context(), "work", guard.ControlChange{Enabled: true, Deadline: "300ms", DeadlineForce: true}, -1, operator)
		if err != nil || v.DeadlineUntil == nil || time.Until(*v.DeadlineUntil) > time.Hour {
			t.Errorf("want it set for an hour, have %+v, %v", v, err)
		}
		r.on("charge", slowly(time.Second))
		if run := r.settle(e, r.submit(e, event("work", "o-1")), model.Failed); run.ErrorClass != model.ClassDeadline {
			t.Errorf("want the run failed at the deadline, have %s: %s", run.ErrorClass, run.Error)
		}
	})
}

const slowTwo = `
pipelines:
  - id: work
    stages: [{id: a, handlers: [{id: tell, critical: false, step: {}}]}]
`

// Each of two nodes obeys a deadline within a second of the order to one of them, and their previews agree with what they have
// seen: each counts its own calls.
func TestDeadlineOfOperatorsHoldsOnAllNodes(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var mu sync.Mutex
		calls := map[string]int{} // by node
		r.on("tell", func(ctx context.Context, c *engine.Call, v any) (model.Result, error) {
			mu.Lock()
			calls[fmt.Sprint(c.Node)]++
			mu.Unlock()
			return slowly(3*time.Second)(ctx, c, v)
		})
		one := func(o *engine.Options) { o.MaxInFlight = 4 } // so that each node takes a part
		first, _ := r.start(slowTwo, one)
		second, _ := r.start(slowTwo, one)
		orders := func(name string) {
			t.Helper()
			var runs []string
			for i := range 12 {
				runs = append(runs, r.submit(first, event("work", fmt.Sprintf("%s-%d", name, i))))
			}
			for _, run := range runs {
				v := r.settle(first, run, model.Succeeded)
				for _, h := range v.Handlers {
					took := h.Finished.Sub(*h.Started)
					if bounded := name == "bounded"; h.Path == "work/a/tell" && (took < time.Second) != bounded {
						t.Errorf("%s: want it bounded %t, have %s", run, bounded, took)
					}
				}
			}
			if len(calls) != 2 {
				t.Fatalf("want calls of both nodes, have %v", calls)
			}
		}
		orders("free")
		change := guard.ControlChange{Enabled: true, Deadline: "300ms", DeadlineUntil: time.Now().Add(time.Hour)}
		var slower, ended int64
		for _, e := range []*engine.Engine{first, second} {
			effect, err := e.ControlEffect(t.Context(), "work/a/tell", change)
			if err != nil || effect.Slower != effect.Ended || effect.Ended == 0 {
				t.Errorf("want all calls of the node in its preview, have %+v, %v", effect, err)
			}
			slower, ended = slower+effect.Slower, ended+effect.Ended
		}
		if slower != 12 || ended != 12 {
			t.Errorf("want the previews to have each call once, have %d of %d", slower, ended)
		}
		if _, err := second.SetControl(t.Context(), "work/a/tell", change, -1, operator); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		clear(calls)
		orders("bounded")
	})
}
