package writes

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestBatcherSharesCallsAndKeepsResultsApart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls, active, most atomic.Int32
		b := &Batcher[int, int]{Most: 10, Lanes: 2, Do: func(items []int) []int {
			calls.Add(1)
			most.Store(max(most.Load(), active.Add(1)))
			defer active.Add(-1)
			if len(items) > 10 {
				t.Errorf("%d items in one call", len(items))
			}
			time.Sleep(time.Millisecond)
			out := make([]int, len(items))
			for i, n := range items {
				out[i] = -n
			}
			return out
		}}
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				items := make([]int, i%25)
				for j := range items {
					items[j] = i*100 + j
				}
				out, err := b.Call(context.Background(), items)
				if err != nil || len(out) != len(items) {
					t.Errorf("want %d results, have %d and %v", len(items), len(out), err)
					return
				}
				for j := range out {
					if out[j] != -items[j] {
						t.Errorf("want %d, have %d", -items[j], out[j])
					}
				}
			})
		}
		wg.Wait()
		if most.Load() != 2 {
			t.Errorf("want 2 calls at once, have %d", most.Load())
		}
		if len(b.begun) != 0 || len(b.queue) != 0 || b.waiting != 0 {
			t.Errorf("want all lanes free at the end, have %d busy and %d waiting", len(b.begun), b.waiting)
		}
	})
}

func TestBatcherOutlivesCallersThatGoAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &Batcher[int, int]{Most: 4, Lanes: 1, Do: func(items []int) []int {
			time.Sleep(10 * time.Millisecond)
			return items
		}}
		var wg sync.WaitGroup
		var gone, served atomic.Int32
		for i := range 50 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i)*time.Millisecond)
				defer cancel()
				switch _, err := b.Call(ctx, []int{i}); {
				case err == nil:
					served.Add(1)
				case errors.Is(err, context.DeadlineExceeded):
					gone.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if served.Load() == 0 || gone.Load() == 0 {
			t.Errorf("want some served and some gone, have %d and %d", served.Load(), gone.Load())
		}
		if out, err := b.Call(context.Background(), []int{7}); err != nil || out[0] != 7 {
			t.Errorf("want the batcher alive, have %v and %v", out, err)
		}
	})
}
