package core

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"procaas/dsl/datum"
	"procaas/dsl/tree"
	"procaas/engine/model"
	"procaas/engine/planner"
)

// This file repeats a handler, or a whole stage, for each element of a list. A repeated stage looks
// like one handler with a for-each. Each element is a run inside the run, like that of a called
// pipeline. Its records and state are part of the checkpoint. Unlike a called pipeline, it can read
// everything that the run can read.

// expand computes the items of a handler. It returns false if this decides the handler, or if there
// is no memory for them now.
func (r *Run) expand(s *planner.Step, live Live) bool {
	f, rec := s.Handler.ForEach, &r.records[s.Position]
	if !r.hasRoom(r.unit(s), live) {
		return false
	}
	items, raw, err := listOf(f, r.scope.env(live), int(r.plan.Pipeline.MaxState))
	if err == nil {
		err = r.whole.extent.spread(len(items), s.Callee)
	}
	if err == nil {
		err = r.whole.extent.grow(dataWeight(raw))
	}
	if err != nil {
		r.giveUp(s, err, live)
		return false
	}
	rec.started = model.Stamp(live.Now)
	r.startClock(r.unit(s), live)
	rec.each = &iteration{items: items, raw: raw, of: make([]record, len(items)), total: len(items)}
	r.whole.dirty = true
	if s.Volatile || planner.AnyLive(f.Items.Reads()) {
		r.touch() // or a restart might compute another list
	}
	if len(items) == 0 {
		r.gathered(s, live)
		return false
	}
	return true
}

// listOf evaluates the list of a for-each. The list is kept until the handler is decided, so it has
// the size bound of the shared state.
func listOf(f *tree.ForEach, env datum.Env, limit int) ([]any, json.RawMessage, error) {
	v, err := f.Items.Share(env)
	if err != nil {
		return nil, nil, err
	}
	items, ok := v.([]any)
	if !ok {
		if v == nil {
			cure := "write ?? [] behind it where there may be none"
			if slices.ContainsFunc(f.Items.Reads(), func(r datum.Read) bool { return r.Path[0] == "event" }) {
				cure += ", or require it in the payload schema under events, so that events without it are refused"
			}
			return nil, nil, fmt.Errorf("%s: for-each: items: want a list, have null; %s", f.Items.Span, cure)
		}
		return nil, nil, fmt.Errorf("%s: for-each: items: want a list, have %s", f.Items.Span, model.KindOf(v))
	}
	if len(items) > f.MaxItems {
		return nil, nil, fmt.Errorf("%s: for-each: items: have %d, and max-items is %d", f.Items.Span, len(items), f.MaxItems)
	}
	raw, err := model.EncodeData(v)
	if err != nil {
		return nil, nil, fmt.Errorf("for-each: items: %w", err)
	}
	if len(raw) > limit {
		return nil, nil, fmt.Errorf("for-each: the items are %d bytes, which have to be kept, and max-state is %d", len(raw), limit)
	}
	return items, raw, nil
}

// beginItems starts attempts of as many items as may run at once, in order. If an item has failed
// the handler, no item after it continues, except to undo what its call has done.
func (r *Run) beginItems(tasks []Attempt, s *planner.Step, live Live) []Attempt {
	each := r.records[s.Position].each
	busy, stop := 0, each.stop(s)
	for i := 0; i < stop && busy < s.Parallel; i++ {
		u := r.itemOf(s, i)
		if u.rec.decided() {
			continue
		}
		busy++
		tasks = r.beginItem(tasks, u, live)
		if r.records[s.Position].decided() {
			return tasks
		}
		if u.rec.decided() { // without a call, so that the next one may take its turn
			busy--
			stop = each.stop(s)
		}
	}
	for i := stop + 1; i < len(each.of); i++ {
		if u := r.itemOf(s, i); u.rec.sub != nil && !u.rec.decided() {
			tasks = r.giveUpItem(tasks, u, live)
		}
	}
	r.finishItems(s, live)
	return tasks
}

// beginItem starts the next attempt of an item when it is due, or decides the item.
func (r *Run) beginItem(tasks []Attempt, u unit, live Live) []Attempt {
	switch {
	case u.rec.underway, u.rec.outcome == model.OutcomeUnknown:
	case u.rec.due.After(live.Now):
		r.overdue(u, live)
	case u.rec.outcome == model.OutcomeWaiting && !u.rec.looks():
		r.itemSucceeded(u)
	case u.Callee != nil:
		return r.advanceCall(tasks, u, live)
	default:
		if t, ok := r.attempt(u, live); ok {
			return append(tasks, t)
		}
	}
	return tasks
}

// giveUpItem lets the call of an item undo what it has done, because an item before it has failed
// the handler. An item with nothing to undo stays as it is, and continues when an operator retries
// the run.
func (r *Run) giveUpItem(tasks []Attempt, u unit, live Live) []Attempt {
	sub := u.rec.sub
	if !sub.hasToUndo() {
		return tasks
	}
	if !sub.givesUp() {
		err := u.of.cutOffBy(u.Step)
		sub.failedPath, sub.failure, sub.class = u.Path, model.CleanText(err.Error()), model.ClassOf(err)
		r.touch()
	}
	return r.advanceCall(tasks, u, live)
}

// finishItems decides the handler when all of its items are done.
func (r *Run) finishItems(s *planner.Step, live Live) {
	rec := &r.records[s.Position]
	if rec.each == nil || rec.decided() {
		return
	}
	stop := rec.each.stop(s)
	for i := range rec.each.of {
		item := &rec.each.of[i]
		if item.isBusy() || i < stop && !item.decided() {
			return
		}
		if i > stop && item.sub != nil && !item.decided() && item.sub.hasToUndo() {
			return
		}
	}
	if stop == len(rec.each.of) {
		r.gathered(s, live)
		return
	}
	err := rec.cutOffBy(s)
	rec.sum()
	rec.err = model.CleanText(err.Error())
	r.settle(s, err, live)
}

// gathered builds the response of a handler from those of its items.
func (r *Run) gathered(s *planner.Step, live Live) {
	rec := &r.records[s.Position]
	list := make([]any, len(rec.each.of))
	for i := range rec.each.of {
		list[i] = rec.each.of[i].result(s.Handler.ForEach.OnFailure == "collect")
	}
	if s.Gathers {
		raw, err := r.encode(r.unit(s), list, false)
		if err != nil {
			r.giveUp(s, err, live)
			return
		}
		rec.response, rec.raw = list, raw
	}
	r.succeed(s, live)
}

// itemSucceeded decides an item as succeeded.
func (r *Run) itemSucceeded(u unit) {
	rec := u.rec
	rec.outcome = model.OutcomeSucceeded
	rec.err = ""
	rec.reason = ""
	rec.sub = nil
	rec.emitted = nil // ids can be derived from the run
	if !u.Gathers {
		rec.response, rec.raw = nil, nil
	}
	if u.Handler.ForEach.OnFailure != "collect" || !u.Gathers {
		rec.status = 0
	}
	if total := u.of.each.kept(); total > int(r.plan.Pipeline.MaxState) {
		r.itemFailed(u, model.Permanent(fmt.Errorf("responses of %d bytes have to be kept, and max-state is %d", total,
			r.plan.Pipeline.MaxState)))
		return
	}
	r.decideItem(u)
}

// itemFailed decides that an item has failed for good.
func (r *Run) itemFailed(u unit, err error) {
	rec := u.rec
	rec.outcome, rec.err, rec.reason = model.OutcomeFailed, model.CleanText(err.Error()), ""
	rec.response, rec.raw, rec.status = nil, nil, statusOf(err)
	rec.class = model.ClassOf(err)
	r.decideItem(u)
}

// decideItem notes that an item is decided.
func (r *Run) decideItem(u unit) {
	u.rec.due, u.rec.started = time.Time{}, time.Time{}
	u.rec.body, u.rec.bodySize, u.rec.ready = nil, 0, false
	r.whole.further = true
	r.touchItem(u)
}
