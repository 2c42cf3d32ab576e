package engine

import (
	"procaas/dsl"
	"procaas/dsl/diag"
	"procaas/engine/planner"
)

// Try checks files as a definition, plans its pipelines and keeps nothing. The plans are nil
// exactly if a finding is an error.
func (e *Engine) Try(files []diag.File) ([]planner.PlanView, []diag.Diagnostic) {
	types := Types(e.o.Types)
	b, found := dsl.Load(files, dsl.Options{Types: types})
	if b == nil {
		return nil, found
	}
	out := make([]planner.PlanView, 0, len(b.Pipelines))
	for _, p := range b.Pipelines {
		plan, err := planner.New(b, p, types)
		if err != nil {
			panic(err) // a definition that loads can be planned
		}
		out = append(out, plan.View())
	}
	return out, found
}
