package engine_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"procaas/engine"
	"procaas/engine/enginetest"
	"procaas/engine/intake"
	"procaas/engine/model"
)

const door = `
flows:
  - id: door
    key: !$ event.payload.door.number
    states:
      initial: closed
      final: [gone]
      transitions:
        - {from: closed, on: open-it, to: open}
        - {from: open, on: close-it, to: closed}
        - {from: [open, closed], on: remove-it, to: gone}
      otherwise: OTHERWISE
pipelines:
  - {id: open-it, flow: door, stages: [{id: a, handlers: [{id: one, step: {}}]}]}
  - {id: close-it, flow: door, stages: [{id: a, handlers: [{id: two, step: {}}]}]}
  - {id: remove-it, flow: door, stages: [{id: a, handlers: [{id: three, step: {}}]}]}
`

func doorEvent(eventType string) model.Event {
	return model.Event{Type: eventType, Payload: map[string]any{"door": map[string]any{"number": 7}}}
}

func TestSubmitRefusesWhatNobodyCouldServe(t *testing.T) {
	t.Parallel()
	deep := any("bottom")
	for range 100 {
		deep = []any{deep}
	}
	for _, c := range []struct {
		name        string
		event       model.Event
		code, field string
		says        string
	}{
		{"unknown type", model.Event{Type: "opn-it"}, "unknown_event_type", "type", "did you mean open-it?"},
		{"no type", model.Event{}, "invalid_event", "type", "want the type"},
		{
			"no key",
			model.Event{Type: "open-it", Payload: map[string]any{"door": map[string]any{}}},
			"missing_key", "payload.door.number",
			"missing",
		},
		{"no payload", model.Event{Type: "open-it"}, "missing_key", "payload.door.number", "door"},
		{
			"empty key",
			model.Event{Type: "open-it", Payload: map[string]any{"door": map[string]any{"number": ""}}},
			"missing_key",
			"payload.door.number", "empty",
		},
		{
			"key of another kind",
			model.Event{Type: "open-it", Payload: map[string]any{"door": map[string]any{"number": 1.5}}},
			"invalid_event",
			"payload.door.number", "want a string or an integer, have a number",
		},
		{
			"long key",
			model.Event{Type: "open-it", Payload: map[string]any{"door": map[string]any{"number": strings.Repeat("k", 1025)}}},
			"invalid_event", "payload.door.number", "1024",
		},
		{"unprintable id", model.Event{Type: "open-it", ID: "a\nb"}, "invalid_event", "id", "printable"},
		{"long id", model.Event{Type: "open-it", ID: strings.Repeat("i", 201)}, "invalid_event", "id", "at most 200 bytes"},
		{"long source", model.Event{Type: "open-it", Source: strings.Repeat("s", 201)}, "invalid_event", "source", "at most 200 bytes"},
		{"source of the engine", model.Event{Type: "open-it", Source: "procaas/trigger/clock"}, "invalid_event", "source", "reserved"},
		{
			"source of the engine in disguise",
			model.Event{Type: "open-it", Source: `/PROCAAS%252Fqueue\x`},
			"invalid_event", "source",
			"reserved",
		},
		{"deep payload", model.Event{Type: "open-it", Payload: deep}, "invalid_event", "payload", "levels"},
		{"payload that is no data", model.Event{Type: "open-it", Payload: int64(1)}, "invalid_event", "payload", "int64"},
		{"not a number", model.Event{Type: "open-it", Payload: math.NaN()}, "invalid_event", "payload", "finite"},
		{"zero byte", model.Event{Type: "open-it", Payload: "a\x00b"}, "invalid_event", "payload", "U+0000"},
		{"negative tolerance", model.Event{Type: "open-it", DelayTolerance: -1}, "invalid_event", "delay_tolerance", "0s"},
		{"huge priority", model.Event{Type: "open-it", Priority: 1 << 40}, "invalid_event", "priority", "1000000"},
		{"absurd time", model.Event{Type: "open-it", At: time.Date(12000, 1, 1, 0, 0, 0, 0, time.UTC)}, "invalid_event", "at", "9999"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			e := r.engine(r.store, strings.ReplaceAll(door, "OTHERWISE", "reject"))
			have := r.refuse(e, c.event)
			if have.Code != c.code || have.Field != c.field || !strings.Contains(have.Message, c.says) {
				t.Errorf("want %s at %s with %q, have %s at %s: %s", c.code, c.field, c.says, have.Code, have.Field, have.Message)
			}
			if d, _ := r.store.Inbox.Depth(context.Background()); d.Waiting != 0 {
				t.Error("want nothing stored")
			}
		})
	}
}

func TestRepeatedEventGivesTheSameRun(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	e := r.engine(r.store, strings.ReplaceAll(door, "OTHERWISE", "reject"))
	ev := doorEvent("open-it")
	ev.ID, ev.Source = "e1", "test"
	first := r.submit(e, ev)
	again, err := e.Submit(context.Background(), []intake.Submission{{Event: ev}})
	if err != nil || !again[0].Receipt.Duplicate || again[0].Receipt.Run != first {
		t.Errorf("want a duplicate of %s, have %+v and %v", first, again, err)
	}
	ev.Payload.(map[string]any)["more"] = true
	if have := r.refuse(e, ev); have.Code != "id_conflict" || !strings.Contains(have.Message, "as run "+first+": here payload.more is new.") {
		t.Errorf("want id_conflict with what differs, have %s: %s", have.Code, have.Message)
	}
	ev.Source = "other"
	if run := r.submit(e, ev); run == first {
		t.Error("want an id of another source to be another event")
	}
}

// Each part of an event that its hash covers is named when it differs. The values of the first event are not.
func TestConflictNamesWhatDiffers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	yaml := "pipelines: [{id: p, on: [p, q], stages: [{id: a, handlers: [{id: one, step: {}}]}]}]"
	e := r.engine(r.store, yaml)
	first := func() model.Event {
		return model.Event{
			ID: "e1", Source: "test", Type: "p", Key: "k", Labels: "city=berlin", Time: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
			At: time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC), Priority: 1, DelayTolerance: time.Second,
			Payload: map[string]any{"n": 5, "secret": "s3cret", "lines": []any{map[string]any{"price": 1}, map[string]any{"price": 2}}},
		}
	}
	r.submit(e, first())
	part := func(ev *model.Event, change func(payload map[string]any)) { change(ev.Payload.(map[string]any)) }
	for says, change := range map[string]func(ev *model.Event){
		"type has another value":            func(ev *model.Event) { ev.Type = "q" },
		"key is missing":                    func(ev *model.Event) { ev.Key = "" },
		"time has another value":            func(ev *model.Event) { ev.Time = ev.Time.Add(time.Nanosecond) },
		"time is missing":                   func(ev *model.Event) { ev.Time = time.Time{} },
		"at is missing":                     func(ev *model.Event) { ev.At = time.Time{} },
		"delay_tolerance has another value": func(ev *model.Event) { ev.DelayTolerance++ },
		"priority is missing":               func(ev *model.Event) { ev.Priority = 0 },
		"labels has another value":          func(ev *model.Event) { ev.Labels = "city=rome" },
		"payload is a string instead of a mapping": func(ev *model.Event) {
			ev.Payload = "s3cret"
		},
		"payload.secret has another value": func(ev *model.Event) { part(ev, func(p map[string]any) { p["secret"] = "x" }) },
		"payload.secret is missing":        func(ev *model.Event) { part(ev, func(p map[string]any) { delete(p, "secret") }) },
		"payload.n is a number instead of an integer": func(ev *model.Event) {
			part(ev, func(p map[string]any) { p["n"] = 5.5 })
		},
		"payload.lines has 1 elements instead of 2": func(ev *model.Event) { part(ev, func(p map[string]any) { p["lines"] = []any{1} }) },
		"payload.lines.1.price has another value, payload.more is new": func(ev *model.Event) {
			part(ev, func(p map[string]any) {
				p["lines"] = []any{map[string]any{"price": 1}, map[string]any{"price": 3}}
				p["more"] = nil
			})
		},
	} {
		ev := first()
		change(&ev)
		have := r.refuse(e, ev)
		if have.Code != "id_conflict" || !strings.Contains(have.Message, ": here "+says+". ") || strings.Contains(have.Message, "s3cret") {
			t.Errorf("want id_conflict with %q, have %s: %s", says, have.Code, have.Message)
		}
	}
	same := first()
	part(&same, func(p map[string]any) { p["n"] = 5.0 })
	r.submit(e, same) // a duplicate, as its hash says
	many := first()
	part(&many, func(p map[string]any) {
		for i := range 30 {
			p[fmt.Sprintf("m%02d", i)] = i
		}
	})
	if have := r.refuse(e, many); len(have.Faults) != 10 || !strings.Contains(have.Message, "m09 is new, and 20 other parts differ. ") {
		t.Errorf("want 10 of 30 parts, have %d: %s", len(have.Faults), have.Message)
	}
}

func TestReservedSourcesAreKnownInAnyForm(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]bool{
		"procaas/trigger/clock": true, "procaas/": true, "PROCAAS/run/1": true, "/procaas/x": true, "//Procaas/x": true, "./procaas/x": true,
		"../procaas/x": true, " procaas/x": true, "procaas /x": true, `procaas\x`: true, `\procaas\x`: true, "procaas%2Fx": true,
		"%70rocaas/x": true, "procaas%252fx": true, "%2fprocaas%5cx": true, "procaas%20/x": true, "%70rocaas/%zz": true,
		"console/boss": true, "Console/boss": true, "//console/boss": true, "console%2Fboss": true, "console": false, "console-x/a": false,
		"procaas": false, "procaas-shop/x": false, "shop/procaas/x": false, "https://procaas/x": false, "orders": false, "": false, "%": false,
	} {
		if have := model.IsReservedSource(source); have != want {
			t.Errorf("%q: want %v, have %v", source, want, have)
		}
	}
}

// A run emits an event with the id of one that somebody has submitted before.
func TestSubmitterCannotPreemptWhatARunEmits(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.on("one", func(context.Context, *engine.Call, any) (model.Result, error) {
			return model.Result{Emit: []model.Event{{Type: "second", Source: "bank", ID: "d-1"}}}, nil
		})
		e, _ := r.start(`
pipelines:
  - {id: first, stages: [{id: a, handlers: [{id: one, step: {}}]}]}
  - {id: second, stages: [{id: a, handlers: [{id: two, step: {}}]}]}
`)
		early := model.Event{Type: "second", Source: "bank", ID: "d-1", Inner: true}
		r.submit(e, early)
		r.submit(e, model.Event{Type: "first"})
		r.submit(e, model.Event{Type: "first"})
		pass(time.Minute)
		emitted := 0
		for _, c := range r.calls.Calls() {
			if c.Path == "second/a/two" && c.Event.Inner {
				emitted++
			}
		}
		if emitted != 1 {
			t.Errorf("want the emitted event once, have it %d times", emitted)
		}
	})
}

func TestBatchIsJudgedEventByEvent(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	e := r.engine(r.store, three)
	batch := make([]intake.Submission, 600)
	for i := range batch {
		batch[i].Event = event("work", fmt.Sprint(i))
	}
	batch[300].Event.Type = "wrok"
	out, err := e.Submit(context.Background(), batch)
	if err != nil || len(out) != len(batch) {
		t.Fatalf("want %d results, have %d and %v", len(batch), len(out), err)
	}
	for i, s := range out {
		if (s.Err != nil) != (i == 300) {
			t.Fatalf("event %d: %+v", i, s)
		}
		if i != 300 && r.view(e, s.Receipt.Run).Key != fmt.Sprint(i) {
			t.Fatalf("event %d has the run of another one", i)
		}
	}
}

func TestConcurrentSubmissionsShareTransactions(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var accepts atomic.Int32
		e := r.engine((&enginetest.Faulty{Store: r.store, Before: func(op string) error {
			if op == "accept" {
				accepts.Add(1)
				time.Sleep(time.Millisecond)
			}
			return nil
		}}).Ports(), three)
		var senders sync.WaitGroup
		for i := range 500 {
			senders.Go(func() { r.submit(e, event("work", fmt.Sprint(i))) })
		}
		senders.Wait()
		if n := accepts.Load(); n > 5 {
			t.Errorf("want 500 events in a few transactions, have %d", n)
		}
	})
}

func TestStoreFailureAtIntakeIsToldToAll(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	e := r.engine((&enginetest.Faulty{Store: r.store, Before: func(string) error { return enginetest.ErrInjected }}).Ports(), three)
	if out, err := e.Submit(context.Background(), []intake.Submission{{Event: event("work", "k")}}); err == nil {
		t.Errorf("want the store's error, have %+v", out)
	}
}

func TestAutomatonRejectsAtIntake(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		e, _ := r.start(strings.ReplaceAll(door, "OTHERWISE", "reject"))
		have := r.refuse(e, doorEvent("close-it"))
		if have.Code != "event_rejected" || !strings.Contains(have.Message, "allowed in: open") {
			t.Errorf("want event_rejected with the states that allow it, have %+v", have)
		}
		open := doorEvent("open-it")
		open.ID = "open"
		run := r.submit(e, open)
		r.settle(e, run, model.Succeeded)
		r.settle(e, r.submit(e, doorEvent("remove-it")), model.Succeeded)
		if again, err := e.Submit(context.Background(), []intake.Submission{{Event: open}}); err != nil || !again[0].Receipt.Duplicate {
			t.Errorf("want a repetition found also in a final state, have %+v and %v", again, err)
		}
		for _, gone := range []string{"open-it", "close-it", "remove-it"} {
			if have := r.refuse(e, doorEvent(gone)); have.Code != "event_rejected" {
				t.Errorf("%s in the final state: %+v", gone, have)
			}
		}
		if v, err := e.Entity(context.Background(), "door", "7"); err != nil || v.State != "gone" {
			t.Errorf("want the state gone, have %+v and %v", v, err)
		}
	})
}

func TestAutomatonJudgesLateWhenOthersAreBefore(t *testing.T) {
	t.Parallel()
	for otherwise, want := range map[string]struct {
		status model.Status
		reason string
	}{
		"reject": {model.Ignored, "rejected: state open has no transition on open-it"},
		"ignore": {model.Ignored, "state open has no transition on open-it"},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			open := make(gate)
			r.on("one", open.do)
			e, _ := r.start(strings.ReplaceAll(door, "OTHERWISE", otherwise))
			r.submit(e, doorEvent("open-it"))
			second := r.submit(e, doorEvent("open-it"))
			close(open)
			if v := r.settle(e, second, want.status); v.Reason != want.reason {
				t.Errorf("%s: want %q, have %q", otherwise, want.reason, v.Reason)
			}
			r.want("open-it/a/one")
		})
	}
}

func TestDeferredEventRunsWhenTheStateAllowsIt(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		e, _ := r.start(strings.ReplaceAll(door, "OTHERWISE", "defer"))
		early := r.submit(e, doorEvent("close-it"))
		pass(2 * time.Second)
		if v := r.view(e, early); v.Status != model.Waiting {
			t.Errorf("want the early event set aside, have %s", v.Status)
		}
		r.settle(e, r.submit(e, doorEvent("open-it")), model.Succeeded)
		r.settle(e, early, model.Succeeded)
		r.settle(e, r.submit(e, doorEvent("remove-it")), model.Succeeded)
		if v := r.settle(e, r.submit(e, doorEvent("open-it")), model.Ignored); !strings.HasPrefix(v.Reason, "rejected:") {
			t.Errorf("want an event refused that can never run, have %q", v.Reason)
		}
		r.want("open-it/a/one", "close-it/a/two", "remove-it/a/three")
	})
}

func TestFirstPipelineWhoseWhenIsTrueServes(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		e, _ := r.start(`
configs: {LIMIT: 10}
flows: [{id: payment}]
pipelines:
  - id: big
    flow: payment
    on: paid
    when: !$ event.payload.sum > configs.LIMIT
    stages: [{id: a, handlers: [{id: one, step: {}}]}]
  - id: odd
    flow: payment
    on: paid
    when: !$ event.payload.sum == 9
    stages: [{id: a, handlers: [{id: two, step: {}}]}]
`)
		pay := func(sum any) model.Event {
			return model.Event{Type: "paid", Key: "k", Payload: map[string]any{"sum": sum}}
		}
		for sum, want := range map[int]string{11: "big", 9: "odd"} {
			if v := r.settle(e, r.submit(e, pay(sum)), model.Succeeded); v.Pipeline != want {
				t.Errorf("sum %d: want %s, have %s", sum, want, v.Pipeline)
			}
		}
		if v := r.settle(e, r.submit(e, pay(2)), model.Ignored); !strings.Contains(v.Reason, "when is false") {
			t.Errorf("want the reason told, have %q", v.Reason)
		}
		if v := r.settle(e, r.submit(e, pay("much")), model.Failed); !strings.Contains(v.Error, "when") {
			t.Errorf("want the error of when told, have %q", v.Error)
		}
	})
}

func TestScheduledEventWaitsForItsTime(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		e, _ := r.start(three)
		ev := event("work", "k")
		ev.At = time.Now().Add(time.Minute)
		later := r.submit(e, ev)
		r.settle(e, r.submit(e, event("work", "k")), model.Succeeded)
		pass(59 * time.Second)
		if v := r.view(e, later); v.Status != model.Waiting || v.Due == nil {
			t.Errorf("want the event to wait, have %s due %v", v.Status, v.Due)
		}
		r.settle(e, later, model.Succeeded)
		if late := time.Since(ev.At); late > 200*time.Millisecond {
			t.Errorf("want the event at its time, it was %s late", late)
		}
	})
}

func TestBacklogIsNotOvertaken(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.on("one", func(context.Context, *engine.Call, any) (model.Result, error) {
			time.Sleep(100 * time.Millisecond)
			return model.Result{}, nil
		})
		e := r.engine(r.store, three, func(o *engine.Options) { o.MaxInFlight = 2 })
		var runs, want []string
		for i := range 20 {
			runs, want = append(runs, r.submit(e, event("work", fmt.Sprint(i)))), append(want, fmt.Sprint(i))
		}
		r.run(e)
		pass(250 * time.Millisecond)
		runs, want = append(runs, r.submit(e, event("work", "new"))), append(want, "new")
		for _, run := range runs {
			r.settle(e, run, model.Succeeded)
		}
		var have []string
		for _, c := range r.calls.Of("work/a/one") {
			have = append(have, c.Key)
		}
		if have[len(have)-1] != "new" || len(have) != len(want) {
			t.Errorf("want the new event last, have %v", have)
		}
		slices.Sort(have)
		if slices.Sort(want); !slices.Equal(have, want) {
			t.Errorf("want %v, have %v", want, have)
		}
	})
}

// A reminder that comes in a day must not turn refusals into promises.
func TestAReminderLetsNoForbiddenEventIn(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		e, _ := r.start(`
flows:
  - id: order
    key: !$ event.payload.id
    states:
      initial: created
      transitions:
        - {from: created, on: pay, to: paid}
        - {from: paid, on: ship, to: shipped}
        - {from: [created, paid], on: remind, to: created}
      otherwise: reject
pipelines:
  - {id: pay, flow: order, stages: [{id: a, handlers: [{id: one, step: {}}]}]}
  - {id: ship, flow: order, stages: [{id: a, handlers: [{id: one, step: {}}]}]}
  - {id: remind, flow: order, stages: [{id: a, handlers: [{id: one, step: {}}]}]}
`)
		submit := func(kind string, at time.Time) intake.Submitted {
			t.Helper()
			ev := event(kind, "o-1")
			ev.At = at
			out, err := e.Submit(t.Context(), []intake.Submission{{Event: ev}})
			if err != nil {
				t.Fatal(err)
			}
			return out[0]
		}
		if s := submit("remind", time.Now().Add(24*time.Hour)); s.Err != nil || !s.Receipt.Undecided {
			t.Errorf("want the reminder accepted, and undecided, have %+v", s)
		}
		if refused := r.refuse(e, event("ship", "o-1")); refused.Code != "event_rejected" {
			t.Errorf("want the event refused that the present state forbids, have %+v", refused)
		}
		open := make(gate)
		r.on("one", open.do)
		if s := submit("pay", time.Time{}); s.Err != nil || s.Receipt.Undecided {
			t.Errorf("want what the state allows accepted, and decided, have %+v", s)
		}
		shipped := submit("ship", time.Time{})
		if shipped.Err != nil || !shipped.Receipt.Undecided {
			t.Errorf("want what may be allowed soon accepted, and undecided, have %+v", shipped)
		}
		close(open)
		r.settle(e, shipped.Receipt.Run, model.Succeeded)
	})
}
