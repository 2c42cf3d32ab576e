package steering

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"procaas/engine/canary"
	"procaas/engine/fallback"
	"procaas/engine/model"
	"procaas/engine/planner"
	"procaas/engine/store"
)

// endTries is how often ending an outage is tried if other decisions come first.
const endTries = 10

// EndFallbacks turns the handlers below a path on again, on all nodes, and lists those that were
// off. They trip again if their calls fail from now on. A control with [guard.ModeKeep] prevents
// that. The error is a [*guard.ControlError] if there is no such path.
func (st *Steering) EndFallbacks(ctx context.Context, path string, by store.Actor) ([]string, error) {
	d := st.Library.Present()
	below := d.Under(path)
	if len(below) == 0 && d.Declares(path) {
		return []string{}, nil // it has no handlers
	}
	if len(below) == 0 {
		return nil, d.UnknownPath(path)
	}
	in := func(path string) bool {
		return slices.ContainsFunc(below, func(s *planner.Step) bool { return s.Path == path })
	}
	for range endTries {
		changes, err := st.Degrader.End(ctx, in, by)
		if errors.Is(err, store.ErrConflict) {
			continue // another decision came first
		}
		if err != nil {
			return nil, fmt.Errorf("end fallbacks of %s: %w", path, err)
		}
		if len(changes) > 0 {
			st.Announce(changes)
			if err := st.Degrader.Refresh(ctx); err != nil {
				st.Log.Warn("outages cannot be read, the next beat tries again", "error", err)
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

// Fallbacks returns the rules that this node would decide by, or nil if no handler can be off and
// none is.
func (st *Steering) Fallbacks() *fallback.Rules {
	if f := st.Library.Present().Fallbacks; f != nil {
		if kept := st.kept(); len(kept) > 0 {
			return f.Without(kept)
		}
		return f
	}
	if st.Degrader.Outages().Any() || st.Degrader.Canary().Lasts() {
		return fallback.NewRules(nil) // ends them
	}
	return nil
}

// kept lists the handlers that operators keep on.
func (st *Steering) kept() []string {
	var out []string
	c, now := st.Settings.Controls(), st.Clock.Now()
	if c == nil || len(c.ByPath) == 0 {
		return nil
	}
	for _, p := range st.Library.Present().Plans {
		for _, s := range p.Written {
			if s.Fallback() != nil && c.Keeps(s, now) {
				out = append(out, s.Path)
			}
		}
	}
	return out
}

// Announce reports changes to people.
func (st *Steering) Announce(changes []fallback.Change) {
	for _, c := range changes {
		st.notifyFallback(c)
		c.LogTo(st.Log)
	}
}

// Tell reports the trial of a new version to people.
func (st *Steering) Tell(events []canary.Event) {
	for _, e := range events {
		log := st.Log.With("old", e.Old, "new", e.New, "percent", e.Percent)
		if e.Phase == canary.InShadow {
			log.Info("shadow: nodes replay ended runs with the new version")
			continue
		}
		if e.Phase != canary.RolledBack {
			log.Info("canary: "+e.Phase, "reason", e.Why)
			continue
		}
		log.Warn("canary: "+e.Phase, "reason", e.Why)
	}
}

// notifyFallback sends a notice about a fallback, if there is a receiver.
func (st *Steering) notifyFallback(c fallback.Change) {
	kind, ok := map[string]model.NoticeKind{
		fallback.Out: model.NoticeFallbackOn, fallback.Back: model.NoticeFallbackOff,
		fallback.Frozen: model.NoticeFrozen, fallback.Thawed: model.NoticeThawed,
	}[c.Kind]
	if st.Notify == nil || !ok {
		return
	}
	n := model.Notice{Kind: kind, Path: c.Name, Time: st.Clock.Now(), Error: c.Why, Ratio: c.Ratio, Until: c.Until}
	if c.Service {
		n.Path, n.Service, n.Handlers = "", c.Name, c.Paths
		if s := st.Library.Present().Bundle.Service(c.Name); s != nil {
			n.Owner = s.Owner
		}
	} else if plan := st.Library.Present().ByID[model.PipelineOf(c.Name)]; plan != nil && plan.Step(c.Name) != nil {
		n.Owner = plan.Step(c.Name).Owner
	}
	st.Notify(n)
}
