package dsl_test

import (
	"testing"

	"procaas/dsl"
	"procaas/dsl/diag"
)

// What an earlier program has stored runs on, although this one finds more in it.
func TestStoredFilesRunWithErrorsThatOnlyThisProgramFinds(t *testing.T) {
	t.Parallel()
	files := splitFiles(`-- p.yaml --
services: [{id: orders, url: http://127.0.0.1:9081, openapi: orders.yaml}]
pipelines:
  - id: p
    shared-state: {x: 0}
    state-schemas: {x: {type: number}}
    stages:
      - id: s
        handlers:
          - {id: get, request: {service: orders, path: !$ "'/v1/orders/' + event.id"}}
          - {id: set, set: {x: !$ "5 - (event.payload.discount ?? 0)"}}
          - {id: put, set: {x: !$ "event.payload.discount ?? 0"}}
events: [{type: p, payload: {type: object, properties: {discount: {type: string}}}}]
-- orders.yaml --
openapi: 3.1.0
paths:
  /v2/orders/{id}: {get: {responses: {'200': {description: one}}}}
`)
	o := dsl.Options{Language: language(), Types: testTypes()}
	if b, found := dsl.Load(files, o); b != nil || len(found) != 3 {
		t.Fatalf("new files: want 3 errors, have %s", show(found))
	}
	o.Stored = true
	b, found := dsl.Load(files, o)
	if b == nil || len(found) != 3 || diag.HasErrors(found) {
		t.Fatalf("stored files: want 3 warnings, have %s", show(found))
	}
	x := b.Pipelines[0].Stages[0].Handlers[1].Body.Get("x")
	if v, err := x.Eval(map[string]any{"event": map[string]any{"payload": map[string]any{}}}); v != 5 || err != nil {
		t.Errorf("have %v, %v", v, err)
	}
}
