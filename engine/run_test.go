package engine_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"procaas/dsl/datum"
	"procaas/engine/core"
	"procaas/engine/model"
	"procaas/engine/records"
	"procaas/engine/store"
)

// callPipeline makes one call and keeps its response.
const callPipeline = `
pipelines:
- id: p
  shared-state: {a: {list: [1]}, got: 0}
  stages:
  - id: s
    handlers:
    - {id: call, request: {a: !$ shared-state.a}, result: {got: !$ sources.call.response}}
`

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// call begins a run of callPipeline and returns its one task.
func call(t *testing.T, e model.Event) (*core.Run, core.Attempt, core.Live) {
	t.Helper()
	live := core.Live{Now: noon}
	run := core.Begin(plan(t, callPipeline), core.Start{ID: "r1", Event: e})
	tasks := run.Ready(live)
	if len(tasks) != 1 {
		t.Fatalf("have %d tasks, want 1", len(tasks))
	}
	return run, tasks[0], live
}

func TestResponseMustBeData(t *testing.T) {
	t.Parallel()
	var deep any = 1
	for range 61 {
		deep = []any{deep}
	}
	for want, response := range map[string]any{
		`want null, a boolean, a number, a string, a list or a mapping, have a value of the Go type int64`: int64(1),
		`["x"]: [1]: want a finite number, have NaN`: map[string]any{"x": []any{
			1,
			math.NaN(),
		}},
		`want a text without U+0000, have one with it`:            "a\x00b",
		`want a text in UTF-8, have other bytes`:                  "\xff",
		`["\xff"]: want a text in UTF-8, have other bytes`:        map[string]any{"\xff": 1},
		`want at most 60 levels of lists and mappings, have more`: deep,
		`have the secret TOKEN, which is only for calls`:          datum.Secret{Name: "TOKEN"},
	} {
		run, task, live := call(t, model.Event{Type: "p"})
		run.Finish(task.Ref(), core.Outcome{Result: model.Result{Response: response}}, live)
		c := run.Change()
		if c.Status != model.Failed || !strings.HasSuffix(c.Error, want) {
			t.Errorf("have %s %q, want failed with %q", c.Status, c.Error, want)
		}
	}
}

func TestErrorCarriesThePathOnceAndFitsAnyStore(t *testing.T) {
	t.Parallel()
	run, task, live := call(t, model.Event{Type: "p"})
	err := errors.New("bad\x00 \xff" + strings.Repeat("я", 2000))
	run.Finish(task.Ref(), core.Outcome{Err: model.Permanent(err)}, live)
	c := run.Change()
	if !strings.HasPrefix(c.Error, "p/s/call: attempt 1: bad \uFFFDя") || !strings.HasSuffix(c.Error, "я…") || len(c.Error) > 2100 {
		t.Errorf("have %q", c.Error)
	}
	if c.FailedPath != "p/s/call" {
		t.Errorf("have failed path %q", c.FailedPath)
	}
}

func TestIdempotencyKeyIsOfRunAndPath(t *testing.T) {
	t.Parallel()
	_, task, _ := call(t, model.Event{Type: "p"})
	sum := sha256.Sum256([]byte("r1\x00p/s/call\x000"))
	if want := hex.EncodeToString(sum[:])[:32]; task.IdempotencyKey != want {
		t.Errorf("have %s, want %s", task.IdempotencyKey, want)
	}
}

// A handler may change its body; neither the run nor the next attempt sees that.
func TestBodyBelongsToTheHandler(t *testing.T) {
	t.Parallel()
	run, task, live := call(t, model.Event{Type: "p"})
	body := task.Body.(map[string]any)["a"].(map[string]any)
	body["list"].([]any)[0] = "spoilt"
	clear(body)
	run.Finish(task.Ref(), core.Outcome{Err: model.After(0, errors.New("again"))}, live)
	again := run.Ready(live)
	if len(again) != 1 {
		t.Fatalf("have %d tasks, want 1", len(again))
	}
	if text, _ := datum.FormatJSON(again[0].Body); string(text) != `{"a":{"list":[1]}}` {
		t.Errorf("have the body %s at the second attempt", text)
	}
	run.Finish(task.Ref(), core.Outcome{}, live)
	v := records.View(store.RunRecord{Checkpoint: run.Change().Checkpoint})
	if text, _ := datum.FormatJSON(v.SharedState); string(text) != `{"a":{"list":[1]},"got":null}` {
		t.Errorf("have the state %s", text)
	}
}

func TestEmittedEventsAreMadeComplete(t *testing.T) {
	t.Parallel()
	given := model.Event{ID: "own", Source: "s", Type: "q", Time: noon.Add(time.Hour), TraceParent: "00-own"}
	emitted := func() []model.Event {
		run, task, live := call(t, model.Event{Type: "p", TraceParent: "00-run"})
		o := core.Outcome{Result: model.Result{Emit: []model.Event{{Type: "q"}, {Type: "q"}, given}}}
		run.Finish(task.Ref(), o, live)
		if !run.Dirty() {
			t.Error("want something to save after an end")
		}
		out := run.TakeEmits()
		if again := run.TakeEmits(); len(again) != 0 {
			t.Errorf("have %d events a second time", len(again))
		}
		return out
	}
	one, two := emitted(), emitted()
	if len(one) != 3 || one[0].ID == "" || one[0].ID == one[1].ID || one[0].ID != two[0].ID {
		t.Fatalf("want ids that differ in a run and are the same again, have %+v %+v", one, two)
	}
	if e := one[0]; e.Source != "procaas/run/r1" || !e.Time.Equal(noon) || e.TraceParent != "00-run" {
		t.Errorf("have %+v", e)
	}
	if one[2].ID != given.ID || one[2].Source != given.Source || !one[2].Time.Equal(given.Time) || one[2].TraceParent != given.TraceParent {
		t.Errorf("have %+v, want %+v", one[2], given)
	}
}

// A handler whose result cannot be applied has failed: its events do not go out,
// or they would go out again when it is retried.
func TestFailedHandlerEmitsNothing(t *testing.T) {
	t.Parallel()
	live := core.Live{Now: noon}
	run := core.Begin(plan(t, `
pipelines:
- id: p
  shared-state: {got: 0}
  stages:
  - id: s
    handlers:
    - {id: call, request: {}, result: {got: !$ sources.call.response.x.y}}
`), core.Start{ID: "r1", Event: model.Event{Type: "p"}})
	run.Ready(live)
	run.Finish("p/s/call", core.Outcome{Result: model.Result{Emit: []model.Event{{Type: "q"}}}}, live)
	if have := run.TakeEmits(); len(have) != 0 {
		t.Errorf("have %+v", have)
	}
	if have := run.Status(); have != model.Failed {
		t.Errorf("have %s, want failed", have)
	}
}

func TestWaitBeyondAllCalendarsIsRefused(t *testing.T) {
	t.Parallel()
	run, task, live := call(t, model.Event{Type: "p"})
	run.Finish(task.Ref(), core.Outcome{Result: model.Result{Until: noon.AddDate(9000, 0, 0)}}, live)
	if c := run.Change(); c.Status != model.Failed {
		t.Errorf("have %s", c.Status)
	}
}

func TestCancelBeforeTheFirstStepAndAfterTheEnd(t *testing.T) {
	t.Parallel()
	run := core.Begin(plan(t, callPipeline), core.Start{ID: "r1", Event: model.Event{Type: "p"}})
	run.Cancel("no", noon)
	if c := run.Change(); c.Status != model.Cancelled || c.Reason != "no" {
		t.Errorf("have %s %q", c.Status, c.Reason)
	}
	if tasks := run.Ready(core.Live{Now: noon}); len(tasks) != 0 || run.Dirty() {
		t.Errorf("have %d tasks of a cancelled run", len(tasks))
	}
	run, task, live := call(t, model.Event{Type: "p"})
	run.Finish(task.Ref(), core.Outcome{}, live)
	run.Cancel("late", noon)
	if have := run.Status(); have != model.Succeeded {
		t.Errorf("have %s after the end", have)
	}
}

// While a call is in flight the run is not parked, even if something else waits for a
// time, but it tells when to ask again.
func TestNextIsTheEarliestTime(t *testing.T) {
	t.Parallel()
	live := core.Live{Now: noon}
	run := core.Begin(plan(t, `
pipelines:
- id: p
  stages:
  - id: s
    handlers:
    - {id: a, request: {}, retry: {min-delay: 5s}}
    - {id: b, request: {}}
    - {id: c, request: {}}
`), core.Start{ID: "r1", Event: model.Event{Type: "p"}})
	if have := run.Status(); have != model.Running {
		t.Errorf("have %s before the first Ready", have)
	}
	run.Ready(live)
	if next := run.Next(); !next.IsZero() {
		t.Errorf("have %s while only calls are under way", next)
	}
	run.Finish("p/s/a", core.Outcome{Err: &model.StatusError{Status: 503}}, live)
	run.Finish("p/s/b", core.Outcome{Result: model.Result{Until: noon.Add(2 * time.Second)}}, live)
	run.Ready(live)
	if next, want := run.Next(), noon.Add(2*time.Second); !next.Equal(want) || run.Status() != model.Running {
		t.Errorf("have %s %s, want running until %s", run.Status(), next, want)
	}
	run.Finish("p/s/c", core.Outcome{}, live)
	run.Ready(live)
	if c := run.Change(); c.Status != model.Parked || !c.Due.Equal(noon.Add(2*time.Second)) {
		t.Errorf("have %s until %s", c.Status, c.Due)
	}
}

// Only what a crash would not bring back by itself has to be saved before the
// next calls.
func TestMustSaveWhatACrashMayNotForget(t *testing.T) {
	t.Parallel()
	begin := func() *core.Run {
		return core.Begin(plan(t, `
pipelines:
- id: p
  shared-state: {n: 0}
  stages:
  - id: s
    handlers:
    - {id: a, request: {}, retry: {min-delay: 5s}}
    - {id: b, request: {}}
  - id: t
    handlers:
    - {id: c, request: {n: !$ shared-state.n}}
`), core.Start{ID: "r1", Event: model.Event{Type: "p"}})
	}
	live := core.Live{Now: noon}
	for what, do := range map[string]func(*core.Run){
		"a success": func(r *core.Run) { r.Finish("p/s/b", core.Outcome{}, live) },
		"a failure": func(r *core.Run) { r.Finish("p/s/a", core.Outcome{Err: &model.StatusError{Status: 503}}, live) },
		"a wait": func(r *core.Run) {
			r.Finish("p/s/a", core.Outcome{Result: model.Result{Until: noon.Add(time.Hour)}}, live)
		},
		"a cancellation": func(r *core.Run) { r.Cancel("no", noon) },
		"an end":         func(r *core.Run) { r.Finish("p/s/b", core.Outcome{Err: model.Permanent(errors.New("no"))}, live) },
	} {
		run := begin()
		if tasks := run.Ready(live); len(tasks) != 2 || !run.Dirty() || run.MustSave() {
			t.Fatalf("%d tasks have started: have dirty %v, must save %v", len(tasks), run.Dirty(), run.MustSave())
		}
		do(run)
		if run.Ready(live); !run.MustSave() {
			t.Errorf("%s need not be saved", what)
		}
		if run.Change(); run.MustSave() || run.Dirty() {
			t.Errorf("%s is to be saved twice", what)
		}
	}
}

// A second attempt that starts is nothing new, the delay before it was saved.
func TestRepetitionNeedNotBeSavedBeforeItStarts(t *testing.T) {
	t.Parallel()
	run, task, live := call(t, model.Event{Type: "p"})
	run.Finish(task.Ref(), core.Outcome{Err: &model.StatusError{Status: 503}}, live)
	run.Ready(live)
	live.Now = run.Change().Due
	if tasks := run.Ready(live); len(tasks) != 1 || run.MustSave() {
		t.Errorf("have %d tasks, must save %v", len(tasks), run.MustSave())
	}
}

// Of a call that must not be repeated blindly, a trace is durable before it starts.
func TestMustSaveBeforeACallWithOnUnknown(t *testing.T) {
	t.Parallel()
	for onUnknown, want := range map[string]bool{
		"retry": false, "park": true,
		`{verify: {request: {}, done: !$ "sources.call.status == 200"}}`: true,
	} {
		run := core.Begin(plan(t, `
pipelines:
- id: p
  stages:
  - id: s
    handlers:
    - {id: call, request: {}, on-unknown: `+onUnknown+`}
`), core.Start{ID: "r1", Event: model.Event{Type: "p"}})
		if run.Ready(core.Live{Now: noon}); run.MustSave() != want {
			t.Errorf("%s: have must save %v, want %v", onUnknown, run.MustSave(), want)
		}
	}
}

// undoing begins a run, fails it, and returns it while it compensates.
func undoing(t *testing.T) (*core.Run, core.Live) {
	t.Helper()
	live := core.Live{Now: noon}
	run := core.Begin(plan(t, `
pipelines:
- id: p
  stages:
  - {id: s, handlers: [{id: a, request: {x: 1}, compensate: {request: {undo: 1}, retry: {attempts: 2, jitter: 0}}}]}
  - {id: t, handlers: [{id: b, request: {x: 2}}]}
`), core.Start{ID: "r1", Event: model.Event{Type: "p"}})
	run.Ready(live)
	run.Finish("p/s/a", core.Outcome{}, live)
	run.Ready(live)
	run.Finish("p/t/b", core.Outcome{Err: model.Permanent(errors.New("no"))}, live)
	if tasks := run.Ready(live); len(tasks) != 1 || tasks[0].Ref() != "p/s/a/compensate" {
		t.Fatalf("want the compensation, have %+v", tasks)
	}
	return run, live
}

func TestCompensationEmitsOnlyData(t *testing.T) {
	t.Parallel()
	run, live := undoing(t)
	run.Finish("p/s/a/compensate", core.Outcome{Result: model.Result{Emit: []model.Event{{Type: "q", Payload: math.NaN()}}}}, live)
	if have := run.TakeEmits(); len(have) != 0 {
		t.Errorf("have %+v", have)
	}
	run.Ready(live) // there is nothing else to undo
	if c := run.Change(); c.Status != model.Failed || !strings.Contains(c.Error, "payload of event 1: want a finite number, have NaN") {
		t.Errorf("have %s %q", c.Status, c.Error)
	}
}

// While a service is down its gate lets single calls probe it. However many of them fail,
// what is to be undone is not given up for that.
func TestProbesUseUpNoAttemptsOfACompensation(t *testing.T) {
	t.Parallel()
	run, live := undoing(t)
	for range 5 {
		run.Finish("p/s/a/compensate", core.Outcome{Err: failure("503"), Probe: true}, live)
		live.Now = run.Next()
		if tasks := run.Ready(live); len(tasks) != 1 {
			t.Fatalf("want another attempt, have %+v with the run %s", tasks, run.Status())
		}
	}
	run.Finish("p/s/a/compensate", core.Outcome{}, live)
	run.Ready(live)
	if have := run.Status(); have != model.Cancelled {
		t.Errorf("have %s, want it undone", have)
	}
}

// A crash must not hide a call that may have to be undone, should an operator cancel the
// run meanwhile: then it is not made again by itself.
func TestMustSaveBeforeACallThatCanBeUndone(t *testing.T) {
	t.Parallel()
	live := core.Live{Now: noon}
	run := core.Begin(plan(t, `
pipelines:
- id: p
  stages:
  - {id: s, handlers: [{id: a, request: {x: 1}, compensate: {request: {undo: 1}}}]}
`), core.Start{ID: "r1", Event: model.Event{Type: "p"}})
	for range 2 {
		if tasks := run.Ready(live); len(tasks) != 1 || !run.MustSave() {
			t.Fatalf("%d tasks have started: must save %v", len(tasks), run.MustSave())
		}
		run.Change()
		run.Finish("p/s/a", core.Outcome{Err: failure("503")}, live)
		run.Change()
		live.Now = run.Next()
	}
}
