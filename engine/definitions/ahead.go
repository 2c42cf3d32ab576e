package definitions

import (
	"slices"
	"strings"

	"procaas/engine/model"
	"procaas/engine/planner"
)

// Ahead lists the handlers that runs may reach from a path: a pipeline, a stage or a handler. It
// includes those of all pipelines that call its pipeline.
func (d *Definition) Ahead(path string) []*planner.Step {
	if known, ok := d.aheads.Load(path); ok {
		return known.([]*planner.Step)
	}
	var out []*planner.Step
	for _, p := range d.Plans {
		all := p.Within(map[*planner.Plan]bool{})
		if !slices.ContainsFunc(all, func(s *planner.Step) bool { return isBelow(s.Path, path) }) {
			continue
		}
		own := p.Pipeline.ID == model.PipelineOf(path)
		first := 0
		if parts := strings.SplitN(path, "/", 3); own && len(parts) > 1 {
			first = slices.IndexFunc(p.Stages, func(g *planner.Stage) bool { return g.ID == parts[1] })
		}
		seen := map[*planner.Plan]bool{} // several handlers may call the same pipeline
		for i, g := range p.Stages {
			if i < first {
				continue // such runs have passed them
			}
			for _, s := range g.Steps {
				out = append(out, s)
				if s.Callee != nil {
					out = append(out, s.Callee.Within(seen)...)
				}
			}
		}
	}
	d.aheads.Store(path, out)
	return out
}

// isBelow reports whether a handler is at a path or below it.
func isBelow(handler, path string) bool {
	return handler == path || strings.HasPrefix(handler, path+"/")
}
