package engine

import (
	"time"

	"procaas/engine/core"
	"procaas/engine/guard"
)

// SpendLoop takes some of the budget of a pipeline's loop, as if its runs had.
func SpendLoop(e *Engine, pipeline string, n int) {
	b := e.Guard.Bucket(pipeline + guard.CauseLoop)
	for range n {
		b.Reserve(e.clock.Now(), guard.LoopRate, guard.LoopBurst)
	}
}

// The bounds of loops.
const (
	MaxHops  = core.MaxHops
	HopEvery = time.Duration(core.HopEvery)
)
