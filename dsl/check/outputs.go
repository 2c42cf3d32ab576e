package check

import (
	"procaas/dsl/datum"
	"procaas/dsl/spec"
	"procaas/dsl/typing"
)

// checkOutputs compiles the outputs of a pipeline, which read what is known after its last stage. It stores
// their types for callers.
func (c *walk) checkOutputs() {
	p := c.Declared
	if !p.CanBeCalled() {
		return
	}
	sc := c.scopeBefore(nil, len(c.Steps))
	spec.Compile(p.Outputs, nil, sc, c.Reporter)
	members := make(map[string]*typing.Member)
	for i, k := range p.Outputs.Keys() {
		v, o := p.Outputs.Elems[i], p.Outputs.Elems[i].Outline()
		if contract := p.OutputContracts[k.Name]; contract != nil {
			fits(c.Whole, v, contract, contract.Name, c.Reporter)
			o = contract.Outline() // the engine checks the value against this contract
		}
		members[k.Name] = &typing.Member{Outline: o, Required: true}
	}
	p.Response = &typing.Outline{Shape: datum.MapShape, Closed: true, Members: members}
}
