package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"procaas/engine/model"
	"procaas/engine/planner"
	"procaas/engine/store"
)

// endTries is how often the end of an outage is tried while decisions are made at
// the same moment.
const endTries = 10

// EndFallbacks puts the handlers below a path back into the flow at once, on all
// nodes, and lists those that were out. They go out again when their calls fail
// from now on; a control with [guard.ModeKeep] forbids that. The error is a
// [*guard.ControlError] when there is no such path.
func (e *Engine) EndFallbacks(ctx context.Context, path string, by store.Actor) ([]string, error) {
	below := e.under(path)
	if len(below) == 0 {
		return nil, e.unknownPath(path)
	}
	in := func(path string) bool {
		return slices.ContainsFunc(below, func(s *planner.Step) bool { return s.Path == path })
	}
	for range endTries {
		changes, err := e.endFallbacks(ctx, in, by)
		if errors.Is(err, store.ErrConflict) {
			continue // another decision has come before
		}
		if err != nil {
			return nil, fmt.Errorf("end fallbacks of %s: %w", path, err)
		}
		ended := []string{}
		for _, c := range changes {
			ended = append(ended, c.Paths...)
		}
		return ended, nil
	}
	return nil, fmt.Errorf("end fallbacks of %s: other decisions come before it, try again", path)
}

func (e *Engine) endFallbacks(ctx context.Context, in func(path string) bool, by store.Actor) ([]FallbackChange, error) {
	q, err := e.o.Store.Deliberate(ctx, 0)
	if err != nil || len(q.State) == 0 {
		return nil, err
	}
	var s FallbackState
	if err := json.Unmarshal(q.State, &s); err != nil {
		return nil, fmt.Errorf("read outages: %w", err)
	}
	changes := s.end(in, model.Stamp(q.Now))
	if len(changes) == 0 {
		return nil, nil
	}
	c := store.Conclusion{Turn: q.Turn, Taken: q.Taken, State: stateAfter(q.State, &s)}
	for i := range changes {
		changes[i].Why = "ended by " + by.Name
		c.Audits = append(c.Audits, store.Audited{
			Kind: store.AuditFallback, Name: changes[i].Name, By: by, Before: model.EncodeJSON(changes[i]), After: store.AuditRemoved(),
		})
	}
	if err := e.o.Store.Conclude(ctx, c); err != nil {
		return nil, err
	}
	e.announce(changes)
	if err := e.degrader.refresh(ctx); err != nil {
		e.log.Warn("outages cannot be read, the next beat tries again", "error", err)
	}
	return changes, nil
}
