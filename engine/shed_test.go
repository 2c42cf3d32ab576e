package engine_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"procaas/engine/enginetest"
	"procaas/engine/intake"
)

// At several times of what the store can write, as much is accepted as without
// overload, and nothing waits for long.
func TestOverloadCostsNoThroughputAndNoLatency(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		store := &enginetest.Faulty{Store: r.store, Before: func(op string) error {
			if op == "accept" {
				time.Sleep(50 * time.Millisecond) // two at once, with 256 events each: 10240 a second
			}
			return nil
		}}
		e := r.engine(store.Ports(), controlled)
		measure := func(clients int) (accepted, refused int64, worst time.Duration) {
			var ok, no, most atomic.Int64
			var all sync.WaitGroup
			end := time.Now().Add(5 * time.Second)
			for i := range clients {
				all.Go(func() {
					time.Sleep(time.Duration(i) * time.Second / time.Duration(clients))
					events := make([]intake.Submission, 64)
					for k := range events {
						events[k].Event = event("work", "")
					}
					for time.Now().Before(end) {
						began := time.Now()
						_, err := e.Submit(context.Background(), events)
						var over *intake.OverloadError
						switch {
						case errors.As(err, &over):
							no.Add(64)
							time.Sleep(time.Second / 4)
						case err != nil:
							t.Error(err)
						default:
							ok.Add(64)
							if took := int64(time.Since(began)); took > most.Load() {
								most.Store(took)
							}
						}
					}
				})
			}
			all.Wait()
			return ok.Load(), no.Load(), time.Duration(most.Load())
		}
		fine, none, quick := measure(16)
		many, refused, slow := measure(400)
		if none != 0 || refused == 0 {
			t.Errorf("want events refused only under overload, have %d and %d", none, refused)
		}
		if float64(many) < 0.9*float64(fine) {
			t.Errorf("want at least 90 %% of %d events accepted under overload, have %d", fine, many)
		}
		if slow > 500*time.Millisecond {
			t.Errorf("want no event to wait for long, have %s after %s", slow, quick)
		}
	})
}
