package node

import (
	"context"
	"sync/atomic"
)

// A workerPool reuses goroutines, because their stacks have already grown. A new goroutine must
// grow its stack step by step, and copy it each time.
type workerPool struct {
	more chan func()
	idle atomic.Int64
}

// poolMost is the maximum number of idle goroutines.
const poolMost = 256

func newWorkerPool() *workerPool { return &workerPool{more: make(chan func())} }

// do runs work on another goroutine. The goroutine then waits for more work until ctx ends.
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
		work = nil // let the collector free it
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
