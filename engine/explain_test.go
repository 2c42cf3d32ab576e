package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"procaas/dsl/expr"
	"procaas/engine"
	"procaas/engine/explain"
	"procaas/engine/guard"
	"procaas/engine/model"
	"procaas/engine/store"
)

const explained = `
configs:
  NOTIFY: {enabled: true}
flows:
  - id: order
    key: !$ event.payload.id
    shared-state: {seen: 0}
    states:
      initial: created
      transitions:
        - {from: [created, done], on: work, to: done}
pipelines:
  - id: work
    flow: order
    shared-state: {total: 0, note: null}
    stages:
      - id: a
        handlers:
          - {id: fetch, step: {value: {price: 7}}, result: {total: !$ sources.fetch.response.price, note: !$ event.payload.text},
             retry: {attempts: 2, min-delay: 1h, max-delay: 1h, jitter: 0, on: any}}
          - id: tell
            critical: false
            enabled: !$ configs.NOTIFY.enabled and shared-state.total > 5 and flow.state == 'created' and shared-state.note != 'x'
            step: {}
      - id: b
        handlers:
          - {id: note, step: {}, result: {total: 100, note: x}}
          - {id: extra, critical: false, enabled: !$ sources.fetch.status == 200 or sources.fetch.outcome == 'failed', step: {}}
      - id: c
        enabled: !$ shared-state.total > 10
        choose:
          - when: !$ event.payload.kind == 'big'
            handlers: [{id: big, step: {}}]
          - handlers: [{id: small, critical: false, rollout: {percent: 0}, step: {}}]
      - id: d
        handlers:
          - {id: limited, critical: false, rate-limit: {rate: 1/d, burst: 1, over: skip}, step: {}}
          - {id: last, step: {}, on-error: [{then: continue}]}
`

// explain asks why, and shows the answer in short.
func (r *virtualRig) explain(run, path string) explain.Explanation {
	r.t.Helper()
	x, err := r.v.Engine().Explain(r.t.Context(), run, path)
	if err != nil {
		r.t.Fatal(err)
	}
	return x
}

func (r *virtualRig) wantExplained(run, path, by, summary string, decisions ...string) explain.Explanation {
	r.t.Helper()
	x := r.explain(run, path)
	var have []string
	for _, d := range x.Decisions {
		have = append(have, d.What+" "+d.Result)
	}
	if x.DecidedBy != by || !strings.Contains(x.Summary, summary) || fmt.Sprint(have) != fmt.Sprint(decisions) {
		r.t.Errorf("%s: want %s, %q and %v\nhave %s, %q and %v; %v", path, by, summary, decisions, x.DecidedBy, x.Summary, have, x.Missing)
	}
	return x
}

func TestExplainSaysWhatDecided(t *testing.T) {
	t.Parallel()
	r := newVirtualRig(t, explained)
	e := r.v.Engine()
	set := func(enabled bool) {
		t.Helper()
		if _, err := e.SetConfig(t.Context(), "NOTIFY", map[string]any{"enabled": enabled}, -1, store.Actor{Name: "test"}); err != nil {
			t.Fatal(err)
		}
	}
	r.on("last", func(context.Context, *engine.Call, any) (model.Result, error) {
		return model.Result{}, errors.New("no")
	})
	first := r.submit(e, model.Event{Type: "work", Payload: map[string]any{"id": "k", "kind": "small"}})
	r.drain()
	if err := r.v.Until(t.Context(), r.began.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	set(false)
	if err := r.v.Until(t.Context(), r.began.Add(2*time.Hour)); err != nil {
		t.Fatal(err)
	}
	second := r.submit(e, model.Event{Type: "work", Payload: map[string]any{"id": "k", "kind": "big"}})
	r.drain()
	if err := r.v.Until(t.Context(), r.began.Add(3*time.Hour)); err != nil {
		t.Fatal(err)
	}
	set(true)

	// The values of the time when it was decided, not those of now.
	x := r.wantExplained(first, "tell", "ran", "it ran, and its first attempt succeeded", "enabled true")
	if len(x.Missing) > 0 {
		t.Errorf("want all to be known, have %v", x.Missing)
	}
	x = r.wantExplained(second, "work/a/tell", "enabled", "it was left out: enabled is false: configs.NOTIFY.enabled and", "enabled false")
	var text strings.Builder
	if err := expr.WriteTrace(&text, x.Decisions[0].Trace, false); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text.String(), "configs.NOTIFY.enabled  ") || !strings.Contains(text.String(), "not needed") {
		t.Errorf("want the parts of enabled, have\n%s", text.String())
	}
	if len(x.WaitedFor) != 1 || x.WaitedFor[0].Path != "work/a/fetch" || x.WaitedFor[0].Finished == nil {
		t.Errorf("want the handler that it waited for, have %+v", x.WaitedFor)
	}
	r.wantExplained(first, "extra", "enabled", "enabled is false", "enabled false")
	r.wantExplained(first, "big", "branch", "branch 1 is not taken: when is false", "enabled of the stage true", "when of branch 1 false")
	r.wantExplained(second, "big", "ran", "succeeded", "enabled of the stage true", "when of branch 1 true")
	r.wantExplained(first, "small", "rollout", "rolled out to 0 %", "enabled of the stage true", "when of branch 1 false")
	r.wantExplained(second, "small", "branch", "branch 1 is taken", "enabled of the stage true", "when of branch 1 true")
	r.wantExplained(first, "limited", "ran", "succeeded")
	r.wantExplained(second, "limited", "limit", "over its rate limit of 1/d")
	r.wantExplained(second, "last", "on_error", "it failed, and its rules let the run go on")
}

// A value that is too large to be kept for this, and was changed since, is told to
// be lost.
func TestExplainSaysWhatIsNotKnownAnyMore(t *testing.T) {
	t.Parallel()
	r := newVirtualRig(t, explained)
	run := r.submit(r.v.Engine(), model.Event{Type: "work", Payload: map[string]any{
		"id": "k", "kind": "big", "text": strings.Repeat("long ", 300),
	}})
	r.drain()
	x := r.wantExplained(run, "tell", "ran", "succeeded", "enabled unknown")
	if want := "shared-state.note as it was then: work/b/note has changed it since"; len(x.Missing) != 1 || x.Missing[0] != want {
		t.Errorf("want %q, have %q", want, x.Missing)
	}
}

func TestExplainSaysWhatIsAwaited(t *testing.T) {
	t.Parallel()
	r := newVirtualRig(t, explained)
	e := r.v.Engine()
	fails := true
	r.on("fetch", func(_ context.Context, _ *engine.Call, value any) (model.Result, error) {
		if fails {
			return model.Result{}, errors.New("no stock")
		}
		return model.Result{Response: value}, nil
	})
	run := r.submit(e, model.Event{Type: "work", Payload: map[string]any{"id": "k"}})
	if err := r.v.Until(t.Context(), r.began.Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	r.wantExplained(run, "fetch", "waiting", "its first attempt failed, and it waits for the next: no stock")
	r.wantExplained(run, "tell", "not_reached", "it waits for work/a/fetch: tell reads shared-state.total, which fetch writes",
		"enabled not_asked")
	r.wantExplained(run, "last", "not_reached", "the run is in stage a, and it is of stage d")
	r.drain()
	r.wantExplained(run, "fetch", "error", "it ran, and gave up after attempt 2: no stock")
	r.wantExplained(run, "last", "not_reached", "the run failed in work/a/fetch before: work/a/fetch: attempt 2: no stock")

	fails = false
	off := guard.ControlChange{Mode: guard.ModeSkip, Forever: true}
	if _, err := e.SetControl(t.Context(), "work/a/tell", off, -1, store.Actor{Name: "Ann", Reason: "too loud"}); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Retry(t.Context(), run, store.Actor{Name: "test"}); err != nil {
		t.Fatal(err)
	}
	r.drain()
	x := r.wantExplained(run, "tell", "switch", "switched off at work/a/tell by Ann: too loud", "enabled not_asked")
	if len(x.Now) != 1 || !strings.Contains(x.Now[0], "too loud") {
		t.Errorf("want what keeps it off now, have %v", x.Now)
	}
}

func TestExplainRefusesWhatIsNotThere(t *testing.T) {
	t.Parallel()
	r := newVirtualRig(t, explained)
	run := r.submit(r.v.Engine(), model.Event{Type: "work", Payload: map[string]any{"id": "k", "kind": "big"}})
	r.drain()
	if _, err := r.v.Engine().Explain(t.Context(), "none", "fetch"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("want ErrNotFound, have %v", err)
	}
	_, err := r.v.Engine().Explain(t.Context(), run, "fetsh")
	if want := "no such handler: pipeline work has no handler fetsh; did you mean fetch?"; !errors.Is(err, explain.ErrNoHandler) ||
		err.Error() != want {
		t.Errorf("want %q, have %v", want, err)
	}
}
