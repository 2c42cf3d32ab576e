package intake

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"procaas/engine/checkpoint"
	"procaas/engine/core"
	"procaas/engine/definitions"
	"procaas/engine/model"
	"procaas/engine/planner"
	"procaas/engine/records"
	"procaas/engine/store"
)

// This file reruns a run. The new run comes from a new event with the same content. It waits behind
// the other runs of its key, and begins with the definition that is current then. For a rerun from
// a later stage, the event has the checkpoint.

// Reruns reruns runs.
type Reruns struct {
	Runs     *records.Runs
	Acceptor *Acceptor
}

// A RerunError says why a run cannot be rerun.
type RerunError struct{ Message string }

// Error implements error.
func (e *RerunError) Error() string { return e.Message }

// A RerunPlan says what a rerun would do.
type RerunPlan struct {
	Preview  bool     `json:"preview"`  // true
	Of       string   `json:"rerun_of"` // the id of the run
	Pipeline string   `json:"pipeline"` // expected to serve it
	Flow     string   `json:"flow"`
	Key      string   `json:"key"`
	Bundle   string   `json:"bundle"`     // version of new runs
	Was      string   `json:"old_bundle"` // version of the old run; empty if it has not begun
	Stage    string   `json:"from"`       // the stage where it begins; empty for the first
	Kept     []string `json:"kept"`       // handlers that are not called again
	Ahead    int      `json:"ahead"`      // runs of its key that come first
	Behind   string   `json:"behind"`     // the failed run of its key that blocks it; empty for none
}

// Rerun reruns an ended run, from a stage on, or from the start if that is empty. It returns the
// view of the new run. The error is a [*RerunError] if that is impossible, or an [*Error] if the
// event would be refused today.
func (o *Reruns) Rerun(ctx context.Context, id, stage string, by store.Actor) (checkpoint.RunView, error) {
	_, ev, err := o.planRerun(ctx, id, stage)
	if err != nil {
		return checkpoint.RunView{}, err
	}
	ev.Rerun.By, ev.Rerun.Reason = by.Name, by.Reason
	receipt, err := o.Acceptor.SubmitOne(ctx, Submission{Event: ev, Signed: true})
	if err != nil {
		return checkpoint.RunView{}, fmt.Errorf("rerun run %s: %w", id, err)
	}
	return o.Runs.RunByID(ctx, receipt.Run)
}

// RerunPlan returns what Rerun would do. Its errors are those of Rerun.
func (o *Reruns) RerunPlan(ctx context.Context, id, stage string) (RerunPlan, error) {
	p, _, err := o.planRerun(ctx, id, stage)
	return p, err
}

func (o *Reruns) planRerun(ctx context.Context, id, stage string) (p RerunPlan, ev model.Event, err error) {
	refuse := func(format string, args ...any) (RerunPlan, model.Event, error) {
		return p, ev, &RerunError{fmt.Sprintf("run %s cannot be run again: ", id) + fmt.Sprintf(format, args...)}
	}
	r, err := o.Runs.Store.Runs.Run(ctx, id)
	if err != nil {
		return p, ev, fmt.Errorf("run %s: %w", id, err)
	}
	entity, err := o.Runs.Store.Runs.Entity(ctx, r.Flow, r.Key)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return p, ev, fmt.Errorf("run %s: %w", id, err)
	}
	switch {
	case !r.Status.Ended():
		return refuse("it has not ended, it is %s; procaas runs migrate moves it to the present pipelines, or wait for its end", r.Status)
	case r.Ordered && entity.Blocked == id:
		return refuse("it has failed, and the later runs of its key wait for it; resume it with procaas runs retry, or cancel it first")
	}
	if last, err := o.Runs.RerunAs(ctx, records.View(r)); err != nil {
		return p, ev, err
	} else if again, err := o.Runs.Store.Runs.Run(ctx, last); last != "" && err == nil && !again.Status.Ended() {
		return refuse("run %s already does, and is %s", last, again.Status)
	}
	d := o.Runs.Library.Present()
	ev = r.Event
	ev.ID = NewID()
	ev.At = time.Time{}
	ev.Identity = ""
	ev.TraceParent = ""
	ev.TraceState = ""
	ev.Hops, ev.ChainSince, ev.Rerun = 0, time.Time{}, &model.Rerun{Of: id, Stage: stage}
	p = RerunPlan{Preview: true, Of: id, Stage: stage, Bundle: d.Bundle.Hash, Was: r.Bundle, Kept: []string{}}
	ev.Start = nil
	if stage != "" {
		why, err := o.startAt(ctx, d, r, &p, &ev)
		if err != nil {
			return p, ev, err
		} else if why != nil {
			return refuse("%s", why)
		}
	}
	in, err := Take(ctx, d, Submission{Event: ev}, r.Accepted)
	if err != nil {
		return p, ev, err
	}
	p.Pipeline, p.Flow, p.Key = in.Pipeline, in.Flow, in.Key
	if in.Flow != r.Flow || in.Key != r.Key {
		if entity, err = o.Runs.Store.Runs.Entity(ctx, in.Flow, in.Key); err != nil && !errors.Is(err, store.ErrNotFound) {
			return p, ev, fmt.Errorf("run %s: %w", id, err)
		}
	}
	if in.Ordered {
		p.Ahead, p.Behind = entity.Waiting, entity.Blocked
	}
	// Runs before it may still change the state of the key, so only the next one can be refused for it.
	isNext := in.Ordered && p.Ahead == 0 && p.Behind == ""
	if isNext && in.From != nil && !slices.Contains(in.From, entity.State) {
		return refuse("%s", records.FitsState(&planner.Plan{Flow: d.Bundle.Flow(in.Flow)}, entity.State, ev.Type))
	}
	return p, ev, nil
}

// startAt returns the checkpoint from which a rerun begins at a stage. why says why it cannot.
func (o *Reruns) startAt(
	ctx context.Context, d *definitions.Definition, r store.RunRecord, p *RerunPlan, ev *model.Event,
) (why, err error) {
	if r.Bundle == "" {
		return errors.New("it has not begun, so that no stage of it is known; leave out from (--from)"), nil
	}
	old, err := o.Runs.Library.Get(ctx, r.Bundle)
	if err != nil && !errors.Is(err, definitions.ErrUnusable) {
		return nil, err
	}
	if err != nil || old.ByID[r.Pipeline] == nil {
		return errors.New("its version is gone, and with it what its stages did; leave out from (--from)"), nil
	}
	ev.Start, why = core.Rerun(old.ByID[r.Pipeline], r.ID, r.Checkpoint, p.Stage)
	if why != nil {
		return why, nil
	}
	if d.ByID[r.Pipeline] == nil {
		return fmt.Errorf("pipeline %s is gone; put it back and reload", r.Pipeline), nil
	}
	r.Checkpoint, r.Status = ev.Start, model.Waiting
	if why, err = o.Runs.Fits(ctx, d, r); err != nil {
		return nil, err
	} else if why != nil {
		return fmt.Errorf("its state before stage %s does not fit the present definition: %w; leave out from (--from) to run all of it",
			p.Stage, why), nil
	}
	v := records.View(r)
	for _, h := range v.Handlers {
		p.Kept = append(p.Kept, h.Ref())
	}
	return nil, nil
}
