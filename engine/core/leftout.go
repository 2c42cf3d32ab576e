package core

import (
	"errors"
	"fmt"
	"slices"

	"procaas/engine/checkpoint"
	"procaas/engine/model"
	"procaas/engine/planner"
)

// This file is about runs that have succeeded without all that they should have done: handlers
// that are not critical were left out. It counts them, and lets a run make one up.

// leftOut lists what the run has gone on without, each path once, inside of calls, too.
func (r *progress) leftOut() (out []model.LeftOut) {
	note := func(path, outcome, reason string) {
		by := model.LeftBy(outcome, reason)
		if by != "" && !slices.ContainsFunc(out, func(l model.LeftOut) bool { return l.Path == path }) {
			out = append(out, model.LeftOut{Path: path, Reason: by})
		}
	}
	var inside func([]checkpoint.Record)
	inside = func(trail []checkpoint.Record) {
		for _, h := range trail {
			note(h.Path, h.Outcome, h.Reason)
			inside(h.Trail)
		}
	}
	for i, s := range r.plan.Steps {
		rec := &r.records[i]
		if !s.Loops {
			note(s.Path, rec.outcome, rec.reason)
		}
		inside(rec.trail)
	}
	return out
}

// ErrNoMakeUp says that a run cannot make a handler up, and ErrNotLeftOut that it need not.
var (
	ErrNoMakeUp   = errors.New("cannot be made up")
	ErrNotLeftOut = errors.New("was not left out")
)

// MakeUp changes the checkpoint of a run that has succeeded so that it goes on with one handler
// alone, by its next generation. All other outcomes stay, and so does the key of the call.
func MakeUp(p *planner.Plan, saved []byte, generation int, path string) ([]byte, error) {
	s := p.ByPath[path]
	switch {
	case s == nil:
		return nil, fmt.Errorf("%s is inside of a call, or of a stage that is repeated: %w", path, ErrNoMakeUp)
	case s.Callee != nil, s.Handler.ForEach != nil, s.Handler.Await != nil, s.Computes():
		return nil, fmt.Errorf("%s does not make a single call: %w", path, ErrNoMakeUp)
	}
	c, err := checkpoint.Read(saved)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(c.Handlers, func(h checkpoint.Record) bool { return h.Path == path })
	if at < 0 || model.LeftBy(c.Handlers[at].Outcome, c.Handlers[at].Reason) == "" {
		return nil, fmt.Errorf("%s %w", path, ErrNotLeftOut)
	}
	c.Handlers = slices.Delete(c.Handlers, at, at+1)
	c.Ended, c.Stage, c.MakesUp, c.Generation = "", s.Stage, path, generation+1
	return c.Encode(), nil
}
