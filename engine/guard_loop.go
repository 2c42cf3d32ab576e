package engine

import (
	"fmt"

	"procaas/engine/planner"
)

// What the runs of a pipeline may start in its own loop besides one each: so many at once, and
// then so many a second, on all nodes together.
const (
	loopBurst = 10_000
	loopRate  = 10
)

// causeLoop ends the cause of a run that waits for the budget of its loop. The path of
// the handler comes before.
const causeLoop = " loop"

// loopRule is the budget of a loop. What takes the place of the run itself costs nothing, as
// long as there is something left: otherwise each run would leave one behind that waits.
func (g *guard) loopRule(s *planner.Step, p *pass) rule {
	nodes := float64(max(1, g.nodes.Load()))
	return rule{
		path: s.Path, loop: pipelineOf(s.Path) + causeLoop, rate: loopRate / nodes, burst: max(1, loopBurst/nodes),
		free: !p.multiplies,
	}
}

// loopReason tells people why a run waits.
func loopReason() string {
	return fmt.Sprintf("the pipeline starts itself more than once in each run: %d such events or tasks at once were let through, and now "+
		"%d a second are",
		loopBurst, loopRate)
}
