package triggers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"procaas/engine/clock"
	"procaas/engine/model"
	"procaas/engine/store"
)

// These are the overlap policies: what a trigger does at a due time while an earlier run of its has not ended.
const (
	OverlapAllow  = "allow"        // it fires
	OverlapSkip   = "skip"         // it does not fire
	OverlapBuffer = "buffer-one"   // it fires if no earlier run waits to begin
	OverlapCancel = "cancel-other" // it cancels the earlier run and fires
)

// Runs are the runs of events.
type Runs interface {
	// Run reads one run. The error is [store.ErrNotFound] if there is none.
	Run(ctx context.Context, id string) (store.RunRecord, error)

	// Cancel ends a run as an operator does. The error is [store.ErrConflict] if it has ended, and
	// [store.ErrUndoing] if it is cancelled already.
	Cancel(ctx context.Context, id string, by store.Actor) error
}

// overlap decides by the overlap policy whether a trigger may fire at a due time. It notes that it does not fire, or
// cancels earlier runs.
func (f *Firer) overlap(ctx context.Context, c *clockwork, due time.Time) (mayFire bool, err error) {
	limited, cancel := context.WithTimeout(ctx, clock.StoreTimeout)
	defer cancel()
	mark, err := f.Marks.Read(limited, c.trigger.ID)
	if err != nil {
		return false, err
	}
	last, err := f.Events.LastEvent(limited, Source(c.trigger.ID))
	if err != nil {
		return false, fmt.Errorf("trigger %s: last firing: %w", c.trigger.ID, err)
	}
	// What is later than any clock of today was written while the store's clock was ahead, and says nothing.
	decided := func(at time.Time) bool { return !at.Before(due) && at.Sub(f.Clock.Now()) < clockBack }
	if at, fired := DueAt(last); fired && decided(at) || mark.Reason != Missed && decided(mark.Passed) {
		c.last = due // by another node
		return false, nil
	}
	open, err := f.open(limited, c, last, &mark, due)
	if err != nil {
		return false, fmt.Errorf("trigger %s: earlier runs: %w", c.trigger.ID, err)
	}
	for _, r := range open {
		blocks := r.Status == model.Failed
		switch c.trigger.Overlap {
		case OverlapSkip:
			return false, f.pass(ctx, c, []time.Time{due}, Running, r.ID)
		case OverlapBuffer:
			if r.Bundle == "" { // it has not begun
				return false, f.pass(ctx, c, []time.Time{due}, Running, r.ID)
			}
		case OverlapCancel:
			if blocks {
				continue // an operator decides what becomes of a failed run
			}
			by := store.Actor{Name: "trigger " + c.trigger.ID, Reason: "overlap: " + OverlapCancel + ", for the firing of " + due.Format(time.RFC3339)}
			err := f.Runs.Cancel(limited, r.ID, by)
			if err != nil && !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrUndoing) && !errors.Is(err, store.ErrNotFound) {
				return false, fmt.Errorf("trigger %s: %w", c.trigger.ID, err)
			}
		}
	}
	return true, nil
}

// open lists the runs of the trigger's latest events before a due time that have not ended: of its last firing, and of
// the last events that operators fired. A failed run counts if the later runs of its key wait for it.
func (f *Firer) open(ctx context.Context, c *clockwork, last string, mark *Mark, due time.Time) (open []store.RunRecord, err error) {
	ids := []string{last}
	for asked := range maps.Values(mark.Asked) {
		if asked.Time.Before(due) {
			ids = append(ids, asked.ID)
		}
	}
	for _, id := range ids {
		if id == "" {
			continue
		}
		run, err := f.Events.EventRun(ctx, Source(c.trigger.ID), id)
		if err != nil {
			return nil, err
		}
		if run == "" {
			continue // the store has forgotten it, so it has ended
		}
		r, err := f.Runs.Run(ctx, run)
		switch {
		case errors.Is(err, store.ErrNotFound):
		case err != nil:
			return nil, err
		case !r.Status.Ended() || r.Status == model.Failed && r.Blocks:
			open = append(open, r)
		}
	}
	return open, nil
}
