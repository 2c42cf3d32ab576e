package flowtest

import (
	"context"
	"embed"
	"maps"
	"slices"

	"procaas/dsl/spec"
	"procaas/dsl/tree"
	"procaas/engine"
	"procaas/engine/model"
)

//go:embed mocked_call.go
var mockedCallFiles embed.FS

// A mockedCall stands for the call of a pipeline that a mock answers as a whole. It is
// never asked: the mock is.
type mockedCall struct {
	// Inputs are what the call gives to the pipeline.
	Inputs map[string]any `yaml:",inline"`
}

// mockedCallName is no name of a handler type that an author could write.
const mockedCallName = "call of a pipeline"

// Handle implements [engine.Handler].
func (*mockedCall) Handle(context.Context, *engine.Call) (model.Result, error) {
	return model.Result{}, model.Permanent(errNoAnswer)
}

// withMockedCalls returns the bundle and the handler types of a test: handlers that call a
// pipeline and have a mock of their own call nobody.
func (t *trial) withMockedCalls() (*tree.Bundle, []engine.HandlerType) {
	bundle, types := t.suite.Bundle, t.suite.env.Types
	paths := map[string]bool{}
	for _, path := range t.suite.names.paths {
		if h := bundle.Handler(path); h != nil && h.Call != nil && t.mocks(path) != nil {
			paths[path] = true
		}
	}
	if len(paths) == 0 {
		return bundle, types
	}
	types = append(slices.Clip(types), engine.Type[mockedCall](mockedCallName, spec.Read(mockedCallFiles)))
	return bundle.ReplaceCalls(mockedCallName, paths), types
}

// inputs are what a mocked call gives to the pipeline, with those that it leaves out.
func (t *trial) inputs(call *Call) map[string]any {
	h := t.suite.Bundle.Handler(call.Path)
	if h == nil || h.Call == nil {
		return call.Fields
	}
	given := t.suite.Bundle.Pipeline(h.Call.Pipeline).InputDefaults()
	maps.Copy(given, call.Fields)
	return given
}

// checkOutputs holds the reply of a mocked call against the schemas of the outputs: what
// the pipeline could never give proves nothing about its caller.
func (t *trial) checkOutputs(path string, a *Answer, reply any) {
	p := t.suite.Bundle.Pipeline(t.suite.Bundle.Handler(path).Call.Pipeline)
	outputs, _ := reply.(map[string]any)
	for _, k := range p.Outputs.Keys() {
		contract := p.OutputContract(k.Name)
		if contract == nil {
			continue
		}
		if err := contract.Check(outputs[k.Name]); err != nil {
			t.problem(a.Span, Difference{Path: "mocks." + a.Key.Name, Want: "the output " + k.Name + " of pipeline " + p.ID, Have: err.Error()})
		}
	}
}

// mockOfCall reports what the mock of a call says that no call gives: other names than
// the outputs of the pipeline.
func (c *checker) mockOfCall(h *tree.Handler, answers []*Answer) {
	p := c.suite.Bundle.Pipeline(h.Call.Pipeline)
	if p == nil {
		return
	}
	var known []string
	for _, k := range p.Outputs.Keys() {
		known = append(known, k.Name)
	}
	for _, a := range answers {
		for _, k := range a.Reply.Keys() {
			found := false
			for _, name := range known {
				found = found || name == k.Name
			}
			if !found {
				c.unknown(k.Span, "output of pipeline "+p.ID, k.Name, known)
			}
		}
	}
}
