package core

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"procaas/dsl/datum"
	"procaas/engine/checkpoint"
	"procaas/engine/model"
	"procaas/engine/planner"
)

// This file writes the checkpoint of a run, and reads records from it.

// Checkpoint encodes the run. Nobody may change the result: the next checkpoint copies from it what
// has not changed since.
func (r *Run) Checkpoint() []byte {
	c := r.head()
	w := checkpoint.NewWriter(&c, r.room())
	for i, s := range slices.Backward(r.plan.Steps) {
		rec := &r.records[i]
		switch {
		case !rec.reached():
		case rec.text != checkpoint.Part{}:
			rec.text = w.Copy(r.saved, rec.text)
		default:
			saved := rec.saveAll(s)
			text := w.Add(&saved)
			if rec.final(s) {
				rec.text = text
			}
		}
	}
	r.saved = w.End(&c)
	return r.saved
}

// room is about how many bytes the next checkpoint has.
func (r *Run) room() int {
	const besides, handler = 192, 112 // bytes of a short run without names and handlers, and of each handler
	n := besides + r.scope.size
	for i := range r.records {
		if rec := &r.records[i]; rec.reached() {
			n += handler + len(rec.raw)
		}
	}
	return max(n, len(r.saved))
}

// snapshot returns the checkpoint of a run inside a call.
func (r *Run) snapshot() *checkpoint.Run {
	c := r.head()
	for i, s := range r.plan.Steps {
		if rec := &r.records[i]; rec.reached() {
			c.Handlers = append(c.Handlers, rec.saveAll(s))
		}
	}
	return &c
}

// head returns the run's checkpoint without its handlers.
func (r *Run) head() checkpoint.Run {
	c := checkpoint.Run{
		Format: checkpoint.Format, Pipeline: r.plan.Pipeline.ID, Generation: r.start.Generation, State: r.start.State,
		Began: r.began, Stage: r.stage, FailedPath: r.failedPath, Failure: r.failure, Class: r.class, Reason: r.reason, Stopping: r.stopping,
		MakesUp: r.makesUp, Undoing: r.undoing, Closing: r.closing,
		Clock: r.clock, StageClock: r.stageClock,
		Inputs: r.rawInputs, Outputs: r.outputs, Shared: r.scope.raw, Wrote: r.scope.wrote,
	}
	if r.status.Ended() {
		c.Ended = r.status
	}
	if r.within == "" { // the runs inside share it
		c.Redone, c.Parts, c.Looped = r.whole.redone.refs(), r.whole.extent.parts, r.whole.extent.looped
		c.Stood, c.Paused, c.Recording = r.whole.stood, r.whole.paused, r.whole.recording.RunRecording
	}
	return c
}

// final reports whether nothing changes the record of a handler any more while this process has the
// run. Undoing changes it, and so does the end of its run, if the handler has made a call.
func (r *record) final(s *planner.Step) bool {
	return r.decided() && s.Undo == nil && r.sub == nil && (r.each == nil || r.each.of == nil)
}

// saveAll returns the record with that of its compensation.
func (r *record) saveAll(s *planner.Step) checkpoint.Record {
	saved := r.save(s.Path)
	saved.Undo = r.saveUndo(s)
	return saved
}

func (r *record) save(path string) checkpoint.Record {
	call, trail := (*checkpoint.Run)(nil), r.trail
	if r.sub != nil {
		call, trail = r.sub.snapshot(), nil
	}
	return checkpoint.Record{
		Call: call, Trail: trail,
		Path: path, Outcome: r.outcome, Attempts: r.attempts, Failures: r.failures, Unknown: r.unknown, Asked: r.asked,
		Started: r.started, Finished: r.finished, Due: r.due, Delay: r.delay, Held: r.held, Clock: r.clock,
		Error: r.err, Class: r.class, Reason: r.reason, Response: r.raw, Status: r.status, Emitted: r.emitted, Heard: int(r.heard), Again: r.lookup,
		Each: r.each.save(), Saw: r.saw, Done: r.done, Borrowed: r.borrowed,
		Was: r.was, Wide: r.wide, Tries: r.tries,
	}
}

// saveUndo returns the record of a handler's compensation, or nil before it begins.
func (r *record) saveUndo(s *planner.Step) *checkpoint.Record {
	if r.undo == nil {
		return nil
	}
	saved := r.undo.save(s.Undo.Path)
	return &saved
}

// restore takes over a saved record.
func (r *record) restore(saved checkpoint.Record) error {
	*r = record{
		outcome: saved.Outcome, attempts: saved.Attempts, failures: saved.Failures, delay: saved.Delay,
		unknown: saved.Unknown, asked: saved.Asked, held: saved.Held, clock: saved.Clock,
		started: saved.Started, finished: saved.Finished, due: saved.Due,
		err: saved.Error, class: saved.Class, reason: saved.Reason, raw: saved.Response, status: saved.Status, emitted: saved.Emitted,
		heard: int64(saved.Heard), saw: saved.Saw, trail: saved.Trail, done: saved.Done, borrowed: saved.Borrowed,
		was: saved.Was, wide: saved.Wide, tries: saved.Tries, lookup: saved.Again,
	}
	if r.looks() {
		r.due = time.Time{} // whatever has woken the run, the handler looks now
	}
	if err := r.check(); err != nil {
		return err
	}
	if r.raw != nil {
		value, err := datum.ParseJSON(r.raw)
		if err != nil {
			return fmt.Errorf("response: %w", err)
		}
		r.response = value
	}
	return r.restoreEach(saved.Each)
}

// check refuses a record that no run could have written.
func (r *record) check() error {
	if r.outcome != "" && r.outcome != model.OutcomeWaiting && r.outcome != model.OutcomeUnknown && !r.decided() {
		return fmt.Errorf("there is no outcome %q", r.outcome)
	}
	if min(r.attempts, r.failures, r.asked) < 0 || r.failures > r.attempts || r.delay < 0 {
		return errors.New("its numbers of attempts do not fit together")
	}
	return nil
}

func (e *iteration) save() *checkpoint.Each {
	if e == nil {
		return nil
	}
	saved := &checkpoint.Each{Items: e.raw, Total: e.total, Succeeded: e.succeeded, Failed: e.failed}
	var done checkpoint.Numbers
	for i := range e.of {
		if rec := &e.of[i]; rec.isPlain() {
			done.Add(i + 1)
		} else if rec.reached() {
			item := rec.save("")
			item.Item = i + 1
			saved.Of = append(saved.Of, item)
		}
	}
	saved.Done = done.Text()
	return saved
}

// isPlain reports whether an item has succeeded without anything else to save.
func (r *record) isPlain() bool {
	atOnce := r.attempts == 1 && r.failures == 0 && r.asked == 0 && r.delay == 0
	leavesNothing := r.raw == nil && r.status == 0 && r.trail == nil
	return r.outcome == model.OutcomeSucceeded && atOnce && leavesNothing
}

// restoreEach takes over the saved items.
func (r *record) restoreEach(saved *checkpoint.Each) error {
	if saved == nil {
		return nil
	}
	r.each = &iteration{raw: saved.Items, total: saved.Total, succeeded: saved.Succeeded, failed: saved.Failed}
	if saved.Items == nil {
		if !r.decided() {
			return errors.New("its items are missing")
		}
		return nil
	}
	data, err := datum.ParseJSON(saved.Items)
	if err != nil {
		return fmt.Errorf("items: %w", err)
	}
	items, ok := data.([]any)
	if !ok || len(items) != saved.Total {
		return fmt.Errorf("items: want a list of %d, have %s", saved.Total, model.KindOf(data))
	}
	r.each.items, r.each.of = items, make([]record, len(items))
	done, err := checkpoint.ReadNumbers(saved.Done, len(items))
	if err != nil {
		return err
	}
	for _, n := range done {
		r.each.of[n-1] = record{outcome: model.OutcomeSucceeded, attempts: 1}
	}
	for _, item := range saved.Of {
		if item.Item < 1 || item.Item > len(items) || r.each.of[item.Item-1].reached() {
			return fmt.Errorf("items: there is no item %d, or it is there twice", item.Item)
		}
		if err := r.each.of[item.Item-1].restore(item); err != nil {
			return fmt.Errorf("item %d: %w", item.Item, err)
		}
	}
	return nil
}
