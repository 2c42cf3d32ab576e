package engine_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"procaas/engine"
	"procaas/engine/intake"
	"procaas/engine/model"
	"procaas/engine/store"
)

// A skewed store has a clock of its own, and answers the first beat late.
type skewed struct {
	store.Ledger
	ahead time.Duration // of the clock of this process
	slow  time.Duration // how long the first beat takes to the store
	late  time.Duration // and its answer back
	beats int
}

// Beat implements [store.Ledger].
func (s *skewed) Beat(ctx context.Context, node int64, lease time.Duration, bundle string) (store.Beat, error) {
	s.beats++
	if s.beats == 1 {
		time.Sleep(s.slow)
		defer time.Sleep(s.late)
	}
	b, err := s.Ledger.Beat(ctx, node, lease, bundle)
	b.Now = b.Now.Add(s.ahead)
	return b, err
}

const waits = `
pipelines:
- id: work
  stages:
  - {id: a, handlers: [{id: first, step: {}}]}
  - {id: b, handlers: [{id: second, step: {}}]}
  - {id: c, handlers: [{id: wait, step: {}}]}
  - {id: d, handlers: [{id: last, step: {}}]}
`

// A node has just started, so it does not know the store's time well: the answer to its first beat
// took long, and the next one tells it much better. Or it does not know it at all. A wait takes its
// time all the same.
func TestWaitsAreNotShortAfterAStart(t *testing.T) {
	t.Parallel()
	const length = 150 * time.Millisecond
	for name, s := range map[string]skewed{
		"the first beat is slow":             {slow: 300 * time.Millisecond},
		"the clock of this machine is slow":  {late: 100 * time.Millisecond, ahead: 120 * time.Millisecond},
		"the clock of this machine is ahead": {late: 100 * time.Millisecond, ahead: -120 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// The first stage ends at each moment around the second beat.
			for first := time.Duration(0); first < 1300*time.Millisecond; first += 50 * time.Millisecond {
				synctest.Test(t, func(t *testing.T) {
					r, slow := newRig(t), s
					r.on("first", func(context.Context, *engine.Call, any) (model.Result, error) {
						time.Sleep(first)
						return model.Result{}, nil
					})
					r.on("second", func(context.Context, *engine.Call, any) (model.Result, error) {
						time.Sleep(60 * time.Millisecond)
						return model.Result{}, nil
					})
					var began, ended time.Time
					r.on("wait", func(_ context.Context, c *engine.Call, _ any) (model.Result, error) {
						began = time.Now()
						return model.Result{Until: c.Now.Add(length)}, nil
					})
					r.on("last", func(context.Context, *engine.Call, any) (model.Result, error) {
						ended = time.Now()
						return model.Result{}, nil
					})
					slow.Ledger = r.store.Ledger
					db := r.store
					db.Ledger = &slow
					e := r.engine(db, waits)
					out, err := e.Submit(context.Background(), []intake.Submission{{Event: event("work", "k")}})
					if err != nil {
						t.Fatal(err)
					}
					r.run(e)
					r.settle(e, out[0].Receipt.Run, model.Succeeded)
					if took := ended.Sub(began); took < length-time.Millisecond {
						t.Errorf("after a first stage of %s: want a wait of %s, have %s", first, length, took)
					}
				})
			}
		})
	}
}
