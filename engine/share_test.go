package engine_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"procaas/engine"
	"procaas/engine/model"
)

// What comes to one node is shared by all, before the first of it has ended.
func TestNodesEvenOutWhatComesToOneOfThem(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const nodes, runs = 3, 500
		r := newRig(t)
		var mu sync.Mutex
		begun := map[int64]int{}
		r.on("one", func(_ context.Context, c *engine.Call, _ any) (model.Result, error) {
			mu.Lock()
			begun[c.Node]++
			mu.Unlock()
			time.Sleep(30 * time.Second)
			return model.Result{}, nil
		})
		var all []*engine.Engine
		for range nodes {
			e := r.engine(r.store, three)
			r.run(e)
			all = append(all, e)
		}
		time.Sleep(2 * time.Second) // until they know of each other
		for i := range runs {
			r.submit(all[0], event("work", fmt.Sprint(i)))
		}
		time.Sleep(10 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		total := 0
		for _, n := range begun {
			total += n
		}
		if total != runs || len(begun) != nodes {
			t.Errorf("want all of %d runs begun on %d nodes, have %v", runs, nodes, begun)
		}
		for node, n := range begun {
			if n < runs/nodes*2/3 || n > runs/nodes*4/3 {
				t.Errorf("node %d has begun %d of %d runs, want about a third", node, n, runs)
			}
		}
	})
}
