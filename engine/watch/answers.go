package watch

import (
	"context"
	"fmt"

	"procaas/engine/checkpoint"
	"procaas/engine/records"
	"procaas/engine/store"
)

// Answers answers callers that wait for runs.
type Answers struct {
	Watch Watch
	Runs  store.Runs
}

// AwaitRun waits for the end of a run, and returns its view. The run must exist. If ctx ends first,
// the error is that of ctx. It is [ErrFull] if too many callers wait.
func (a *Answers) AwaitRun(ctx context.Context, id string) (checkpoint.RunView, error) {
	return await(ctx, id, a.Watch.Join)
}

// AwaitEnd is AwaitRun, but may return only the result of the run, without event and times. That
// saves reading the run.
func (a *Answers) AwaitEnd(ctx context.Context, id string) (checkpoint.RunView, error) {
	return await(ctx, id, a.Watch.Hear)
}

func await(ctx context.Context, id string, join func(run string) (*Watcher, error)) (checkpoint.RunView, error) {
	w, err := join(id)
	if err != nil {
		return checkpoint.RunView{}, fmt.Errorf("wait for run %s: %w", id, err)
	}
	defer w.Leave()
	select {
	case r := <-w.News():
		return records.View(r), nil
	case <-ctx.Done():
		return checkpoint.RunView{}, ctx.Err()
	}
}

// A Progress follows one run.
type Progress struct {
	*Watcher

	first   *Step
	version int64 // last reported version
}

// A Step is the progress of a run.
type Step struct {
	Version int64 // grows with each saved step
	Run     checkpoint.RunView
	Ended   bool // only an operator can continue it; then Run is complete, and otherwise as in lists
}

// FollowRun follows a run from its current step. The error is [store.ErrNotFound] or [ErrFull].
// Call Leave to end it.
func (a *Answers) FollowRun(ctx context.Context, id string) (*Progress, error) {
	r, err := a.Runs.Run(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", id, err)
	}
	w, err := a.Watch.Follow(id, r.Version)
	if err != nil {
		return nil, fmt.Errorf("follow run %s: %w", id, err)
	}
	first := stepOf(r)
	return &Progress{Watcher: w, first: &first, version: r.Version}, nil
}

// Version returns the version of the run when it was found.
func (p *Progress) Version() int64 { return p.version }

// Ended reports whether the run had ended when it was found.
func (p *Progress) Ended() bool { return p.first != nil && p.first.Ended }

// Next waits for the next step to report. The current state comes first, and the end last.
func (p *Progress) Next(ctx context.Context) (Step, error) {
	if s := p.first; s != nil {
		p.first = nil
		return *s, nil
	}
	for {
		select {
		case r := <-p.News():
			if r.Version == p.version && !r.Status.Ended() {
				continue // another follower has not seen it yet
			}
			p.version = r.Version
			return stepOf(r), nil
		case <-ctx.Done():
			return Step{}, ctx.Err()
		}
	}
}

func stepOf(r store.RunRecord) Step {
	s := Step{Version: r.Version, Ended: r.Status.Ended()}
	if s.Ended {
		s.Run = records.View(r)
	} else {
		s.Run = records.Brief(r)
	}
	return s
}
