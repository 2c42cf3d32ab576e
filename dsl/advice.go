package dsl

import (
	"slices"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
)

// This file and its neighbours give advice: on what works, though another way
// would be simpler, faster or safer. Advice is given only where the files tell
// enough; it never keeps anything from loading.

// advise looks at all pipelines that have no errors.
func (c *checker) advise(pipelines []*pipelineCheck) {
	diag.InParallel(len(pipelines), c.Reporter, func(i int, r *diag.Reporter) {
		pc := *pipelines[i]
		if !pc.sound {
			return
		}
		pc.Reporter = r
		for i, s := range pc.steps {
			pc.read = append(pc.read, slices.Concat(s.conditionReads(), s.Handler.Reads()))
			pc.wrote = append(pc.wrote, pc.names(i))
		}
		pc.adviseRouting()
		pc.adviseForwarding()
		pc.adviseStages()
		pc.adviseWrites()
		pc.adviseCritical()
		pc.adviseRequests()
		pc.adviseExpressions()
		pc.adviseTransition()
	})
	c.adviseAutomata(pipelines)
}

// writes lists the names of the shared state that a handler may set.
func (c *pipelineCheck) writes(i int) []string { return c.wrote[i] }

// names finds what writes lists.
func (c *pipelineCheck) names(i int) []string {
	var out []string
	for _, a := range c.assignments(i) {
		out = append(out, a.key.Name)
	}
	return out
}

// needs tells whether the j-th handler reads what the i-th gives.
func (c *pipelineCheck) needs(j, i int) bool {
	names := c.writes(i)
	of := c.steps[i].ID
	return slices.ContainsFunc(c.read[j], func(r datum.Read) bool {
		if len(r.Path) < 2 {
			return r.Path[0] == expr.StateRoot && len(names) > 0 || r.Path[0] == "sources"
		}
		switch r.Path[0] {
		case expr.StateRoot:
			return r.Path[1] == datum.Wildcard && len(names) > 0 || slices.Contains(names, r.Path[1])
		case "sources":
			return r.Path[1] == datum.Wildcard || r.Path[1] == of
		}
		return false
	})
}

// orderly tells whether two handlers must run in the order of declaration for
// another reason than what one reads of the other: they set the same name, one sets
// what the other has read before, or they touch the same thing.
func (c *pipelineCheck) orderly(i, j int) bool {
	a, b := c.writes(i), c.writes(j)
	if slices.ContainsFunc(a, func(name string) bool { return slices.Contains(b, name) }) || c.needs(i, j) {
		return true
	}
	return slices.ContainsFunc(c.steps[i].Touches, func(t string) bool { return slices.Contains(c.steps[j].Touches, t) }) || c.emits(i) &&
		c.emits(j)
}

// emits tells whether a handler hands in events.
func (c *pipelineCheck) emits(i int) bool {
	e, ok := c.Types.Emission(c.steps[i].Handler)
	return ok && !e.Task
}

// keeps tells whether the flow keeps a name from event to event.
func (c *pipelineCheck) keeps(name string) bool {
	return c.flowState().Get(name) != nil
}
