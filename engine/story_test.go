package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"procaas/engine"
	"procaas/engine/explain"
	"procaas/engine/model"
	"procaas/engine/store"
)

const told = `
pipelines:
  - id: work
    shared-state: {total: 0, note: null}
    stages:
      - id: a
        handlers:
          - id: fetch
            step: {value: {price: !$ event.payload.price}}
            result: {total: !$ sources.fetch.response.price, note: !$ event.payload.text}
            retry: {attempts: 3, min-delay: 1h, max-delay: 1h, jitter: 0, on: any}
          - {id: check, step: {value: {of: !$ shared-state.total, token: !secret TOKEN}}}
      - id: b
        handlers:
          - {id: double, step: {value: !$ shared-state.total}, result: {total: !$ shared-state.total * 2, note: short}}
          - {id: last, step: {value: !$ shared-state.note}}
`

// A story has all values of their time: what a handler was asked, what it replaced, and
// when it was tried.
func TestStoryTellsStateAndAttempts(t *testing.T) {
	t.Parallel()
	r := newVirtualRig(t, told)
	e := r.v.Engine()
	calls := 0
	r.on("fetch", func(_ context.Context, _ *engine.Call, value any) (model.Result, error) {
		if calls++; calls < 3 {
			return model.Result{}, fmt.Errorf("no stock at call %d", calls)
		}
		return model.Result{Response: value, Status: 200}, nil
	})
	r.on("check", func(context.Context, *engine.Call, any) (model.Result, error) { return model.Result{}, nil })
	wide := strings.Repeat("wide ", 1000)
	run := r.submit(e, model.Event{Type: "work", Payload: map[string]any{"price": 7, "text": wide}})
	r.drain()
	if err := r.v.Until(t.Context(), r.began.Add(3*time.Hour)); err != nil {
		t.Fatal(err)
	}
	story, err := e.Story(t.Context(), run)
	if err != nil || story.Run.Status != model.Succeeded || len(story.Stages) != 2 || len(story.Missing) > 0 {
		t.Fatalf("have %+v, %v", story, err)
	}
	fetch, check := story.Stages[0].Steps[0], story.Stages[0].Steps[1]
	if len(fetch.Tries) != 3 {
		t.Fatalf("want three attempts, have %+v", fetch.Tries)
	}
	for i, want := range []string{"no stock at call 1", "no stock at call 2", ""} {
		at := r.began.Add(time.Duration(i) * time.Hour)
		if have := fetch.Tries[i]; have.Number != i+1 || !strings.Contains(have.Error, want) || have.Error == "" != (want == "") ||
			have.Began.Before(at) ||
			have.Ended == nil || have.Ended.Sub(at) > time.Minute {
			t.Errorf("attempt %d: want %q at %s, have %+v", i+1, want, at, have)
		}
	}
	if len(check.Tries) > 0 {
		t.Errorf("want no attempts told of a handler with only one, have %+v", check.Tries)
	}
	values := func(changes []explain.StateChange) string {
		text := ""
		for _, c := range changes {
			text += fmt.Sprintf("%s %v%.9s>%v%.9s; ", c.Name, c.Before.Value, c.Before.Gone, c.After.Value, c.After.Gone)
		}
		return text
	}
	for _, want := range []struct{ have, text string }{
		{values(story.Stages[0].Changes), "total 0>7; note <nil>><nil>work/b/do; "},
		{values(story.Stages[1].Changes), "total 7>14; note <nil>work/b/do>short; "},
		{values(fetch.Changes), "total 0>7; note <nil>><nil>work/b/do; "},
		{values(check.Changes), ""},
		{fmt.Sprint(fetch.Request, fetch.Status), "map[value:map[price:7]] 200"},
		{fmt.Sprint(check.Request), "map[value:map[of:7 token:***]]"},
		{check.ResponseGone, "it is not kept, since nothing later reads it"},
		{fmt.Sprint(story.Stages[1].Steps[0].Request), "map[value:7]"},
		{fmt.Sprint(story.Stages[1].Steps[1].Request), "map[value:short]"},
		{check.Summary, "it ran, and its first attempt succeeded"},
	} {
		if want.have != want.text {
			t.Errorf("want %s\nhave %s", want.text, want.have)
		}
	}
	if _, err := e.Story(t.Context(), "nobody"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("have %v", err)
	}
}
