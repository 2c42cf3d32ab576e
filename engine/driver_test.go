package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"procaas/engine"
	"procaas/engine/clock"
	"procaas/engine/enginetest"
	"procaas/engine/intake"
	"procaas/engine/model"
	"procaas/engine/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRunGoesThroughItsStages(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		e, stop := r.start(three)
		v := r.settle(e, r.submit(e, event("work", "k")), model.Succeeded)
		r.want("work/a/one", "work/b/two", "work/c/three")
		if v.SharedState["seen"] != 1 || len(v.Handlers) != 3 {
			t.Errorf("want seen 1 and 3 handlers, have %v and %d", v.SharedState, len(v.Handlers))
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestEventsOfAKeyRunOneAtATimeInOrder(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var order []string
		var active, most atomic.Int32
		r.on("two", func(_ context.Context, c *engine.Call, _ any) (model.Result, error) {
			most.Store(max(most.Load(), active.Add(1)))
			time.Sleep(10 * time.Millisecond)
			order = append(order, c.Event.ID)
			active.Add(-1)
			return model.Result{}, nil
		})
		e, _ := r.start(three)
		var want []string
		var last string
		for i := range 20 {
			ev := event("work", "k")
			ev.ID = fmt.Sprintf("e%02d", i)
			want, last = append(want, ev.ID), r.submit(e, ev)
		}
		v := r.settle(e, last, model.Succeeded)
		if !slices.Equal(order, want) || most.Load() != 1 {
			t.Errorf("want %v one at a time, have %v with %d at once", want, order, most.Load())
		}
		if v.SharedState["seen"] != 20 {
			t.Errorf("want each run to see what the ones before left, have %v", v.SharedState)
		}
	})
}

func TestKeysRunInParallel(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		open := make(gate)
		r.on("one", open.do)
		e, _ := r.start(three)
		pass(time.Second) // until the node knows that it is alone
		var runs []string
		for i := range 50 {
			runs = append(runs, r.submit(e, event("work", fmt.Sprint(i))))
		}
		synctest.Wait()
		if n := len(r.calls.Calls()); n != 50 {
			t.Errorf("want 50 calls at once, have %d", n)
		}
		close(open)
		for _, run := range runs {
			r.settle(e, run, model.Succeeded)
		}
	})
}

// A run that has done all but the commit of its end keeps nobody out.
func TestARunThatEndsNeedsNoRoom(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		blocked, first := make(chan struct{}), atomic.Bool{}
		store := &enginetest.Faulty{Store: r.store, Before: func(op string) error {
			if op == "commit" && first.CompareAndSwap(false, true) {
				<-blocked
			}
			return nil
		}}
		e, _ := r.startOn(store.Ports(), `
pipelines:
  - id: work
    stages: [{id: a, handlers: [{id: one, step: {}}]}]
`, func(o *engine.Options) { o.MaxInFlight = 1 })
		runs := []string{r.submit(e, event("work", ""))}
		synctest.Wait()
		runs = append(runs, r.submit(e, event("work", "")))
		synctest.Wait()
		r.want("work/a/one", "work/a/one") // while the end of the first is not saved
		runs = append(runs, r.submit(e, event("work", "")))
		close(blocked)
		for _, run := range runs {
			r.settle(e, run, model.Succeeded)
		}
	})
}

func TestMaxInFlightBoundsTheRunsOfANode(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		open := make(gate)
		r.on("one", open.do)
		e, _ := r.start(three, func(o *engine.Options) { o.MaxInFlight = 3 })
		var runs []string
		for i := range 10 {
			runs = append(runs, r.submit(e, event("work", fmt.Sprint(i))))
		}
		pass(3 * time.Second)
		if n := len(r.calls.Calls()); n != 3 {
			t.Errorf("want 3 calls at once, have %d", n)
		}
		close(open)
		for _, run := range runs {
			r.settle(e, run, model.Succeeded)
		}
	})
}

func TestIndependentHandlersRunAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		open := make(gate)
		for i := range 5 {
			r.on(fmt.Sprintf("h%d", i), open.do)
		}
		e, _ := r.start(parallel(5))
		run := r.submit(e, event("work", ""))
		synctest.Wait()
		if n := len(r.calls.Calls()); n != 5 {
			t.Errorf("want 5 calls at once, have %d", n)
		}
		close(open)
		r.settle(e, run, model.Succeeded)
	})
}

// A crash is a store that hears nothing more of the engine, even if the engine
// still does.
func TestCrashRepeatsOnlyWhatWasNotSavedWithTheSameKey(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		stuck := make(gate)
		r.on("two", stuck.do)
		store := &enginetest.Faulty{Store: r.store}
		first, stop := r.startOn(store.Ports(), three)
		run := r.submit(first, event("work", "k"))
		synctest.Wait()
		r.want("work/a/one", "work/b/two")
		store.Cut()
		stop()

		close(stuck)
		second, _ := r.start(three)
		r.settle(second, run, model.Succeeded)
		r.want("work/a/one", "work/b/two", "work/b/two", "work/c/three")
		calls := r.calls.Of("work/b/two")
		if calls[0].IdempotencyKey != calls[1].IdempotencyKey || calls[0].IdempotencyKey == "" {
			t.Errorf("want one key for both calls, have %q and %q", calls[0].IdempotencyKey, calls[1].IdempotencyKey)
		}
	})
}

func TestParallelStageRepeatsOnlyItsUnfinishedHandlers(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		stuck := make(gate)
		r.on("h1", stuck.do)
		store := &enginetest.Faulty{Store: r.store}
		first, stop := r.startOn(store.Ports(), parallel(3))
		run := r.submit(first, event("work", ""))
		synctest.Wait()
		store.Cut()
		stop()
		close(stuck)
		second, _ := r.start(parallel(3))
		r.settle(second, run, model.Succeeded)
		for path, want := range map[string]int{"work/a/h0": 1, "work/a/h1": 2, "work/a/h2": 1} {
			if have := len(r.calls.Of(path)); have != want {
				t.Errorf("%s: want %d calls, have %d", path, want, have)
			}
		}
	})
}

func TestAnotherNodeTakesOverWhatADeadOneHeld(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		stuck := make(gate)
		r.on("one", stuck.do)
		store := &enginetest.Faulty{Store: r.store}
		first, stop := r.startOn(store.Ports(), three)
		second, _ := r.start(three)
		run := r.submit(first, event("work", "k"))
		synctest.Wait()
		store.Cut()
		began := time.Now()
		close(stuck)
		r.settle(second, run, model.Succeeded)
		if took := time.Since(began); took > 6*time.Second {
			t.Errorf("want the run taken over within the lease and a beat, it took %s", took)
		}
		stop()
	})
}

func TestPausedNodeWritesNothingAndStartsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var paused atomic.Bool
		store := &enginetest.Faulty{Store: r.store, Before: func(string) error {
			if paused.Load() {
				return enginetest.ErrInjected
			}
			return nil
		}}
		hold := make(chan struct{})
		var calls atomic.Int32
		r.on("one", func(ctx context.Context, c *engine.Call, _ any) (model.Result, error) {
			if calls.Add(1) == 1 {
				<-hold
			}
			return model.Result{}, nil
		})
		first, _ := r.startOn(store.Ports(), three)
		run := r.submit(first, event("work", "k"))
		synctest.Wait()
		paused.Store(true)
		second, _ := r.start(three)
		r.settle(second, run, model.Succeeded)
		done := len(r.calls.Calls())

		paused.Store(false)
		close(hold)
		pass(10 * time.Second)
		if have := len(r.calls.Calls()); have != done {
			t.Errorf("the node that woke up made %d calls", have-done)
		}
		if err := first.Healthy(context.Background()); err != nil {
			t.Errorf("want the node to join anew, have %v", err)
		}
		if !strings.Contains(r.log.String(), "node is fenced") {
			t.Error("want the fencing logged")
		}
	})
}

func TestNoCallStartsAfterTheLeaseIsOver(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var beatless atomic.Bool
		store := &enginetest.Faulty{Store: r.store, Before: func(op string) error {
			if op == "beat" && beatless.Load() {
				return enginetest.ErrInjected
			}
			return nil
		}}
		hold := make(gate)
		r.on("one", hold.do)
		e, _ := r.startOn(store.Ports(), three)
		run := r.submit(e, event("work", "k"))
		synctest.Wait()
		beatless.Store(true)
		pass(5 * time.Second)
		close(hold)
		pass(time.Second)
		r.want("work/a/one")
		if err := e.Healthy(context.Background()); !errors.Is(err, enginetest.ErrInjected) {
			t.Errorf("want the node to say why its lease is over, have %v", err)
		}
		beatless.Store(false) // nobody has taken over, so it goes on
		r.settle(e, run, model.Succeeded)
		r.want("work/a/one", "work/b/two", "work/c/three")
	})
}

// A watchedLedger says that it sees the node's process, until the channel is closed.
type watchedLedger struct {
	store.Ledger
	watched chan struct{}
}

func (s watchedLedger) Beat(ctx context.Context, node int64, lease time.Duration, bundle string) (store.Beat, error) {
	b, err := s.Ledger.Beat(ctx, node, lease, bundle)
	b.Watched = s.watched
	return b, err
}

// A node of which the store has lost sight may be taken over when it has been silent for two
// beats, although its lease is longer: then it starts no call after them.
func TestNoCallStartsWhenTheStoreHasLostSightOfASilentNode(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var beatless atomic.Bool
		faulty := &enginetest.Faulty{Store: r.store, Before: func(op string) error {
			if op == "beat" && beatless.Load() {
				return enginetest.ErrInjected
			}
			return nil
		}}
		db, watched := faulty.Ports(), make(chan struct{})
		db.Ledger = watchedLedger{db.Ledger, watched}
		first, second := make(gate), make(gate)
		r.on("one", first.do)
		r.on("two", second.do)
		e, _ := r.startOn(db, three)
		run := r.submit(e, event("work", "k"))
		synctest.Wait()
		beatless.Store(true)
		pass(2 * time.Second) // longer than two beats, shorter than the lease
		close(first)
		synctest.Wait()
		r.want("work/a/one", "work/b/two") // it is seen, so its lease counts
		close(watched)
		close(second)
		pass(time.Second)
		r.want("work/a/one", "work/b/two")
		if err := e.Healthy(context.Background()); !errors.Is(err, enginetest.ErrInjected) {
			t.Errorf("want the node to say why its lease is over, have %v", err)
		}
		beatless.Store(false)
		pass(time.Second)
		r.want("work/a/one", "work/b/two", "work/c/three") // nobody has taken over
		r.settle(e, run, model.Succeeded)
	})
}

// A full disk may let leases be renewed, which need no new page, and refuse all else.
func TestNodeIsNotReadyWhileNothingIsWritten(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var full atomic.Bool
		store := &enginetest.Faulty{Store: r.store, Before: func(op string) error {
			if (op == "accept" || op == "commit") && full.Load() {
				return enginetest.ErrInjected
			}
			return nil
		}}
		e, _ := r.startOn(store.Ports(), three)
		r.settle(e, r.submit(e, event("work", "k")), model.Succeeded)
		full.Store(true)
		for range 5 {
			results, err := e.Submit(t.Context(), []intake.Submission{{Event: event("work", "k")}})
			if err == nil && results[0].Err == nil {
				t.Error("want the event refused")
			}
			pass(time.Second)
		}
		if err := e.Healthy(t.Context()); !errors.Is(err, enginetest.ErrInjected) {
			t.Errorf("want the node to say that nothing is written, have %v", err)
		}
		pass(writesForgotten)
		if err := e.Healthy(t.Context()); err != nil {
			t.Errorf("want the node tried again after a while without writes, have %v", err)
		}
		full.Store(false)
		r.settle(e, r.submit(e, event("work", "k")), model.Succeeded)
		if err := e.Healthy(t.Context()); err != nil {
			t.Errorf("want the node ready when the store writes again, have %v", err)
		}
	})
}

// A dead connection lets the write that uses it hang, while others renew the lease.
func TestNodeIsNotReadyWhileAWriteHangs(t *testing.T) {
	for _, hung := range []string{"accept", "commit", "claim"} {
		t.Run(hung, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				var dead atomic.Bool
				back := make(chan struct{})
				store := &enginetest.Faulty{Store: r.store, Before: func(op string) error {
					if op == hung && dead.Load() {
						<-back
					}
					return nil
				}}
				e, _ := r.startOn(store.Ports(), three)
				r.settle(e, r.submit(e, event("work", "k")), model.Succeeded)
				dead.Store(true)
				sent := make(chan string, 1)
				ev := event("work", "k")
				ev.ID = "again"
				go func() {
					out, err := e.Submit(t.Context(), []intake.Submission{{Event: ev}})
					for err != nil { // the sender hears of an accept that hangs
						out, err = e.Submit(t.Context(), []intake.Submission{{Event: ev}})
					}
					sent <- out[0].Receipt.Run
				}()
				pass(time.Second)
				if err := e.Healthy(t.Context()); err != nil {
					t.Errorf("want a short pause tolerated, have %v", err)
				}
				pass(4 * time.Second)
				if err := e.Healthy(t.Context()); err == nil || !strings.Contains(err.Error(), "has taken ") {
					t.Errorf("want the node to say what hangs, have %v", err)
				}
				dead.Store(false)
				close(back)
				r.settle(e, <-sent, model.Succeeded)
				if err := e.Healthy(t.Context()); err != nil {
					t.Errorf("want the node ready when the store answers again, have %v", err)
				}
			})
		})
	}
}

// A sender need not wait for the timeout of a write while the node knows that the store does not answer.
func TestSendersHearSoonThatTheStoreDoesNotAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var dead atomic.Bool
		back := make(chan struct{})
		slow := &enginetest.Faulty{Store: r.store, Before: func(op string) error {
			if op == "accept" && dead.Load() {
				select {
				case <-back:
				case <-time.After(clock.StoreTimeout):
				}
			}
			return nil
		}}
		e, _ := r.startOn(slow.Ports(), three)
		r.settle(e, r.submit(e, event("work", "k")), model.Succeeded)
		dead.Store(true)
		ev := event("work", "k")
		ev.ID, ev.Source = "e", "s"
		for range 3 { // the first is under way, and the others queue
			began := time.Now()
			_, err := e.Submit(t.Context(), []intake.Submission{{Event: ev}})
			if took := time.Since(began); err == nil || took > 3*time.Second {
				t.Errorf("want an error in 3 s, have %v in %s", err, took)
			}
		}
		dead.Store(false)
		close(back)
		r.settle(e, r.submit(e, ev), model.Succeeded)
		pass(time.Second)
		if list, _, err := e.List(t.Context(), store.RunFilter{Limit: 10}); err != nil || len(list) != 2 {
			t.Errorf("want the event accepted once, have %d runs, %v", len(list), err)
		}
	})
}

// writesForgotten is for how long a node remembers that a write failed, and a little.
const writesForgotten = 11 * time.Second

func TestDrainSavesTheEndsOfCallsUnderWayAndGivesTheRestBack(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.on("one", func(ctx context.Context, _ *engine.Call, _ any) (model.Result, error) {
			time.Sleep(3 * time.Second)
			return model.Result{}, ctx.Err()
		})
		first, stop := r.start(three)
		run := r.submit(first, event("work", "k"))
		synctest.Wait()
		if err := stop(); err != nil {
			t.Error(err)
		}
		r.want("work/a/one")
		if v := r.view(first, run); v.Status != model.Waiting || v.Handlers[0].Outcome != model.OutcomeSucceeded {
			t.Errorf("want the run to wait with its first handler done, have %s %s", v.Status, v.Handlers[0].Outcome)
		}
		began := time.Now()
		second, _ := r.start(three)
		r.settle(second, run, model.Succeeded)
		if took := time.Since(began); took > time.Second {
			t.Errorf("want no waiting for a lease, it took %s", took)
		}
		r.want("work/a/one", "work/b/two", "work/c/three")
	})
}

func TestDrainBreaksOffCallsThatTakeTooLong(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		never := make(gate)
		r.on("one", never.do)
		e, stop := r.start(three, func(o *engine.Options) { o.Drain = 2 * time.Second })
		run := r.submit(e, event("work", "k"))
		synctest.Wait()
		began := time.Now()
		if err := stop(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("want the drain to end in time, it took %s", took)
		}
		if v := r.view(e, run); v.Status != model.Waiting || v.Handlers[0].Error != "" {
			t.Errorf("want the run given back without an error, have %s %q", v.Status, v.Handlers[0].Error)
		}
	})
}

func TestRunKeepsTheDefinitionItBeganWith(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		stuck := make(gate)
		r.on("one", stuck.do)
		store := &enginetest.Faulty{Store: r.store}
		first, stop := r.startOn(store.Ports(), three)
		begun := r.submit(first, event("work", "begun"))
		synctest.Wait()
		store.Cut()
		stop()
		close(stuck)

		changed := strings.ReplaceAll(three, "{id: three, step: {}}", "{id: four, step: {}}")
		second, _ := r.start(changed)
		r.settle(second, begun, model.Succeeded)
		r.settle(second, r.submit(second, event("work", "new")), model.Succeeded)
		r.want("work/a/one", "work/a/one", "work/b/two", "work/c/three", "work/a/one", "work/b/two", "work/c/four")
	})
}

func TestLoadServesNewEventsOnly(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		open := make(gate)
		r.on("one", open.do)
		e, _ := r.start(three)
		begun := r.submit(e, event("work", "begun"))
		synctest.Wait()
		changed := strings.ReplaceAll(three, "{id: three, step: {}}", "{id: four, step: {}}")
		if _, err := e.Load(context.Background(), r.bundle(changed), store.Actor{Name: "ann"}); err != nil {
			t.Fatal(err)
		}
		close(open)
		r.settle(e, begun, model.Succeeded)
		if r.settle(e, r.submit(e, event("work", "new")), model.Succeeded); len(r.calls.Of("work/c/three")) != 1 ||
			len(r.calls.Of("work/c/four")) != 1 {
			t.Errorf("want one call of each definition's last handler, have %v", r.paths())
		}
	})
}

func TestUnknownDefinitionFailsTheRun(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		e, stop := r.start(three)
		stuck := make(gate)
		r.on("two", stuck.do)
		run := r.submit(e, event("work", "k"))
		synctest.Wait()
		go func() {
			time.Sleep(time.Millisecond) // the node is draining by then
			close(stuck)
		}()
		stop()
		r.types = []engine.HandlerType{enginetest.Scripted("other", r.calls.Record(r.handle))}
		second, _ := r.start(strings.ReplaceAll(three, "step:", "other:"))
		v := r.settle(second, run, model.Failed)
		if !strings.Contains(v.Error, "definition cannot be used") || !strings.Contains(v.Error, "step") {
			t.Errorf("want the error to name the missing type, have %q", v.Error)
		}
	})
}
