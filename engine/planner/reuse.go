package planner

import (
	"slices"

	"procaas/dsl/tree"
)

// Reuse lets the planner take over plans of an earlier bundle instead of making the same ones again. After an edit, most pipelines of a
// bundle are those of the bundle before: see [procaas/dsl.Loader]. The plans must have been made with the same types.
//
// What a plan depends on, beside its pipeline, is little: the flow, the services, the plans of called pipelines and of repeated
// stages, and which other pipelines the event may start. Plans that have others inside are made anew, since those belong to a bundle.
func (m *Planner) Reuse(plans []*Plan) {
	if len(plans) == 0 || !plans[0].Bundle.HasPeersOf(m.bundle) {
		return
	}
	m.earlier = make(map[*tree.Pipeline]*Plan, len(plans))
	for _, p := range plans {
		if !slices.ContainsFunc(p.Steps, func(s *Step) bool { return s.Callee != nil }) {
			m.earlier[p.Pipeline] = p
		}
	}
}

// reused returns the plan of a pipeline from the earlier bundle, for this one. It is nil if there is none that can be used.
func (m *Planner) reused(p *tree.Pipeline) *Plan {
	earlier := m.earlier[p]
	if earlier == nil || p.Flow != "" && earlier.Flow != m.bundle.Flow(p.Flow) {
		return nil
	}
	plan := *earlier // stages and steps never change, and know no bundle
	plan.Bundle = m.bundle
	plan.Contested = isContested(m.bundle, p)
	return &plan
}
