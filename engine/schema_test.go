package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"procaas/engine"
	"procaas/engine/definitions"
	"procaas/engine/model"
	"procaas/engine/store"
)

const promised = `
configs: {LIMIT: {most: 5}}
config-schemas: {LIMIT: {type: object, required: [most], properties: {most: {type: integer, maximum: 10}}}}
events:
  - {type: order, payload: {type: object, required: [id], properties: {id: {type: string},
      lines: {type: array, items: {type: object, required: [sku]}}}}}
  - {type: done, payload: {type: object, required: [id], properties: {id: {type: string}}}}
pipelines:
  - id: order
    shared-state: {price: null, note: none}
    state-schemas: {price: {type: number}}
    stages:
      - id: a
        handlers:
          - id: ask
            response-schema: {type: object, required: [price], properties: {price: {type: number}, tip: {type: number}}}
            step: {}
            result: {price: !$ sources.ask.response.price}
          - id: hint
            critical: false
            response-schema: {type: string}
            step: {}
            result: {note: !$ sources.hint.response}
            fallback: {result: {note: no hint}}
  - id: done
    stages: [{id: a, handlers: [{id: end, step: {}}]}]
`

func answer(v any) func(context.Context, *engine.Call, any) (model.Result, error) {
	return func(context.Context, *engine.Call, any) (model.Result, error) {
		return model.Result{Response: v}, nil
	}
}

func TestPayloadThatDoesNotFitItsSchemaIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	e := r.engine(r.store, promised)
	have := r.refuse(e, model.Event{Type: "order", Payload: map[string]any{
		"id": 5, "lines": []any{map[string]any{"sku": "a"}, map[string]any{}},
	}})
	if have.Code != "invalid_payload" || len(have.Faults) != 2 {
		t.Fatalf("want two faults of an invalid_payload, have %+v", have)
	}
	if at := have.Faults[0].String(); at != "payload.id: want a string, have 5" {
		t.Errorf("have %s", at)
	}
	if at := have.Faults[1].String(); at != "payload.lines.1.sku: is missing" {
		t.Errorf("have %s", at)
	}
	if !strings.Contains(have.Message, "the payload of order: id: want a string, have 5 (and 1 more)") {
		t.Errorf("have %s", have.Message)
	}
	if d, _ := r.store.Inbox.Depth(context.Background()); d.Waiting != 0 {
		t.Error("want nothing stored")
	}
}

func TestResponseThatDoesNotFitItsSchemaIsAnError(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.on("ask", answer(map[string]any{"price": "12"}))
		e, _ := r.start(promised)
		run := r.submit(e, model.Event{Type: "order", Payload: map[string]any{"id": "o-1"}})
		view := r.settle(e, run, model.Failed)
		if view.ErrorClass != "schema" || !strings.Contains(view.Error, `the response of ask: price: want a number, have "12"`) {
			t.Errorf("want an error of the class schema that names the place, have %s: %s", view.ErrorClass, view.Error)
		}
		if calls := len(r.calls.Of("order/a/ask")); calls != 1 {
			t.Errorf("want no repetition of what would be the same, have %d calls", calls)
		}
	})
}

func TestStandInCountsAfterAResponseThatDoesNotFit(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.on("ask", answer(map[string]any{"price": 12.5}))
		r.on("hint", answer(nil))
		e, _ := r.start(promised)
		run := r.submit(e, model.Event{Type: "order", Payload: map[string]any{"id": "o-1"}})
		view := r.settle(e, run, model.Succeeded)
		if view.SharedState["note"] != "no hint" || view.SharedState["price"] != 12.5 {
			t.Errorf("want the price, and what stands in for the hint, have %v", view.SharedState)
		}
	})
}

func TestStateThatDoesNotFitItsSchemaIsAnError(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.on("ask", answer(map[string]any{"price": "12"}))
		r.on("hint", answer("soon"))
		untold := strings.Replace(promised, "response-schema: {type: object, required: [price], properties: {price: {type: number}, tip: "+
			"{type: number}}}", "timeout: 1m", 1)
		e, _ := r.start(untold)
		run := r.submit(e, model.Event{Type: "order", Payload: map[string]any{"id": "o-1"}})
		view := r.settle(e, run, model.Failed)
		if view.ErrorClass != "schema" || !strings.Contains(view.Error, `shared-state.price: want a number, have "12"`) {
			t.Errorf("want an error of the class schema that names the name, have %s: %s", view.ErrorClass, view.Error)
		}
	})
}

func TestEmittedPayloadThatDoesNotFitFailsTheHandler(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.on("hint", answer("soon"))
		e, _ := r.start(promised)
		r.on("ask", func(context.Context, *engine.Call, any) (model.Result, error) {
			return model.Result{Response: map[string]any{"price": 1}, Emit: []model.Event{{Type: "done", Payload: map[string]any{"id": nil}}}}, nil
		})
		run := r.submit(e, model.Event{Type: "order", Payload: map[string]any{"id": "o-1"}})
		view := r.settle(e, run, model.Failed)
		if view.ErrorClass != "schema" ||
			!strings.Contains(view.Error, "emitted event done: the payload of done: id: want a string, have null") {
			t.Errorf("want the event and the place, have %s: %s", view.ErrorClass, view.Error)
		}
	})
}

func TestConfigThatDoesNotFitItsSchemaIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	e := r.engine(r.store, promised)
	var wrong *definitions.ConfigError
	_, err := e.SetConfig(context.Background(), "LIMIT", map[string]any{"most": 11}, 0, store.Actor{})
	if !errors.As(err, &wrong) || wrong.Code != "invalid_config" || wrong.Message != "config LIMIT: most: want 10 or less, have 11" {
		t.Errorf("want the place and the bound, have %v", err)
	}
	if _, err := e.SetConfig(context.Background(), "LIMIT", map[string]any{"most": 10}, 0, store.Actor{}); err != nil {
		t.Errorf("want a value that fits taken, have %v", err)
	}
}
