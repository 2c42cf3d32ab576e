package engine_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"procaas/engine/model"
	"procaas/engine/store"
)

// A commits ledger counts the changes that are written.
type commits struct {
	store.Ledger
	written atomic.Int64
}

func (s *commits) Commit(ctx context.Context, node int64, changes []model.Change) ([]error, error) {
	s.written.Add(int64(len(changes)))
	return s.Ledger.Commit(ctx, node, changes)
}

func TestFirstCallsWaitForNoCommit(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		ledger := &commits{Ledger: r.store.Ledger}
		r.store.Ledger = ledger
		e, _ := r.start(three)
		r.settle(e, r.submit(e, event("work", "k")), model.Succeeded)
		if n := ledger.written.Load(); n != 3 {
			t.Errorf("want one commit after each of three handlers, have %d", n)
		}
	})
}

func TestCallsThatTakeTheirTimeAreSeen(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		slow := make(gate)
		r.on("one", slow.do)
		ledger := &commits{Ledger: r.store.Ledger}
		r.store.Ledger = ledger
		e, _ := r.start(three)
		run := r.submit(e, event("work", "k"))
		pass(time.Second)
		v := r.view(e, run)
		if len(v.Handlers) != 1 || v.Handlers[0].Outcome != model.OutcomeRunning || v.Handlers[0].Attempts != 1 {
			t.Errorf("want the first attempt of the handler under way, have %+v", v.Handlers)
		}
		if n := ledger.written.Load(); n != 1 {
			t.Errorf("want one commit, have %d", n)
		}
		close(slow)
		r.settle(e, run, model.Succeeded)
	})
}

// What live settings have decided must be decided the same after a crash.
func TestLiveSettingsAreSavedBeforeTheCallsTheyLedTo(t *testing.T) {
	t.Parallel()
	const settings = `
configs: {ON: true}
pipelines:
- id: work
  stages: [{id: a, handlers: [{id: one, step: {}, enabled: !$ configs.ON}]}]
- id: chosen
  when: !$ configs.ON
  stages: [{id: a, handlers: [{id: one, step: {}}]}]
- id: timed
  stages: [{id: a, handlers: [{id: one, step: {value: !$ run.started}}]}]
`
	for _, pipeline := range []string{"work", "chosen", "timed"} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			stuck := make(gate)
			r.on("one", stuck.do)
			e, _ := r.start(settings)
			run := r.submit(e, event(pipeline, "k"))
			synctest.Wait()
			if v := r.view(e, run); len(v.Handlers) != 1 {
				t.Errorf("%s: want the attempt saved before the call, have %+v", pipeline, v.Handlers)
			}
			close(stuck)
			r.settle(e, run, model.Succeeded)
		})
	}
}
