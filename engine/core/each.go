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

// This file repeats the call of a handler for each element of a list, or a whole stage. From outside
// such a stage is one handler with a for-each, and each element is a run inside of the run, as that of
// a called pipeline is: with records and a state of its own, which are a part of the checkpoint. But it
// sees all that the run does.

// expand computes the items of a handler. It is false when the handler is decided by
// that.
func (r *decisions) expand(s *planner.Step, live Live) bool {
	f, rec := s.Handler.ForEach, &r.records[s.Position]
	items, raw, err := listOf(f, r.scope.env(live), int(r.plan.Pipeline.MaxState))
	if err == nil {
		err = r.extent.spread(len(items), s.Callee)
	}
	if err == nil {
		err = r.extent.grow(dataWeight * len(raw))
	}
	if err != nil {
		r.giveUp(s, err, live)
		return false
	}
	rec.started = model.Stamp(live.Now)
	startClock(&r.progress, r.unit(s), live.Now)
	rec.each = &iteration{items: items, raw: raw, of: make([]record, len(items)), total: len(items)}
	r.dirty = true
	if s.Volatile || planner.AnyLive(f.Items.Reads()) {
		r.touch() // begun anew, it might be another list
	}
	if len(items) == 0 {
		r.gathered(s, live)
		return false
	}
	return true
}

// listOf evaluates the list of a for-each. It is kept until the handler is decided, so
// it is bounded as the shared state is.
func listOf(f *tree.ForEach, env datum.Env, limit int) ([]any, json.RawMessage, error) {
	v, err := f.Items.Eval(env)
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

// beginItems starts attempts of as many items as may be worked on at once, the first
// ones first. After an item has failed for good that fails the handler, none behind it
// goes on, but to undo what its call has done.
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
		if u.rec.decided() {
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

// beginItem starts the next attempt of an item when its time has come, or decides about
// the item.
func (r *Run) beginItem(tasks []Attempt, u unit, live Live) []Attempt {
	switch {
	case u.rec.underway, u.rec.outcome == model.OutcomeUnknown:
	case u.rec.due.After(live.Now):
		overdue(&r.decisions, u, live)
	case u.rec.outcome == model.OutcomeWaiting:
		r.itemSucceeded(u)
	case u.Callee != nil:
		return r.goIn(tasks, u, live)
	default:
		if t, ok := r.attempt(u, live); ok {
			return append(tasks, t)
		}
	}
	return tasks
}

// giveUpItem lets the call for an item undo what it has done, since an item before it has
// failed the handler. One that has nothing to undo is left as it is: it goes on when an
// operator retries the run.
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
	return r.goIn(tasks, u, live)
}

// finishItems decides about the handler once nothing of it is left to do.
func (r *decisions) finishItems(s *planner.Step, live Live) {
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

// gathered makes the response of a handler of those of its items.
func (r *decisions) gathered(s *planner.Step, live Live) {
	rec := &r.records[s.Position]
	list := make([]any, len(rec.each.of))
	for i := range rec.each.of {
		list[i] = rec.each.of[i].result(s.Handler.ForEach.OnFailure == "collect")
	}
	if s.Gathers {
		raw, err := r.encode(s, list, false)
		if err != nil {
			r.giveUp(s, err, live)
			return
		}
		rec.response, rec.raw = list, raw
	}
	r.succeed(s, live)
}

// itemSucceeded decides about an item.
func (r *decisions) itemSucceeded(u unit) {
	rec := u.rec
	rec.outcome, rec.err, rec.reason, rec.sub = model.OutcomeSucceeded, "", "", nil
	rec.emitted = nil // the ids follow from the run
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
func (r *decisions) itemFailed(u unit, err error) {
	rec := u.rec
	rec.outcome, rec.err, rec.reason = model.OutcomeFailed, model.CleanText(err.Error()), ""
	rec.response, rec.raw, rec.status = nil, nil, statusOf(err)
	rec.class = model.ClassOf(err)
	r.decideItem(u)
}

func (r *decisions) decideItem(u unit) {
	u.rec.due, u.rec.started = time.Time{}, time.Time{}
	u.rec.body, u.rec.ready = nil, false
	r.further = true
	r.touch()
}
