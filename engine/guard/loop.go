package guard

import (
	"fmt"

	"procaas/engine/model"
	"procaas/engine/planner"
)

// These bound how many runs of its own loop a pipeline may start, beyond one for each run: a burst,
// then a rate per second, on all nodes together.
const (
	LoopBurst = 10_000
	LoopRate  = 10
)

// CauseLoop is the suffix of the cause of a run that waits for the budget of its loop. The path of
// the handler comes before.
const CauseLoop = " loop"

// loopRule is the budget of a loop. A run that replaces itself costs nothing while something is
// left. Otherwise each run would leave one behind that waits.
func (g *Guard) loopRule(s *planner.Step, p *Pass) rule {
	nodes := float64(max(1, g.Nodes.Load()))
	return rule{
		path: s.Path, loop: model.PipelineOf(s.Path) + CauseLoop, rate: LoopRate / nodes, burst: max(1, LoopBurst/nodes), pace: LoopRate / nodes,
		free: !p.Multiplies,
	}
}

// loopReason describes for people why a run waits.
func loopReason() string {
	return fmt.Sprintf("the pipeline starts itself more than once in each run: %d such events or tasks at once were let through, and now "+
		"%d a second are",
		LoopBurst, LoopRate)
}
