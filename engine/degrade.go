package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"procaas/engine/fallback"
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
	d := e.library.Present()
	below := d.Under(path)
	if len(below) == 0 {
		return nil, d.UnknownPath(path)
	}
	in := func(path string) bool {
		return slices.ContainsFunc(below, func(s *planner.Step) bool { return s.Path == path })
	}
	for range endTries {
		changes, err := e.degrader.End(ctx, in, by)
		if errors.Is(err, store.ErrConflict) {
			continue // another decision has come before
		}
		if err != nil {
			return nil, fmt.Errorf("end fallbacks of %s: %w", path, err)
		}
		if len(changes) > 0 {
			e.announce(changes)
			if err := e.degrader.Refresh(ctx); err != nil {
				e.log.Warn("outages cannot be read, the next beat tries again", "error", err)
			}
		}
		ended := []string{}
		for _, c := range changes {
			ended = append(ended, c.Paths...)
		}
		return ended, nil
	}
	return nil, fmt.Errorf("end fallbacks of %s: other decisions come before it, try again", path)
}

// degrade reports what calls come to, and decides about fallbacks, until the membership ends.
func (n *node) degrade() {
	n.e.degrader.Decide(n.ctx, fallback.Decider{
		Node: n.number, Now: n.e.clock.Now, Rules: n.e.fallbacks, Announce: n.e.announce, Failed: n.e.metrics.Failed, Log: n.log,
	})
}

// fallbacks gives what this node would decide by; nil when nothing can go out,
// and nothing is out.
func (e *Engine) fallbacks() *fallback.Rules {
	if f := e.library.Present().Fallbacks; f != nil {
		if kept := e.kept(); len(kept) > 0 {
			return f.Without(kept)
		}
		return f
	}
	if e.degrader.Outages().Any() {
		return fallback.NewRules(nil) // which forgets them
	}
	return nil
}

// kept lists the handlers that operators keep in the flow.
func (e *Engine) kept() []string {
	var out []string
	c, now := e.settings.Controls(), e.clock.Now()
	if c == nil || len(c.ByPath) == 0 {
		return nil
	}
	for _, p := range e.library.Present().Plans {
		for _, s := range p.Written {
			if s.Fallback() != nil && c.Keeps(s, now) {
				out = append(out, s.Path)
			}
		}
	}
	return out
}

// announce tells people about changes.
func (e *Engine) announce(changes []fallback.Change) {
	for _, c := range changes {
		e.notifyFallback(c)
		c.LogTo(e.log)
	}
}
