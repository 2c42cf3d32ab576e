// Package controls serves the calls that change behavior at run time: switches, limits and rollouts
// by path, fallbacks, and live settings.
package controls

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"procaas/engine/api/problem"
	"procaas/engine/api/rest"
	"procaas/engine/api/scope"
	"procaas/engine/api/wire"
	"procaas/engine/definitions"
	"procaas/engine/guard"
	"procaas/engine/model"
	"procaas/engine/records"
	"procaas/engine/settings"
	"procaas/engine/steering"
	"procaas/engine/store"
)

// Controls switches, holds, limits and rolls out by path.
type Controls interface {
	Controls(ctx context.Context) ([]guard.ControlView, error)
	ControlEffect(ctx context.Context, path string, change guard.ControlChange) (steering.ControlEffect, error)
	SetControl(ctx context.Context, path string, change guard.ControlChange, ifRevision int64, by store.Actor) (guard.ControlView, error)
	RemoveControl(ctx context.Context, path string, ifRevision int64, by store.Actor) (int64, error)
	UndoControl(ctx context.Context, revision int64, by store.Actor) (string, *guard.ControlView, error)

	// SteeredBy lists the pipelines whose operators may also steer a path, because it is the path of a trigger whose events
	// they run.
	SteeredBy(path string) []string

	// EndFallbacks turns handlers on again that fallback has turned off.
	EndFallbacks(ctx context.Context, path string, by store.Actor) ([]string, error)
}

// Settings reads and changes live settings.
type Settings interface {
	Configs(ctx context.Context) ([]settings.ConfigView, error)

	// SetConfig replaces the value if the setting has the revision. 0 means that it was never
	// changed, and -1 any.
	SetConfig(ctx context.Context, name string, value any, ifRevision int64, by store.Actor) (settings.ConfigView, error)
	Audit(ctx context.Context, f store.AuditFilter) ([]records.AuditView, error)
}

// A Group serves the calls about controls and settings.
type Group struct {
	Controls Controls
	Settings Settings
}

// Operations lists the calls.
func (g *Group) Operations() []rest.Operation {
	ops := []rest.Operation{
		rest.Typed(rest.Operation{
			Method: http.MethodGet, Path: "/admin/v1/controls", ID: "list-controls", Need: rest.Views, Tag: "admin",
			Summary: "List switches, limits, deadlines and rollouts that are set at run time",
			Replies: rest.OK("All controls, by path."), Refusals: []string{problem.StoreUnavailable},
		}, func(c *rest.Call, _ *rest.Nothing) (wire.Page[guard.ControlView], error) {
			all, err := g.Controls.Controls(c.Context())
			return rest.Listed(scope.Controls(rest.Granted(c.R), all, g.Controls.SteeredBy), err)
		}),
		rest.Typed(rest.Operation{
			Method: http.MethodPost, Path: "/admin/v1/controls/undo", ID: "undo-control", Need: rest.Steers, Tag: "admin",
			Summary: "Undo a change of a control",
			About: "Restores the control from before a change. The change is named by its revision, which its reply and the audit show. " +
				"The server refuses if the control has changed since.",
			Example: wire.Undo{Revision: 17}, Replies: rest.OK("The restored control."),
			Refusals: []string{problem.ControlNotFound, problem.ControlChanged, problem.StoreUnavailable},
		}, g.undo),
		rest.Typed(rest.Operation{
			Method: http.MethodPost, Path: "/admin/v1/fallbacks/end", ID: "end-fallbacks", Need: rest.Steers, Tag: "admin",
			Summary: "Bring back handlers that a fallback took out of the flow",
			About: "Handlers below the path get all their calls again, on all nodes within a second. If their calls fail again, they go " +
				"out again. A control with the mode keep prevents that.",
			Example: wire.FallbackEnd{Path: "new-order-created/notify", Reason: "push is back"},
			Replies: rest.OK("The handlers that are back."), Refusals: []string{problem.ControlPath, problem.StoreUnavailable},
		}, g.endFallbacks),
		rest.Typed(rest.Operation{
			Method: http.MethodGet, Path: "/admin/v1/configs", ID: "list-configs", Need: rest.Surveys, Tag: "admin",
			Summary: "List live settings",
			Replies: rest.OK("All settings, by name."), Refusals: []string{problem.StoreUnavailable},
		}, func(c *rest.Call, _ *rest.Nothing) (wire.Page[settings.ConfigView], error) {
			return rest.Listed(g.Settings.Configs(c.Context()))
		}),
		rest.Typed(rest.Operation{
			Method: http.MethodPut, Path: "/admin/v1/configs/{name}", ID: "set-config", Need: rest.Tunes, Tag: "admin",
			Summary: "Change a live setting on all nodes",
			About: "`If-Match` with the revision of the setting prevents lost updates. `If-None-Match: *` changes only a setting that " +
				"nobody has changed before.",
			Example: wire.ConfigChange{Value: map[string]any{"enabled": false}, Reason: "push service is down"},
			Replies: []rest.Reply{{About: "The setting.", Headers: []string{"ETag: the revision, in quotes"}}},
			Refusals: []string{
				problem.InvalidParameter, problem.UnknownConfig, problem.InvalidConfig, problem.ConfigChanged,
				problem.StoreUnavailable,
			},
		}, g.setConfig),
	}
	path := "/admin/v1/controls"
	for _, level := range []string{"pipeline", "stage", "handler"} {
		path += "/{" + level + "}"
		ops = append(ops, g.setOperation(level, path, ""), g.removeOperation(level, path, ""))
	}
	path += model.UndoPath
	return append(ops, g.setOperation("compensation", path, model.UndoPath), g.removeOperation("compensation", path, model.UndoPath))
}

// setOperation returns the call that sets a control of a level. The path of the control ends with below.
func (g *Group) setOperation(level, path, below string) rest.Operation {
	return rest.Typed(rest.Operation{
		Method: http.MethodPut, Path: path, ID: "set-" + level + "-control", Need: rest.Steers, Tag: "admin",
		Summary: "Switch off, hold, limit or bound a " + level + " on all nodes",
		About: "Replaces the control of the path. It takes effect on every node within a second: no forbidden call starts, and calls in " +
			"flight finish. `If-Match` with the revision of the control prevents lost updates. `If-None-Match: *` only sets a control if " +
			"there is none.",
		Example: wire.ControlChange{Enabled: new(bool), Mode: guard.ModeHold, Forever: true, Reason: "push service is down"},
		Replies: []rest.Reply{{
			About: "The control, or with `dry_run` what it would do.", Body: guard.ControlView{}, Or: []any{steering.ControlEffect{}},
			Headers: []string{"ETag: the revision, in quotes"},
		}},
		Refusals: []string{
			problem.InvalidParameter, problem.ControlPath, problem.InvalidControl, problem.CriticalHandler,
			problem.ControlChanged, problem.StoreUnavailable,
		},
	}, func(c *rest.Call, in *setControl) (any, error) { return g.set(c, in, below) })
}

// removeOperation returns the call that removes a control of a level. The path of the control ends with below.
func (g *Group) removeOperation(level, path, below string) rest.Operation {
	return rest.Typed(rest.Operation{
		Method: http.MethodDelete, Path: path, ID: "remove-" + level + "-control", Need: rest.Steers, Tag: "admin",
		Summary: "Remove the control of a " + level + " on all nodes", Replies: rest.OK("The removed control."),
		Refusals: []string{problem.InvalidParameter, problem.ControlNotFound, problem.ControlChanged, problem.StoreUnavailable},
	}, func(c *rest.Call, in *removeControl) (wire.ControlRemoved, error) { return g.remove(c, in, below) })
}

// A controlPath is the path of a control. A call for a pipeline has no stage, and one for a stage
// no handler.
type controlPath struct {
	Pipeline string `path:"pipeline" doc:"Its id."`
	Stage    string `path:"stage" doc:"Its id."`
	Handler  string `path:"handler" doc:"Its id."`
}

// joined returns the path, which ends with below, if the caller may steer it. A part with an escaped slash would form
// another path, perhaps one that the caller may not steer.
func (g *Group) joined(c *rest.Call, p *controlPath, below string) (string, error) {
	parts := []string{p.Pipeline}
	for _, part := range []string{p.Stage, p.Handler} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	for i, part := range parts {
		if strings.Contains(part, "/") {
			level := []string{"pipeline", "stage", "handler"}[i]
			return "", problem.New(problem.ControlPath, "there is no %s %q: the parts of a path are separated by plain slashes", level, part)
		}
	}
	path := strings.Join(parts, "/") + below
	return path, c.MayAt(append(g.Controls.SteeredBy(path), path)...)
}

type setControl struct {
	controlPath
	DryRun  bool   `query:"dry_run" doc:"true changes nothing, and returns what it would affect."`
	IfMatch string `header:"If-Match" doc:"The revision that may be replaced, in quotes."`
	IfNone  string `header:"If-None-Match" doc:"* to set only if there is no control."`
	Body    wire.ControlChange
}

// set sets a control, or with dry_run returns its effect. It checks the grant in both cases,
// because an effect names handlers and counts runs.
func (g *Group) set(c *rest.Call, in *setControl, below string) (any, error) {
	path, err := g.joined(c, &in.controlPath, below)
	if err != nil {
		return nil, err
	}
	revision, err := rest.Revision(in.IfMatch, in.IfNone)
	if err != nil {
		return nil, err
	}
	b := &in.Body
	change := guard.ControlChange{
		Enabled: b.Enabled == nil || *b.Enabled, Mode: b.Mode, Force: b.Force, Until: b.Until, Forever: b.Forever,
		RateLimit: b.RateLimit, Over: b.Over, LimitUntil: b.LimitUntil, RolloutPercent: b.RolloutPercent,
		Deadline: b.Deadline, DeadlineForce: b.DeadlineForce, DeadlineUntil: b.DeadlineUntil,
	}
	if b.Enabled == nil && change == (guard.ControlChange{Enabled: true, Force: b.Force}) {
		return nil, problem.New(problem.InvalidControl,
			`it says nothing: want "enabled", a rate_limit, a deadline or a rollout_percent; "enabled": true alone removes a control`)
	}
	if in.DryRun {
		effect, err := g.Controls.ControlEffect(c.Context(), path, change)
		return effect, Problem(err, path)
	}
	control, err := g.Controls.SetControl(c.Context(), path, change, revision, c.Actor(b.Reason))
	if err == nil {
		c.ETag(control.Revision)
	}
	return control, g.changed(c.Context(), err, path, replace)
}

type removeControl struct {
	controlPath
	Reason  string `query:"reason" bytes:"512" doc:"The reason, for people and the audit."`
	IfMatch string `header:"If-Match" doc:"The revision that may be removed, in quotes."`
}

func (g *Group) remove(c *rest.Call, in *removeControl, below string) (removed wire.ControlRemoved, err error) {
	path, err := g.joined(c, &in.controlPath, below)
	if err != nil {
		return removed, err
	}
	revision, err := rest.Revision(in.IfMatch, c.R.Header.Get("If-None-Match"))
	if err != nil {
		return removed, err
	}
	removed.Path = path
	removed.Revision, err = g.Controls.RemoveControl(c.Context(), path, revision, c.Actor(in.Reason))
	return removed, g.changed(c.Context(), err, path, replace)
}

type undoControl struct{ Body wire.Undo }

func (g *Group) undo(c *rest.Call, in *undoControl) (undone wire.Undone, err error) {
	if err := g.mayUndo(c, in.Body.Revision); err != nil {
		return undone, err
	}
	undone.Path, undone.Control, err = g.Controls.UndoControl(c.Context(), in.Body.Revision, c.Actor(in.Body.Reason))
	return undone, g.changed(c.Context(), err, undone.Path, "only the last change of a path can be undone")
}

// mayUndo refuses a caller whose grant does not cover the path of a change.
func (g *Group) mayUndo(c *rest.Call, revision int64) error {
	if !c.Bound() {
		return nil
	}
	list, err := g.Settings.Audit(c.Context(), store.AuditFilter{Before: revision + 1, Limit: 1})
	if err != nil {
		return err
	}
	if len(list) == 0 || list[0].Revision != revision || list[0].Kind != store.AuditControl {
		return nil // there is nothing to undo, which is reported later
	}
	return c.MayAt(append(g.Controls.SteeredBy(list[0].Name), list[0].Name)...)
}

type fallbackEnd struct{ Body wire.FallbackEnd }

func (g *Group) endFallbacks(c *rest.Call, in *fallbackEnd) (ended wire.FallbacksEnded, err error) {
	path := in.Body.Path
	if err := c.MayAt(append(g.Controls.SteeredBy(path), path)...); err != nil {
		return ended, err
	}
	handlers, err := g.Controls.EndFallbacks(c.Context(), path, c.Actor(in.Body.Reason))
	return wire.FallbacksEnded{Path: path, Handlers: handlers}, Problem(err, path)
}

// Problem converts the error of a refused control to a problem.
func Problem(err error, path string) error {
	var wrong *guard.ControlError
	switch {
	case errors.As(err, &wrong):
		return problem.New(problem.KnownCode(wrong.Code, problem.InvalidControl), "%s", wrong.Message)
	}
	return err
}

// changed is Problem for a change with a revision. The refusal has the current revision.
func (g *Group) changed(ctx context.Context, err error, path, how string) error {
	if !errors.Is(err, store.ErrConflict) {
		return Problem(err, path)
	}
	all, err := g.Controls.Controls(ctx)
	if err != nil {
		return err
	}
	var now guard.ControlView
	for _, v := range all {
		if v.Path == path {
			now = v
		}
	}
	return stale(problem.ControlChanged, "the control at "+path, now.Revision, now.By, how)
}

// replace says how to change what somebody else has changed meanwhile.
const replace = "read it, and send its revision in If-Match to replace it"

// stale refuses a change whose revision is not the current one. 0 is the revision of something
// unset. how says what to do.
func stale(code, what string, revision int64, by, how string) error {
	if revision == 0 {
		return problem.New(code, "%s is not set now: a call without If-Match sets it", what)
	}
	return problem.New(code, "%s has revision %d now, by %s: %s", what, revision, by, how)
}

type setConfig struct {
	Name    string            `path:"name" doc:"The setting."`
	IfMatch string            `header:"If-Match" doc:"The revision that may be replaced, in quotes."`
	IfNone  string            `header:"If-None-Match" doc:"* to change only a setting that nobody has changed before."`
	Body    wire.ConfigChange `hint:"; wrap the setting: {\"value\": …, \"reason\": …}"`
}

func (g *Group) setConfig(c *rest.Call, in *setConfig) (config settings.ConfigView, err error) {
	revision, err := rest.Revision(in.IfMatch, in.IfNone)
	if err != nil {
		return config, err
	}
	config, err = g.Settings.SetConfig(c.Context(), in.Name, in.Body.Value, revision, c.Actor(in.Body.Reason))
	var wrong *definitions.ConfigError
	switch {
	case errors.Is(err, store.ErrConflict):
		return config, g.changedConfig(c.Context(), in.Name)
	case errors.As(err, &wrong):
		return config, problem.New(problem.KnownCode(wrong.Code, problem.InvalidConfig), "%s", wrong.Message)
	case err != nil:
		return config, err
	}
	c.ETag(config.Revision)
	return config, nil
}

// changedConfig refuses a change of a setting with another revision.
func (g *Group) changedConfig(ctx context.Context, name string) error {
	all, err := g.Settings.Configs(ctx)
	if err != nil {
		return err
	}
	var now settings.ConfigView
	for _, v := range all {
		if v.Name == name {
			now = v
		}
	}
	return stale(problem.ConfigChanged, "the setting "+name, now.Revision, now.By, replace)
}
