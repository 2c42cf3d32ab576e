package engine_test

import (
	"context"
	"embed"

	"procaas/dsl"
	"procaas/dsl/diag"
	"procaas/dsl/spec"
	"procaas/dsl/tree"
	"procaas/engine"
	"procaas/engine/model"
	"procaas/engine/planner"
)

//go:embed types_test.go
var typesFiles embed.FS

// A request replaces any call; the script says how it ends.
type request struct {
	// Fields are what the call is made with.
	Fields map[string]any `yaml:",inline"`
}

func (*request) Handle(context.Context, *engine.Call) (model.Result, error) {
	return model.Result{}, nil
}

// An emit replaces a handler that hands in events.
type emit struct {
	// Type is the type of the event.
	Type string `yaml:"type"`
}

func (*emit) Handle(context.Context, *engine.Call) (model.Result, error) {
	return model.Result{}, nil
}

func (*emit) Emits() {}

// A set computes names of the shared state.
type set struct {
	// Values are the new values by the names of the shared state.
	Values map[string]any `yaml:",inline"`
}

func (*set) Handle(context.Context, *engine.Call) (model.Result, error) {
	panic("the core computes it")
}

func (*set) SetsState() {}

// testTypes are the handler types of the tests of this package.
func testTypes() []engine.HandlerType {
	return []engine.HandlerType{
		engine.Type[request]("request", spec.Read(typesFiles)),
		engine.Type[emit]("emit", spec.Read(typesFiles)),
		engine.Type[set]("set", spec.Read(typesFiles)),
	}
}

// load reads one file and plans its pipelines, in order.
func load(yaml string) ([]*planner.Plan, []diag.Diagnostic, error) {
	files := []diag.File{{Name: "p.yaml", Data: []byte(yaml)}}
	bundle, found := dsl.Load(files, dsl.Options{Types: facts()})
	if bundle == nil {
		return nil, found, nil
	}
	var plans []*planner.Plan
	for _, p := range bundle.Pipelines {
		plan, err := planner.New(bundle, p, facts())
		if err != nil {
			return nil, found, err
		}
		plans = append(plans, plan)
	}
	return plans, found, nil
}

// facts are what plans know of the types.
func facts() []tree.Type { return engine.Types(testTypes()) }

// plan reads one file with one pipeline.
func plan(t interface {
	Helper()
	Fatal(args ...any)
}, yaml string,
) *planner.Plan {
	t.Helper()
	plans, found, err := load(yaml)
	if len(plans) == 0 || err != nil {
		t.Fatal(yaml, found, err)
	}
	return plans[0]
}
