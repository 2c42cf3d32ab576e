package engine

import (
	"time"

	"procaas/engine/core"
)

// SpendLoop takes some of the budget of a pipeline's loop, as if its runs had.
func SpendLoop(e *Engine, pipeline string, n int) {
	b := e.guard.bucket(pipeline + causeLoop)
	for range n {
		b.reserve(e.clock.now(), loopRate, loopBurst)
	}
}

// The bounds of loops.
const (
	MaxHops   = core.MaxHops
	HopEvery  = time.Duration(core.HopEvery)
	LoopBurst = loopBurst
	LoopRate  = loopRate
)
