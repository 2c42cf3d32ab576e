package advice

import (
	"slices"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/merge"
	"procaas/dsl/steps"
	"procaas/dsl/tree"
)

// The files of this package advise on flows that work, but could be simpler, faster or safer. Advice appears
// only if the files are unambiguous. It never keeps a definition from loading.

// An advisor looks at one pipeline.
type advisor struct {
	*merge.Whole
	*diag.Reporter
	*steps.Pipeline

	// What each step may read and set. Cached, since all checks need it.
	read  [][]datum.Read
	wrote [][]string

	runs map[*tree.Pipeline]tree.Longest // results of longestRun
}

// Give advises on all pipelines without errors.
func Give(w *merge.Whole, pipelines []*steps.Pipeline, r *diag.Reporter) {
	diag.InParallel(len(pipelines), r, func(i int, r *diag.Reporter) {
		if !pipelines[i].Sound {
			return
		}
		c := &advisor{Whole: w, Reporter: r, Pipeline: pipelines[i], runs: map[*tree.Pipeline]tree.Longest{}}
		c.read, c.wrote = make([][]datum.Read, len(c.Steps)), make([][]string, len(c.Steps))
		for i, s := range c.Steps {
			c.read[i] = append(s.EarlierConditions(), s.Handler.Reads()...)
			for _, a := range c.Assignments(i) {
				c.wrote[i] = append(c.wrote[i], a.Key.Name)
			}
		}
		c.adviseRouting()
		c.adviseForwarding()
		c.adviseStages()
		c.adviseWrites()
		c.adviseCritical()
		c.adviseRequests()
		c.adviseExpressions()
		c.adviseTransition()
		c.adviseDelay()
		c.adviseGuests()
		c.adviseElementRules()
		c.adviseListUndo()
	})
	adviseAutomata(w, pipelines, r)
}

// writes lists the names of the shared state that a handler may set.
func (c *advisor) writes(i int) []string { return c.wrote[i] }

// needs reports whether handler j reads something that handler i sets.
func (c *advisor) needs(j, i int) bool {
	names := c.writes(i)
	of := c.Steps[i].ID
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

// orderly reports whether two handlers must run in the order of their declaration for another reason than
// reading a result: they set the same name, one sets what the other has read, or they touch the same thing.
func (c *advisor) orderly(i, j int) bool {
	a, b := c.writes(i), c.writes(j)
	if slices.ContainsFunc(a, func(name string) bool { return slices.Contains(b, name) }) || c.needs(i, j) {
		return true
	}
	return slices.ContainsFunc(c.Steps[i].Touches, func(t string) bool { return slices.Contains(c.Steps[j].Touches, t) }) || c.emits(i) &&
		c.emits(j)
}

// emits reports whether a handler emits events.
func (c *advisor) emits(i int) bool {
	e, ok := c.Types.Emission(c.Steps[i].Handler)
	return ok && !e.Task
}
