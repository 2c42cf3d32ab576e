package engine_test

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"procaas/engine"
	"procaas/engine/clock"
	"procaas/engine/model"
)

// What comes to one node is shared by all, before the first of it has ended.
func TestNodesEvenOutWhatComesToOneOfThem(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		known       time.Duration // for how long the nodes have been members
		maxInFlight int
	}{
		"long after they have joined":  {2 * time.Second, 256},
		"each has room for everything": {2 * time.Second, 4096},
		"just after they have joined":  {0, 256},
		"both":                         {0, 4096},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				const nodes, runs = 3, 500
				var mu sync.Mutex
				begun := map[int64]int{}
				r.on("one", func(ctx context.Context, c *engine.Call, _ any) (model.Result, error) {
					mu.Lock()
					begun[c.Node]++
					mu.Unlock()
					clock.Pause(ctx, 30*time.Second)
					return model.Result{}, nil
				})
				var all []*engine.Engine
				for range nodes {
					e, _ := r.start(three, func(o *engine.Options) { o.MaxInFlight = test.maxInFlight })
					all = append(all, e)
				}
				pass(test.known)
				for i := range runs {
					r.submit(all[0], event("work", fmt.Sprint(i)))
				}
				pass(5 * time.Second)
				mu.Lock()
				have := maps.Clone(begun)
				mu.Unlock()
				total := 0
				for node, n := range have {
					total += n
					if n < runs/nodes*2/3 || n > runs/nodes*4/3 {
						t.Errorf("node %d has begun %d of %d runs, want about a third", node, n, runs)
					}
				}
				if total != runs || len(have) != nodes {
					t.Errorf("want all of %d runs begun on %d nodes, have %v", runs, nodes, have)
				}
			})
		})
	}
}

// A node that has been alone for a while needs no other node for its runs.
func TestASingleNodeTakesAllAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		const runs = 200
		var mu sync.Mutex
		begun := 0
		r.on("one", func(ctx context.Context, _ *engine.Call, _ any) (model.Result, error) {
			mu.Lock()
			begun++
			mu.Unlock()
			clock.Pause(ctx, time.Minute)
			return model.Result{}, nil
		})
		e, _ := r.start(three)
		pass(2 * time.Second)
		for i := range runs {
			r.submit(e, event("work", fmt.Sprint(i)))
		}
		synctest.Wait() // no time passes
		mu.Lock()
		defer mu.Unlock()
		if begun != runs {
			t.Errorf("%d of %d runs have begun at once", begun, runs)
		}
	})
}
