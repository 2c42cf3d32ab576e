package core

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"procaas/engine/checkpoint"
	"procaas/engine/model"
	"procaas/engine/planner"
)

// This file lets a run that has succeeded run a non-critical handler that was left out.

// ErrNoMakeUp reports that a run cannot make up for a handler. ErrNotLeftOut reports that the
// handler was not left out.
var (
	ErrNoMakeUp   = errors.New("cannot be made up")
	ErrNotLeftOut = errors.New("was not left out")
)

// MakeUp changes the checkpoint of a run that has succeeded so that its next generation runs one
// handler only. All other outcomes and the key of the call stay.
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
	c.Ended = ""
	c.Stage = s.Stage
	c.MakesUp, c.Closing = path, ""
	c.Generation = generation + 1
	c.Clock, c.StageClock = time.Time{}, time.Time{} // it gets the full time, as with an operator's retry
	return c.Encode(), nil
}
