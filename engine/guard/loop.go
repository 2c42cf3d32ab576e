package guard

import (
	"fmt"

	"procaas/engine/model"
	"procaas/engine/planner"
)

// What the runs of a pipeline may start in its own loop besides one each: so many at once, and
// then so many a second, on all nodes together.
const (
	LoopBurst = 10_000
	LoopRate  = 10
)

// CauseLoop ends the cause of a run that waits for the budget of its loop. The path of
// the handler comes before.
const CauseLoop = " loop"

// loopRule is the budget of a loop. What takes the place of the run itself costs nothing, as
// long as there is something left: otherwise each run would leave one behind that waits.
func (g *Guard) loopRule(s *planner.Step, p *Pass) rule {
	nodes := float64(max(1, g.Nodes.Load()))
	return rule{
		path: s.Path, loop: model.PipelineOf(s.Path) + CauseLoop, rate: LoopRate / nodes, burst: max(1, LoopBurst/nodes), pace: LoopRate / nodes,
		free: !p.Multiplies,
	}
}

// loopReason tells people why a run waits.
func loopReason() string {
	return fmt.Sprintf("the pipeline starts itself more than once in each run: %d such events or tasks at once were let through, and now "+
		"%d a second are",
		LoopBurst, LoopRate)
}
