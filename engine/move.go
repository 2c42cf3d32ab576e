package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"procaas/engine/checkpoint"
	"procaas/engine/clock"
	"procaas/engine/core"
	"procaas/engine/definitions"
	"procaas/engine/model"
	"procaas/engine/planner"
	"procaas/engine/records"
	"procaas/engine/store"
)

// This file moves runs to the present definition, when operators want it. A run
// that nobody works on is moved in the store. The node that works on one is asked:
// it lets the calls under way end, and puts the run back with the definition by
// which it goes on. Whoever moves it has looked whether it fits.

// A RunFit tells whether a run could go on by another definition.
type RunFit struct {
	ID         string       `json:"id"`
	Pipeline   string       `json:"pipeline"`
	Status     model.Status `json:"status"`
	Bundle     string       `json:"bundle"`
	Compatible bool         `json:"compatible"`
	Why        string       `json:"why,omitempty"` // it is pinned to its bundle
}

// NewRunFit tells of a run that fits when err is nil, and why it is pinned
// otherwise.
func NewRunFit(v checkpoint.RunView, err error) RunFit {
	f := RunFit{ID: v.ID, Pipeline: v.Pipeline, Status: v.Status, Bundle: v.Bundle, Compatible: err == nil}
	if err != nil {
		f.Why = err.Error()
	}
	return f
}

// A PinnedError says why a run must end with the definition that it began with.
type PinnedError struct{ Err error }

// Error implements error.
func (e *PinnedError) Error() string { return "the run is pinned to its definition: " + e.Err.Error() }

func (e *PinnedError) Unwrap() error { return e.Err }

// ErrPipelineGone says that a definition does not have the pipeline of a run.
var ErrPipelineGone = errors.New("the pipeline is gone")

// FitsState tells why a run must not end by a plan: its automaton has no
// transition on the event from the state that the run found its entity in.
func FitsState(p *planner.Plan, state, eventType string) error {
	if _, ok := planner.Transition(p.Flow, state, eventType); !ok {
		return fmt.Errorf("its entity is in state %s, which has no transition on %s any more", planner.StateOf(p.Flow, state), eventType)
	}
	return nil
}

// fits tells why a run cannot go on by d; nil when it can. Another error is of
// the store.
func (e *Engine) fits(ctx context.Context, d *definitions.Definition, r store.RunRecord) (pinned, err error) {
	after := d.ByID[r.Pipeline]
	if after == nil {
		return ErrPipelineGone, nil
	}
	var before *planner.Plan
	old, err := e.library.Get(ctx, r.Bundle)
	switch {
	case err == nil:
		before = old.ByID[r.Pipeline]
	case !errors.Is(err, definitions.ErrUnusable): // one that cannot run here is a reason to move
		return nil, err
	}
	if pinned := core.Fits(before, after, records.View(r)); pinned != nil {
		return pinned, nil
	}
	if !r.Ordered || after.Flow == nil {
		return FitsState(after, "", r.Event.Type), nil
	}
	entity, err := e.o.Store.Runs.Entity(ctx, r.Flow, r.Key)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	return FitsState(after, entity.State, r.Event.Type), nil
}

// Fit tells whether a run could go on by the present definition.
func (e *Engine) Fit(ctx context.Context, id string) (RunFit, error) {
	r, err := e.o.Store.Runs.Run(ctx, id)
	if err != nil {
		return RunFit{}, fmt.Errorf("run %s: %w", id, err)
	}
	if !r.IsMovable() {
		return RunFit{}, fmt.Errorf("run %s: %w", id, store.ErrConflict)
	}
	pinned, err := e.fits(ctx, e.library.Present(), r)
	if err != nil {
		return RunFit{}, fmt.Errorf("run %s: %w", id, err)
	}
	return NewRunFit(records.View(r), pinned), nil
}

// moveTries is how often a run that goes on meanwhile is looked at anew.
const moveTries = 5

// Move lets a run go on by the present definition. When a node works on it, that
// is asked to, as [checkpoint.RunView].Move tells. The error is [store.ErrConflict] for a run that
// has not begun or has ended, a [*PinnedError] when it does not fit.
func (e *Engine) Move(ctx context.Context, id string, by store.Actor) (checkpoint.RunView, error) {
	if err := e.move(ctx, id, by); err != nil {
		return checkpoint.RunView{}, fmt.Errorf("move run %s: %w", id, err)
	}
	return e.RunByID(ctx, id)
}

func (e *Engine) move(ctx context.Context, id string, by store.Actor) error {
	d := e.library.Present()
	for try := 1; ; try++ {
		r, err := e.o.Store.Runs.Run(ctx, id)
		if err != nil {
			return err
		}
		if !r.IsMovable() {
			return store.ErrConflict
		}
		if r.Bundle == d.Bundle.Hash && r.Move == "" {
			return nil
		}
		pinned, err := e.fits(ctx, d, r)
		if err != nil {
			return err
		}
		if pinned != nil {
			return &PinnedError{pinned}
		}
		asked, err := e.o.Store.Runs.Move(ctx, store.Move{Run: id, Bundle: d.Bundle.Hash}, r.Version, by)
		if errors.Is(err, store.ErrStale) && try < moveTries {
			continue
		}
		if n := e.node.Load(); err == nil && asked && n != nil {
			if j := n.job(id); j != nil {
				j.move(d.Bundle.Hash)
			}
		}
		return err
	}
}

// A RunsMoved tells what became of a page of runs that operators wanted moved.
type RunsMoved struct {
	Preview bool     `json:"preview"`
	Bundle  string   `json:"bundle"`   // the present one
	Done    int      `json:"done"`     // runs that go on by it, or would
	Pinned  []RunFit `json:"pinned"`   // runs that it does not fit
	MovedOn int      `json:"moved_on"` // runs that have ended meanwhile
	Next    *string  `json:"next"`     // the cursor of the rest; null at the end
}

// MoveAll moves the runs of a page, those that go on by another definition than
// the present one, the first accepted first. With preview, it only looks.
func (e *Engine) MoveAll(ctx context.Context, f store.RunFilter, preview bool, by store.Actor) (RunsMoved, error) {
	d := e.library.Present()
	f.Live, f.Other, f.Oldest = true, d.Bundle.Hash, true
	out := RunsMoved{Preview: preview, Bundle: d.Bundle.Hash, Pinned: []RunFit{}}
	found, next, err := e.list(ctx, f)
	if err != nil {
		return out, err
	}
	if next != "" {
		out.Next = &next
	}
	for _, r := range found {
		var pinned *PinnedError
		if preview {
			why, wrong := e.fits(ctx, d, r)
			if err = wrong; why != nil {
				err = &PinnedError{why}
			}
		} else {
			err = e.move(ctx, r.ID, by)
		}
		switch {
		case err == nil:
			out.Done++
		case errors.As(err, &pinned):
			out.Pinned = append(out.Pinned, NewRunFit(records.View(r), pinned.Err))
		case errors.Is(err, store.ErrConflict), errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrStale):
			out.MovedOn++
		default:
			return out, fmt.Errorf("run %s: %w", r.ID, err)
		}
	}
	return out, nil
}

// move asks for the run's way to another definition. It may be called more than
// once.
func (j *job) move(bundle string) {
	if reason, ok := model.UndoReason(bundle); ok {
		if j.stopping.Swap(&reason) == nil {
			j.pass.Wake()
		}
		return
	}
	if old := j.moving.Swap(&bundle); old == nil || *old != bundle {
		j.pass.Wake()
	}
}

// moves tells whether the run is to go on by another definition, so that nothing
// more is started.
func (j *job) moves() bool {
	return j.moving.Load() != nil && j.stopping.Load() == nil && !j.run.Status().Ended()
}

// putBack gives the run back to the store with the definition by which it is to
// go on: the one that was asked for, when it fits, otherwise its own. It is false
// when nobody can tell now; the next beat asks again.
func (j *job) putBack() bool {
	to := *j.moving.Load()
	pinned, err := j.fits(to, j.run.Checkpoint())
	if err != nil {
		j.at("").Warn("definition cannot be read, so the run is not moved yet", "bundle", to, "error", err)
		j.moving.Store(nil)
		return false
	}
	change := j.run.Change()
	change.Version, change.Status, change.Due, change.Cause = j.version, model.Waiting, time.Time{}, ""
	change.Emit, change.Moved = j.intakes(j.run.TakeEmits()), true
	j.count()
	if pinned != nil {
		j.at("").Warn("run is not moved", "bundle", to, "reason", pinned)
	} else {
		j.at("").Info("run is moved", "from", change.Bundle, "bundle", to)
		change.Bundle = to
	}
	if err := j.commit(change); errors.Is(err, store.ErrCancelled) {
		j.stop()
	}
	return true
}

// fits is [Engine.fits] for a run in this node's hands.
func (j *job) fits(bundle string, checkpoint []byte) (pinned, err error) {
	ctx, cancel := context.WithTimeout(j.n.ctx, clock.StoreTimeout)
	defer cancel()
	c := j.claimed
	d, err := j.n.e.library.Get(ctx, bundle)
	if errors.Is(err, definitions.ErrUnusable) {
		return err, nil
	}
	if err != nil {
		return nil, err
	}
	return j.n.e.fits(ctx, d, store.RunRecord{
		ID: c.ID, Event: c.Event, Flow: c.Flow, Key: c.Key, Ordered: c.Ordered, Status: model.Running, Pipeline: j.run.Plan().Pipeline.ID,
		Bundle: j.def.Bundle.Hash, Checkpoint: checkpoint, Generation: c.Generation,
	})
}
