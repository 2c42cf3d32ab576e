package engine

import (
	"procaas/dsl"
	"procaas/dsl/diag"
	"procaas/dsl/tree"
	"procaas/engine/planner"
)

// Try is [Try] with the handler types of the engine.
func (e *Engine) Try(files []diag.File) ([]planner.PlanView, []diag.Diagnostic) {
	return Try(files, e.Bundle().Language, Types(e.o.Types))
}

// Try checks files as a definition, plans its pipelines and keeps nothing. The plans are nil
// exactly if a finding is an error.
func Try(files []diag.File, language *tree.Language, types []tree.Type) ([]planner.PlanView, []diag.Diagnostic) {
	b, found := dsl.Load(files, dsl.Options{Language: language, Types: types})
	if b == nil {
		return nil, found
	}
	m := planner.NewPlanner(b, types)
	out := make([]planner.PlanView, 0, len(b.Pipelines))
	for _, p := range b.Pipelines {
		plan, err := m.Plan(p)
		if err != nil {
			panic(err) // a definition that loads can be planned
		}
		out = append(out, plan.View())
	}
	return out, found
}
