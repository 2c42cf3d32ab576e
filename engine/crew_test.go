package engine

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
)

func TestCrewDoesAllAtOnceAndGoesHome(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	c := newCrew()
	for range 3 { // again with those that wait for work
		var all sync.WaitGroup
		var done atomic.Int64
		const many = 2 * crewMost
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
		eventually(t, func() bool { return c.idle.Load() == crewMost })
	}
	cancel()
	eventually(t, func() bool { return c.idle.Load() == 0 })
	ran := make(chan struct{})
	c.do(ctx, func() { close(ran) })
	<-ran
}
