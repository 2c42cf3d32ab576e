package tree

import (
	"procaas/dsl/contracts"
	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/typing"
)

// A Call runs another pipeline instead of a call of a service. The response of the handler is the outputs of that
// pipeline, which has its own shared state. The called pipeline belongs to the run and shares its checkpoints. After a
// crash only its unfinished handlers run again. Events of the key wait until everything is done. Its switches, limits
// and metrics are those of its own paths, for every caller.
//
// When one of its critical handlers fails, this handler fails with that error. An operator's retry of the run resumes inside it.
type Call struct {
	Span diag.Span `yaml:"-"`

	places

	// Pipeline is the pipeline to run. It must declare inputs or outputs. A pipeline cannot call itself, directly or indirectly.
	Pipeline string `yaml:"pipeline" required:"true" pattern:"id"`

	// With sets the inputs of the pipeline.
	With *expr.Value `yaml:"with" kind:"map"`
}

// IsCalled reports whether calls of other pipelines run the pipeline, and no events: it
// declares inputs, or a handler calls it.
func (p *Pipeline) IsCalled() bool { return p.Inputs != nil || p.Called && p.Outputs != nil }

// CanBeCalled reports whether a handler may call the pipeline.
func (p *Pipeline) CanBeCalled() bool { return p.Inputs != nil || p.Outputs != nil }

// InputContract is what an input of the pipeline must be; nil for anything.
func (p *Pipeline) InputContract(name string) *contracts.Contract { return p.InputContracts[name] }

// OutputContract is what an output of the pipeline must be; nil for anything.
func (p *Pipeline) OutputContract(name string) *contracts.Contract { return p.OutputContracts[name] }

// InputDefaults are the inputs of the pipeline that a call may leave out.
func (p *Pipeline) InputDefaults() map[string]any {
	out := make(map[string]any)
	for i, k := range p.Inputs.Keys() {
		if preset := p.Inputs.Elems[i].Get("default"); preset != nil {
			out[k.Name], _ = preset.Literal()
		}
	}
	return out
}

// With is what a handler gives to the pipeline that it calls; nil when it calls none.
func (h *Handler) With() *expr.Value {
	if h.Call == nil {
		return nil
	}
	return h.Call.With
}

// InputOutline is what is known of the inputs of a pipeline.
func (p *Pipeline) InputOutline() *typing.Outline {
	members := make(map[string]*typing.Member)
	for _, k := range p.Inputs.Keys() {
		members[k.Name] = &typing.Member{Outline: p.InputContracts[k.Name].Outline(), Required: true}
	}
	return &typing.Outline{Shape: datum.MapShape, Closed: true, Members: members}
}
