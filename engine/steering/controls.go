package steering

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"procaas/dsl/datum"
	"procaas/engine/guard"
	"procaas/engine/model"
	"procaas/engine/planner"
	"procaas/engine/settings"
	"procaas/engine/stats"
	"procaas/engine/store"
)

// This file sets controls for operators. It checks a control, computes its effect, and stores it
// for all nodes.

// Controls lists the controls by path.
func (st *Steering) Controls(ctx context.Context) ([]guard.ControlView, error) {
	if err := st.Settings.Refresh(ctx); err != nil {
		return nil, err
	}
	out := []guard.ControlView{}
	c, now := st.Settings.Controls(), st.Clock.Now()
	for _, path := range slices.Sorted(maps.Keys(c.ByPath)) {
		d := st.Library.Present()
		out = append(out, c.ByPath[path].View(len(d.Under(path)) > 0 || d.Declares(path), now))
	}
	return out, nil
}

// SetControl sets the control of a path on all nodes. A change that only switches on removes the
// control. ifRevision is as in [store.Settings].SetConfig. The error is a [*guard.ControlError] if
// the change is refused.
func (st *Steering) SetControl(ctx context.Context, path string, change guard.ControlChange, ifRevision int64,
	by store.Actor,
) (guard.ControlView, error) {
	control, err := st.checkControl(path, change)
	if err != nil {
		return guard.ControlView{}, err
	}
	if control.IsFree() {
		return st.liftControl(ctx, path, control, ifRevision, by)
	}
	if err := st.Settings.Refresh(ctx); err != nil {
		return guard.ControlView{}, err
	}
	control = st.Settings.Controls().Credit(path, control, guard.Setter{By: by.Name, Reason: by.Reason})
	return st.storeControl(ctx, path, control, ifRevision, by)
}

func (st *Steering) storeControl(ctx context.Context, path string, c guard.Control, ifRevision int64,
	by store.Actor,
) (guard.ControlView, error) {
	revision, err := st.Store.Settings.SetControl(ctx, path, model.EncodeJSON(c), ifRevision, by)
	if err != nil {
		return guard.ControlView{}, fmt.Errorf("set control %s: %w", path, err)
	}
	st.Settings.Learn(ctx)
	return guard.ControlView{
		Path: path, Control: c, Revision: revision, Changed: st.Clock.Now().UTC().Truncate(time.Millisecond),
		By: by.Name, Reason: by.Reason, Known: true,
	}, nil
}

// RemoveControl removes the control of a path. The error is a [*guard.ControlError] if there is
// none.
func (st *Steering) RemoveControl(ctx context.Context, path string, ifRevision int64, by store.Actor) (revision int64, err error) {
	revision, err = st.Store.Settings.SetControl(ctx, path, nil, ifRevision, by)
	if errors.Is(err, store.ErrNotFound) {
		return 0, &guard.ControlError{Code: guard.CodeControlNotFound, Message: fmt.Sprintf("there is no control at %s", path)}
	}
	if err != nil {
		return 0, fmt.Errorf("remove control %s: %w", path, err)
	}
	st.Settings.Learn(ctx)
	return revision, nil
}

// liftControl removes the control of a path if there is one. Switching on twice is not an error.
func (st *Steering) liftControl(ctx context.Context, path string, free guard.Control, ifRevision int64,
	by store.Actor,
) (guard.ControlView, error) {
	revision, err := st.RemoveControl(ctx, path, ifRevision, by)
	var refused *guard.ControlError
	if errors.As(err, &refused) && refused.Code == guard.CodeControlNotFound && ifRevision <= 0 {
		err = nil
	}
	return guard.ControlView{
		Path: path, Control: free, Revision: revision, Changed: st.Clock.Now().UTC().Truncate(time.Millisecond),
		By: by.Name, Reason: by.Reason, Known: true,
	}, err
}

// UndoControl undoes the change with a revision. The error is [store.ErrConflict] if the control
// has changed since. A nil view means that no control is left.
func (st *Steering) UndoControl(ctx context.Context, revision int64, by store.Actor) (path string, v *guard.ControlView, err error) {
	list, err := st.Store.Audits.Audit(ctx, store.AuditFilter{Before: revision + 1, Limit: 1})
	if err != nil {
		return "", nil, fmt.Errorf("read the audit: %w", err)
	}
	if len(list) == 0 || list[0].Revision != revision || list[0].Kind != store.AuditControl {
		return "", nil, &guard.ControlError{Code: guard.CodeControlNotFound, Message: fmt.Sprintf("revision %d is no change of a control",
			revision)}
	}
	done := list[0]
	path = done.Name
	present := revision
	if slices.Equal(done.After, store.AuditRemoved()) {
		present = 0
	}
	by.Reason = cmp.Or(by.Reason, fmt.Sprintf("undo of revision %d", revision))
	if len(done.Before) == 0 {
		_, err := st.RemoveControl(ctx, path, present, by)
		return path, nil, err
	}
	var before guard.Control
	if err := json.Unmarshal(done.Before, &before); err != nil {
		return path, nil, fmt.Errorf("read audit %d: before: %w", revision, err)
	}
	view, err := st.storeControl(ctx, path, before, present, by)
	return path, &view, err
}

// checkControl makes a control from an operator's change.
func (st *Steering) checkControl(path string, change guard.ControlChange) (guard.Control, error) {
	d := st.Library.Present()
	steps := d.Under(path)
	if p := d.ByID[path]; len(steps) == 0 && p != nil {
		return guard.Control{}, guard.InvalidControl("%s is a queue without stages: programs claim its tasks, so there are no calls of "+
			"handlers to "+
			"switch or to limit. "+
			"queue: {concurrency: {cluster: 10}} in its pipeline bounds how many are under way; procaas queue pause %s lets none be taken, "+
			"procaas queue resume %s all",
			path, path, path)
	}
	if len(steps) == 0 && d.Declares(path) {
		return guard.NewHold(path, change, st.Clock.Now())
	}
	c, err := guard.NewControl(steps, path, change, st.Clock.Now())
	// A path that is gone may still have a control, which runs of older definitions obey until somebody lifts it.
	lifts := err == nil && c.IsFree() && st.hasControl(path)
	if len(steps) == 0 && !lifts {
		return guard.Control{}, d.UnknownPath(path)
	}
	return c, err
}

// hasControl reports whether a path has a control, as far as the node has read.
func (st *Steering) hasControl(path string) bool {
	c := st.Settings.Controls()
	return c != nil && c.ByPath[path] != nil
}

// A ControlEffect is the effect that a control would have.
type ControlEffect struct {
	DryRun    bool            `json:"dry_run"` // true
	Path      string          `json:"path"`
	Control   guard.Control   `json:"control"`
	Handlers  []HandlerEffect `json:"handlers"`
	CallsPerS float64         `json:"calls_per_second" doc:"The rate in the last minute, on this node."`
	Waiting   int             `json:"waiting_runs" doc:"Runs of the pipeline that wait."`
	Running   int             `json:"running_runs" doc:"Runs of the pipeline that nodes work on."`
	Parked    int             `json:"parked_runs" doc:"Runs of the pipeline that are parked."`
	// the parked runs that the current control of the path holds or limits
	Stopped int   `json:"stopped_runs"`
	Ended   int64 `json:"ended_calls,omitempty" doc:"Calls of the handlers that a deadline bounds, in the last ten minutes on this node; absent without one."`
	Slower  int64 `json:"slower_calls,omitempty" doc:"About how many of them took longer than the deadline."`
}

// A HandlerEffect is the effect that a control would have on a handler.
type HandlerEffect struct {
	Path      string   `json:"path"`
	Critical  bool     `json:"critical"`
	CallsPerS float64  `json:"calls_per_second" doc:"The rate in the last minute, on this node."`
	ReadBy    []string `json:"read_by" doc:"Handlers of the pipeline that read what this one writes."`
	Ended     int64    `json:"ended_calls,omitempty" doc:"Its calls in the last ten minutes on this node, if a deadline bounds it; else absent."`
	Slower    int64    `json:"slower_calls,omitempty" doc:"About how many of them took longer than the deadline."`
}

// ControlEffect returns the effect that a control would have, without setting it. The error is that
// of SetControl.
func (st *Steering) ControlEffect(ctx context.Context, path string, change guard.ControlChange) (ControlEffect, error) {
	c, err := st.checkControl(path, change)
	if err != nil {
		return ControlEffect{}, err
	}
	out := ControlEffect{DryRun: true, Path: path, Control: c, Handlers: []HandlerEffect{}}
	now := time.Now()
	for _, s := range st.Library.Present().Under(path) {
		var info stats.HandlerInfo
		st.Stats.Path(s.Path).Fill(&info, now)
		h := HandlerEffect{
			Path: s.Path, Critical: s.Handler.IsCritical(), CallsPerS: info.CallsPerS,
			ReadBy: st.readers(s),
		}
		if most, err := datum.ParseDuration(c.Deadline); err == nil && guard.MayBound(s) && (c.DeadlineForce || !h.Critical) {
			h.Slower, h.Ended = st.Stats.Path(s.Path).Slower(most, now)
			out.Ended, out.Slower = out.Ended+h.Ended, out.Slower+h.Slower
		}
		out.CallsPerS += h.CallsPerS
		out.Handlers = append(out.Handlers, h)
	}
	pipeline, _, _ := strings.Cut(path, "/")
	for status, n := range map[model.Status]*int{model.Waiting: &out.Waiting, model.Running: &out.Running, model.Parked: &out.Parked} {
		groups, err := st.Store.Runs.Count(ctx, store.RunFilter{Pipeline: pipeline, Status: status})
		if err != nil {
			return ControlEffect{}, fmt.Errorf("count runs: %w", err)
		}
		for _, g := range groups {
			*n += g.Runs
		}
	}
	depth, err := st.depth(ctx)
	if err != nil {
		return ControlEffect{}, fmt.Errorf("count runs: %w", err)
	}
	out.Stopped = stats.NewBacklog(depth, st.Clock.Now()).StoppedAt(path)
	return out, nil
}

// readers lists the handlers of the pipeline that read what a handler writes.
func (st *Steering) readers(s *planner.Step) []string {
	out := []string{}
	pipeline, _, _ := strings.Cut(s.Path, "/")
	for _, other := range st.Library.Present().ByID[pipeline].Written {
		if other == s {
			continue
		}
		if _, _, ok := planner.Overlap(s, other); ok {
			out = append(out, other.Path)
		}
	}
	return out
}

// Configs lists the declared live settings and those that are set, by name.
func (st *Steering) Configs(ctx context.Context) ([]settings.ConfigView, error) {
	return st.Settings.Configs(ctx)
}

// SetConfig changes a live setting on all nodes. ifRevision is as in [store.Settings]. The error is
// a [*definitions.ConfigError] if the setting is not declared, or if its value has the wrong type.
func (st *Steering) SetConfig(ctx context.Context, name string, value any, ifRevision int64, by store.Actor) (settings.ConfigView, error) {
	return st.Settings.SetConfig(ctx, name, value, ifRevision, by)
}
