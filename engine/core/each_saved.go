package core

import (
	"errors"
	"fmt"

	"procaas/dsl/datum"
	"procaas/engine/checkpoint"
	"procaas/engine/model"
)

// This file keeps items in checkpoints.

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

// isPlain tells whether there is no more to say of an item than that it is done.
func (r *record) isPlain() bool {
	return r.outcome == model.OutcomeSucceeded && r.attempts == 1 && r.failures == 0 && r.raw == nil && r.status == 0 && r.delay == 0 &&
		r.asked == 0 && r.trail == nil
}

// restoreEach takes over what was saved of the items.
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
