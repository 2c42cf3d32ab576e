package node

import (
	"context"
	"sync/atomic"
)

// A workerPool lets goroutines that have done their work do more of it: their stacks have
// grown to what it takes, which a new goroutine's has to do step by step, copying it
// each time.
type workerPool struct {
	more chan func()
	idle atomic.Int64
}

// poolMost is how many goroutines wait for work at most.
const poolMost = 256

func newWorkerPool() *workerPool { return &workerPool{more: make(chan func())} }

// do runs work on a goroutine of its own. Goroutines wait for more until ctx ends.
func (c *workerPool) do(ctx context.Context, work func()) {
	select {
	case c.more <- work:
	default:
		go c.member(ctx, work)
	}
}

func (c *workerPool) member(ctx context.Context, work func()) {
	for {
		work()
		work = nil // what it held may go
		if c.idle.Add(1) > poolMost {
			c.idle.Add(-1)
			return
		}
		select {
		case work = <-c.more:
			c.idle.Add(-1)
		case <-ctx.Done():
			c.idle.Add(-1)
			return
		}
	}
}
