package engine

import (
	"math"
	"slices"
	"strings"
	"time"

	"procaas/engine/model"
	"procaas/engine/planner"
)

// This file lets runs go on gently that something has held back. They are many, and come at
// once: handlers that are not critical would be left out then, because their services have
// more to do than they bear, in a queue that only the hold has made.

// liftLeast is how often at least one run goes on, however busy its services are: new runs must
// not keep old ones back for ever.
const liftLeast = time.Second

// ahead lists the handlers that runs may come to which wait at a path: a pipeline, a stage or
// a handler. In calls of pipelines, that is all of the pipelines that call it, too.
func (d *definition) ahead(path string) []*planner.Step {
	if known, ok := d.aheads.Load(path); ok {
		return known.([]*planner.Step)
	}
	var out []*planner.Step
	for _, p := range d.plans {
		all := p.Within(map[*planner.Plan]bool{})
		if !slices.ContainsFunc(all, func(s *planner.Step) bool { return isBelow(s.Path, path) }) {
			continue
		}
		own := p.Pipeline.ID == model.PipelineOf(path)
		first := 0
		if parts := strings.SplitN(path, "/", 3); own && len(parts) > 1 {
			first = slices.IndexFunc(p.Stages, func(g *planner.Stage) bool { return g.ID == parts[1] })
		}
		for i, g := range p.Stages {
			if i < first {
				continue // they have been through it
			}
			for _, s := range g.Steps {
				out = append(out, s)
				if s.Callee != nil {
					out = append(out, s.Callee.Within(map[*planner.Plan]bool{})...)
				}
			}
		}
	}
	d.aheads.Store(path, out)
	return out
}

// isBelow tells whether a handler is at a path or below it.
func isBelow(handler, path string) bool {
	return handler == path || strings.HasPrefix(handler, path+"/")
}

// bears tells how many more runs may go on from a path at once, by what lies ahead of them
// besides one gate. It is half of what there is room for, since those on their way are not
// seen yet.
func (c *caller) bears(path, besides string) int {
	room := math.MaxInt
	for _, s := range c.e.library.current.Load().ahead(path) {
		if c.isOff(s) {
			continue
		}
		room = min(room, c.e.guard.Spare(s, besides, c.controls, c.now))
	}
	if room > releaseMost {
		return releaseMost
	}
	return (room + 1) / 2
}

// least is how many of the runs that wait for what is lifted go on: most, but one at least
// once in a while.
func (n *node) least(cause string, most int) int {
	now := time.Now()
	if most == 0 && now.Sub(n.lifted[cause]) < liftLeast {
		return 0
	}
	if len(n.lifted) >= maxLifted {
		clear(n.lifted) // nobody tells when one is over
	}
	n.lifted[cause] = now
	return max(most, 1)
}

// maxLifted bounds the causes that are remembered.
const maxLifted = 1000
