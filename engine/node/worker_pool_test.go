package node

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

func TestWorkerPoolDoesAllAtOnceAndGoesHome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		c := newWorkerPool()
		for range 3 { // again with those that wait for work
			var all sync.WaitGroup
			var done atomic.Int64
			const many = 2 * poolMost
			met := make(chan struct{})
			for range many {
				all.Add(1)
				c.do(ctx, func() {
					defer all.Done()
					if done.Add(1) == many {
						close(met)
					}
					<-met // so that nobody does the work of two
				})
			}
			all.Wait()
			if synctest.Wait(); c.idle.Load() != poolMost {
				t.Errorf("want %d that wait for work, have %d", poolMost, c.idle.Load())
			}
		}
		cancel()
		if synctest.Wait(); c.idle.Load() != 0 {
			t.Errorf("want none that waits, have %d", c.idle.Load())
		}
		ran := make(chan struct{})
		c.do(ctx, func() { close(ran) })
		<-ran
	})
}
