package definitions

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"procaas/dsl/tree"
	"procaas/engine/canary"
	"procaas/engine/diff"
	"procaas/engine/fallback"
	"procaas/engine/store"
)

// This file tries new definitions on a share of the keys. The trial is a part of the fallback
// state. So one node decides, all nodes learn of it with their next beat, and a crash loses
// nothing. During a trial the old definition stays current. A claim reads in the store which
// version a run begins with.

// A CanaryError says why a trial cannot begin or change.
type CanaryError struct{ Message string }

// Error implements error.
func (e *CanaryError) Error() string { return e.Message }

// refuse makes a CanaryError.
func refuse(format string, args ...any) error { return &CanaryError{fmt.Sprintf(format, args...)} }

// TryVersion begins the trial of b on all nodes, and returns the differences. The error is a
// [*LoadError] if b cannot be tried, and a [*CanaryError] if another trial is in progress.
func (f *Follower) TryVersion(ctx context.Context, b *tree.Bundle, o canary.Order, by store.Actor) (diff.Diff, error) {
	if !f.hasAgreed() {
		return diff.Diff{}, refuse("this node has just started, and does not know yet which version is current; try again in a second")
	}
	now, err := f.Library.Add(b)
	if err != nil {
		return diff.Diff{}, &LoadError{Err: err}
	}
	old := f.Library.Present()
	current, err := f.Bundles.Current(ctx)
	if err != nil {
		return diff.Diff{}, err
	}
	if current != old.Bundle.Hash {
		return diff.Diff{}, refuse("this node does not serve the current version %.12s yet; try again in a second, or by another node", current)
	}
	if len(old.Plans) == 0 {
		return diff.Diff{}, refuse("no pipelines are current, so there is nothing to compare with; leave out --canary and --shadow the first time")
	}
	if o.Owners != nil {
		if err := f.Library.OwnedBy(o.Owners, old.Bundle, b); err != nil {
			return diff.Diff{}, err
		}
	}
	if old == now {
		return diff.Diff{}, &LoadError{Err: errors.New("there is nothing to try: these pipelines are current")}
	}
	d := f.Library.changes(old, now)
	if err := triable(old, now, d); err != nil {
		return diff.Diff{}, &LoadError{Err: err}
	}
	files, err := encodeFiles(b)
	if err != nil {
		return diff.Diff{}, err
	}
	if err := f.Bundles.Keep(ctx, b.Hash, files); err != nil {
		return diff.Diff{}, err
	}
	before, after := old.paths(), now.paths()
	apart := map[string]bool{}
	for path := range after {
		apart[path] = !before[path]
	}
	for path := range before {
		apart[path] = !after[path]
	}
	maps.DeleteFunc(apart, func(_ string, apart bool) bool { return !apart })
	err = f.steer(ctx, by, func(s *fallback.State, at time.Time) ([]canary.Event, error) {
		if t := s.Canary; t.Lasts() && t.Old == old.Bundle.Hash {
			what := "a canary of version %.12s runs already, at %g %%; promote it or roll it back first"
			if t.IsInShadow() {
				what = "version %.12s is in the shadow of %g %% of the runs already; promote it or roll it back first"
			}
			return nil, refuse(what, t.New, t.Percent)
		}
		s.Canary = canary.Begin(old.Bundle.Hash, b.Hash, o, canary.TestsOf(len(old.Plans), len(before)), slices.Sorted(maps.Keys(apart)),
			by.Name, by.Reason, at)
		s.Canary.Changed = changedHandlers(now, d)
		return []canary.Event{s.Canary.Turn(o.Percent, at)}, nil
	})
	return d, err
}

// changedHandlers lists the handlers that differ themselves, or whose service does.
func changedHandlers(now *Definition, d diff.Diff) (paths []string) {
	names := map[[2]string]bool{}
	for _, c := range d.Changes {
		names[[2]string{c.What, c.Name}] = true
	}
	for _, p := range now.Plans {
		for _, s := range p.Written {
			if names[[2]string{diff.Handler, s.Path}] || s.Service != nil && names[[2]string{diff.Service, s.Service.ID}] {
				paths = append(paths, s.Path)
			}
		}
	}
	return paths
}

// hasAgreed reports whether the node knows the current definition. A canary against a definition
// that is about to be replaced would end at once.
func (f *Follower) hasAgreed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.agreed
}

// paths returns the paths of all handlers.
func (d *Definition) paths() map[string]bool {
	all := map[string]bool{}
	for _, p := range d.Plans {
		for _, s := range p.Written {
			all[s.Path] = true
		}
	}
	return all
}

// trialKinds are what a trial may change. Anything else, also of a product, is for all keys.
var trialKinds = []string{
	diff.Pipeline, diff.Stage, diff.Handler, diff.Order, diff.State, diff.Service, diff.Config, diff.Trigger,
}

// triable refuses changes that cannot differ from key to key, or could not be undone.
func triable(old, now *Definition, d diff.Diff) error {
	for _, p := range old.Bundle.Pipelines {
		for _, t := range TypesOf(p) {
			if !p.IsCalled() && !now.Serves(p.FlowID(), t) {
				return fmt.Errorf("a version on trial must serve all events of the current version, and no pipeline of it serves %s; "+
					"reload without --canary or --shadow to remove it", t)
			}
		}
	}
	for _, c := range d.Changes {
		added := c.What == diff.Flow && c.Change == diff.Added
		if !added && !slices.Contains(trialKinds, c.What) {
			return fmt.Errorf("a version on trial changes pipelines and services only, and %s %s is for all keys; "+
				"reload without --canary or --shadow", c.What, c.Name)
		}
	}
	return nil
}

// ShareTrial sets the share of the keys that use the version on trial. At 100 it becomes current on
// all nodes. A version in the shadow becomes a canary.
func (f *Follower) ShareTrial(ctx context.Context, percent float64, hold bool, by store.Actor) (*canary.State, error) {
	current, err := f.Bundles.Current(ctx)
	if err != nil {
		return nil, err
	}
	return f.change(ctx, by, func(t *canary.State, at time.Time) (canary.Event, error) {
		if t.Old != current {
			return canary.Event{}, refuseEnded(nil)
		}
		t.Hold, t.Phase = hold, canary.Running
		return t.Turn(percent, at), nil
	})
}

// EndTrial ends the trial: new runs use the old version. At 100 % of the keys, nodes may have made
// the new one current already. A trial that was promoted meanwhile stays so, which is not an error.
func (f *Follower) EndTrial(ctx context.Context, by store.Actor) (*canary.State, error) {
	t, err := f.change(ctx, by, func(t *canary.State, at time.Time) (canary.Event, error) {
		why := by.Name + " rolled it back"
		if by.Reason != "" {
			why += ": " + by.Reason
		}
		return t.End(canary.RolledBack, why, at), nil
	})
	if _, refused := errors.AsType[*CanaryError](err); refused && t != nil && t.Phase == canary.Promoted {
		return t, nil
	}
	return t, err
}

const noCanary = "no canary runs, and no version is in the shadow"

// refuseEnded says that no trial lasts, and how the last one ended.
func refuseEnded(t *canary.State) error {
	const versions = "; procaas release versions lists the versions"
	if t == nil || t.Phase == "" {
		return refuse(noCanary + versions)
	}
	return refuse("%s; the last one, of version %.12s, is %s: %s%s", noCanary, t.New, t.Phase, t.Why, versions)
}

func (f *Follower) change(
	ctx context.Context, by store.Actor, do func(*canary.State, time.Time) (canary.Event, error),
) (*canary.State, error) {
	var last *canary.State
	err := f.steer(ctx, by, func(s *fallback.State, at time.Time) ([]canary.Event, error) {
		last = s.Canary
		if !last.Lasts() {
			return nil, refuseEnded(last)
		}
		e, err := do(last, at)
		return []canary.Event{e}, err
	})
	return last, err
}

// steerTries is how often a change is tried if other decisions come first.
const steerTries = 10

func (f *Follower) steer(ctx context.Context, by store.Actor, do func(*fallback.State, time.Time) ([]canary.Event, error)) error {
	for range steerTries {
		var events []canary.Event
		err := f.Trials.Steer(ctx, func(s *fallback.State, now time.Time) (audits []store.Audited, err error) {
			events, err = do(s, now)
			return fallback.AuditsOfCanary(events, by), err
		})
		if errors.Is(err, store.ErrConflict) {
			continue
		}
		if err != nil {
			return err
		}
		f.Tell(events)
		return f.Trials.Refresh(ctx)
	}
	return errors.New("other decisions come before this one, try again")
}

// LastTrial reads the last trial from the store. It returns nil if there was none.
func (f *Follower) LastTrial(ctx context.Context) (*canary.State, error) {
	err := f.Trials.Refresh(ctx)
	return f.Canary(), err
}

// Canary returns the last trial that this node knows, or nil.
func (f *Follower) Canary() *canary.State { return f.Trials.Canary() }

// Heed applies the state of the trial. A version in memory is served at once, so the node that
// begins a trial follows it before it replies. The end of a trial counts at once, too. Follow does
// the rest.
func (f *Follower) Heed(t *canary.State) {
	f.wanted.Store(t)
	known := !t.Lasts() || f.Library.cached(t.New) != nil
	if known {
		f.Library.trial.Store(t)
	}
	if !known || t.Runs() && t.Percent >= 100 {
		f.hint()
	}
}

// pursue reads the version on trial, and makes it current if all keys use it.
func (f *Follower) pursue(ctx context.Context) error {
	t := f.wanted.Load()
	if !t.Lasts() {
		return nil
	}
	_, err := f.Library.Get(ctx, t.New)
	if errors.Is(err, ErrUnusable) {
		f.Log.Error("the version that is tried cannot run here, new runs of this node use the old one; is this an older procaas?",
			"version", t.New, "error", err)
		return nil
	}
	if err != nil {
		return err
	}
	f.Library.trial.Store(t)
	if t.IsInShadow() || t.Percent < 100 {
		return nil
	}
	// Since this node has learned of the share, a rollback may have made the old version current
	// again.
	if err := f.Trials.Refresh(ctx); err != nil || !f.Trials.Canary().Runs() {
		return err
	}
	_, err = f.Bundles.Promote(ctx, t.Old, t.New, store.Actor{Name: t.By, Reason: "canary: all keys use it"})
	return err
}
