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
// Handlers that move into a called pipeline get other paths. So their switches, mocks and metrics must move too, and a
// replay reports recorded runs as different. A template keeps the paths.
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

// IsCalled reports whether handlers start the pipeline instead of events: it declares inputs, or a handler
// calls it.
func (p *Pipeline) IsCalled() bool { return p.Inputs != nil || p.Called && p.Outputs != nil }

// CanBeCalled reports whether a handler may call the pipeline.
func (p *Pipeline) CanBeCalled() bool { return p.Inputs != nil || p.Outputs != nil }

// InputContract returns the contract of an input, or nil if it may be anything.
func (p *Pipeline) InputContract(name string) *contracts.Contract { return p.InputContracts[name] }

// OutputContract returns the contract of an output, or nil if it may be anything.
func (p *Pipeline) OutputContract(name string) *contracts.Contract { return p.OutputContracts[name] }

// InputDefaults returns the inputs that a call may omit, with their defaults.
func (p *Pipeline) InputDefaults() map[string]any {
	out := make(map[string]any)
	for i, k := range p.Inputs.Keys() {
		if preset := p.Inputs.Elems[i].Get("default"); preset != nil {
			out[k.Name], _ = preset.Literal()
		}
	}
	return out
}

// With returns the arguments of the handler's call of a pipeline, or nil if it makes none.
func (h *Handler) With() *expr.Value {
	if h.Call == nil {
		return nil
	}
	return h.Call.With
}

// InputOutline returns what is known of the inputs of a pipeline.
func (p *Pipeline) InputOutline() *typing.Outline {
	members := make(map[string]*typing.Member)
	for _, k := range p.Inputs.Keys() {
		members[k.Name] = &typing.Member{Outline: p.InputContracts[k.Name].Outline(), Required: true}
	}
	return &typing.Outline{Shape: datum.MapShape, Closed: true, Members: members}
}
