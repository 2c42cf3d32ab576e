package records

import (
	"context"
	"errors"
	"fmt"

	"procaas/engine/checkpoint"
	"procaas/engine/core"
	"procaas/engine/definitions"
	"procaas/engine/model"
	"procaas/engine/planner"
	"procaas/engine/store"
)

// This file moves runs to the current definition for operators. A run that no node drives is moved
// in the store. Otherwise the node is asked: it waits for the calls in flight, and releases the run
// with its new definition. Whoever moves a run checks first whether the new definition fits.

// A RunFit says whether a run could continue with another definition.
type RunFit struct {
	ID         string       `json:"id"`
	Pipeline   string       `json:"pipeline"`
	Status     model.Status `json:"status"`
	Bundle     string       `json:"bundle" doc:"The hash of the present definition of the run."`
	Compatible bool         `json:"compatible"`
	Why        string       `json:"why,omitempty" doc:"The reason why it is pinned; absent if it is not."`
}

// NewRunFit describes a run that fits if err is nil. Otherwise err says why it is pinned.
func NewRunFit(v checkpoint.RunView, err error) RunFit {
	f := RunFit{ID: v.ID, Pipeline: v.Pipeline, Status: v.Status, Bundle: v.Bundle, Compatible: err == nil}
	if err != nil {
		f.Why = err.Error()
	}
	return f
}

// A PinnedError says why a run must end with the definition it began with.
type PinnedError struct{ Err error }

// Error implements error.
func (e *PinnedError) Error() string { return "the run is pinned to its definition: " + e.Err.Error() }

func (e *PinnedError) Unwrap() error { return e.Err }

// ErrPipelineGone reports that a definition does not have the pipeline of a run.
var ErrPipelineGone = errors.New("the pipeline is gone")

// FitsState returns an error if a run cannot end by a plan, because its automaton has no transition
// for the event from the state that the run found.
func FitsState(p *planner.Plan, state, eventType string) error {
	if _, ok := planner.Transition(p.Flow, state, eventType); !ok {
		return fmt.Errorf("its entity is in state %s, which has no transition on %s any more", planner.StateOf(p.Flow, state), eventType)
	}
	return nil
}

// Fits returns as pinned why a run cannot continue with d, or nil. err is an error of the store.
func (o *Runs) Fits(ctx context.Context, d *definitions.Definition, r store.RunRecord) (pinned, err error) {
	after := d.ByID[r.Pipeline]
	if after == nil {
		return ErrPipelineGone, nil
	}
	var before *planner.Plan
	old, err := o.Library.Get(ctx, r.Bundle)
	switch {
	case err == nil:
		before = old.ByID[r.Pipeline]
	case !errors.Is(err, definitions.ErrUnusable): // a definition that cannot run here is a reason to move
		return nil, err
	}
	if pinned := core.Fits(before, after, View(r)); pinned != nil {
		return pinned, nil
	}
	if !r.Ordered || after.Flow == nil {
		return FitsState(after, "", r.Event.Type), nil
	}
	entity, err := o.Store.Runs.Entity(ctx, r.Flow, r.Key)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	return FitsState(after, entity.State, r.Event.Type), nil
}

// Fit reports whether a run could continue with the current definition.
func (o *Runs) Fit(ctx context.Context, id string) (RunFit, error) {
	r, err := o.Store.Runs.Run(ctx, id)
	if err != nil {
		return RunFit{}, fmt.Errorf("run %s: %w", id, err)
	}
	if !r.IsMovable() {
		return RunFit{}, fmt.Errorf("run %s: %w", id, store.ErrConflict)
	}
	pinned, err := o.Fits(ctx, o.Library.Present(), r)
	if err != nil {
		return RunFit{}, fmt.Errorf("run %s: %w", id, err)
	}
	return NewRunFit(View(r), pinned), nil
}

// moveTries is how often a run is read again because it has changed.
const moveTries = 5

// Move moves a run to the current definition. If a node drives it, that node is asked. See
// [checkpoint.RunView].Move. The error is [store.ErrConflict] if the run has not begun or has
// ended, and a [*PinnedError] if the definition does not fit.
func (o *Runs) Move(ctx context.Context, id string, by store.Actor) (checkpoint.RunView, error) {
	if err := o.move(ctx, id, by); err != nil {
		return checkpoint.RunView{}, fmt.Errorf("move run %s: %w", id, err)
	}
	return o.RunByID(ctx, id)
}

func (o *Runs) move(ctx context.Context, id string, by store.Actor) error {
	d := o.Library.Present()
	for try := 1; ; try++ {
		r, err := o.Store.Runs.Run(ctx, id)
		if err != nil {
			return err
		}
		if !r.IsMovable() {
			return store.ErrConflict
		}
		if r.Bundle == d.Bundle.Hash && r.Move == "" {
			return nil
		}
		pinned, err := o.Fits(ctx, d, r)
		if err != nil {
			return err
		}
		if pinned != nil {
			return &PinnedError{pinned}
		}
		asked, err := o.Store.Runs.Move(ctx, store.Move{Run: id, Bundle: d.Bundle.Hash}, r.Version, by)
		if errors.Is(err, store.ErrStale) && try < moveTries {
			continue
		}
		if err == nil && asked {
			o.Node.Move(id, d.Bundle.Hash)
		}
		return err
	}
}

// A RunsMoved is the result of moving a page of runs.
type RunsMoved struct {
	Preview bool     `json:"preview"`
	Bundle  string   `json:"bundle" doc:"The hash of the present definition."`
	Done    int      `json:"done" doc:"The number of runs that moved, or would move. Runs that a node works on move after their calls in flight."`
	Fit     []RunFit `json:"fit" doc:"These runs, as they were before."`
	Pinned  []RunFit `json:"pinned" doc:"Runs that do not fit. They stay as they are."`
	MovedOn int      `json:"moved_on" doc:"The number of runs that ended meanwhile."`
	Next    *string  `json:"next" doc:"The cursor of the rest; null at the end."`
}

// MoveAll moves the runs of a page that have another definition than the current one, oldest first.
// With preview, it changes nothing.
func (o *Runs) MoveAll(ctx context.Context, f store.RunFilter, preview bool, by store.Actor) (RunsMoved, error) {
	d := o.Library.Present()
	f.Live, f.Other, f.Oldest = true, d.Bundle.Hash, true
	out := RunsMoved{Preview: preview, Bundle: d.Bundle.Hash, Fit: []RunFit{}, Pinned: []RunFit{}}
	next, err := o.walk(ctx, f, func(r *store.RunRecord) error {
		var err error
		var pinned *PinnedError
		if preview {
			why, wrong := o.Fits(ctx, d, *r)
			if err = wrong; why != nil {
				err = &PinnedError{why}
			}
		} else {
			err = o.move(ctx, r.ID, by)
		}
		switch {
		case err == nil:
			out.Done++
			out.Fit = append(out.Fit, NewRunFit(View(*r), nil))
		case errors.As(err, &pinned):
			out.Pinned = append(out.Pinned, NewRunFit(View(*r), pinned.Err))
		case errors.Is(err, store.ErrConflict), errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrStale):
			out.MovedOn++
		default:
			return err
		}
		return nil
	})
	out.Next = next
	return out, err
}
