package api

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"procaas/engine"
)

// Controls switches, holds, limits and rolls out by path.
type Controls interface {
	Controls(ctx context.Context) ([]engine.ControlView, error)
	ControlEffect(ctx context.Context, path string, change engine.ControlChange) (engine.ControlEffect, error)
	SetControl(ctx context.Context, path string, change engine.ControlChange, ifRevision int64, by engine.Actor) (engine.ControlView, error)
	RemoveControl(ctx context.Context, path string, ifRevision int64, by engine.Actor) (int64, error)
	UndoControl(ctx context.Context, revision int64, by engine.Actor) (string, *engine.ControlView, error)
}

// A ControlChange is the body that sets a control. It replaces the whole control
// of its path.
type ControlChange struct {
	Enabled        *bool    `json:"enabled,omitempty" doc:"false switches off. The default is true. true and nothing else removes the control."`
	Mode           string   `json:"mode,omitempty" enum:"skip,hold,keep" doc:"What off means: skip (the default) leaves the handlers out as if their enabled were false; hold parks runs before them until the switch is on. While enabled is true, keep lets no handler go out of the flow by itself."`
	Force          bool     `json:"force,omitempty" doc:"Let skip and rollout_percent leave out critical handlers, too."`
	Until          string   `json:"until,omitempty" format:"date-time" doc:"When the switch goes on by itself, or keep ends: in an hour when it is left out. Without a switch, when the limit ends."`
	Forever        bool     `json:"forever,omitempty" doc:"The switch stays off, or keep holds, until somebody changes it."`
	RateLimit      string   `json:"rate_limit,omitempty" example:"10/s" doc:"A bound of all calls below the path, on all nodes together; none when it is left out."`
	Over           string   `json:"over,omitempty" enum:"wait,skip" doc:"What becomes of a call over the limit: wait (the default) or skip. Critical handlers always wait."`
	LimitUntil     string   `json:"limit_until,omitempty" format:"date-time" doc:"When the limit ends by itself."`
	RolloutPercent *float64 `json:"rollout_percent,omitempty" minimum:"0" maximum:"100" doc:"The share of runs in which a handler runs, told by its rollout's by, or by the run's key; what the definition says when it is left out."`
	Reason         string   `json:"reason,omitempty" maxLength:"512" doc:"Why, for people and the audit."`
}

// A ControlRemoved tells that there is no control any more.
type ControlRemoved struct {
	Path     string `json:"path" doc:"pipeline, pipeline/stage or pipeline/stage/handler."`
	Revision int64  `json:"revision" doc:"Of the settings, after the removal. Undo takes it."`
}

// An Undo names the change of a control to take back.
type Undo struct {
	Revision int64  `json:"revision" minimum:"1" doc:"The revision that the change made."`
	Reason   string `json:"reason,omitempty" maxLength:"512" doc:"Why, for people and the audit."`
}

// Undone tells what an undo has put back.
type Undone struct {
	Path    string              `json:"path" doc:"Of the control: pipeline, pipeline/stage or pipeline/stage/handler."`
	Control *engine.ControlView `json:"control" doc:"The control that was before; null when there was none."`
}

func (s *server) controlOperations() []operation {
	ops := []operation{{
		method: http.MethodGet, path: "/admin/v1/controls", id: "list-controls", tag: "admin",
		summary:  "List switches, limits and rollouts that are set at run time",
		replies:  []reply{{status: 200, about: "All controls, by path.", body: Page[engine.ControlView]{}}},
		refusals: []string{codeStoreUnavailable}, serve: s.listControls,
	}, {
		method: http.MethodPost, path: "/admin/v1/controls/undo", id: "undo-control", tag: "admin",
		summary: "Take the change of a control back",
		about: "Puts back what was before the change that made a revision, which the reply to the change and the audit tell. " +
			"It is refused when the control has changed since.",
		body:     jsonBody(s.schema(Undo{}), Undo{Revision: 17}),
		replies:  []reply{{status: 200, about: "What was put back.", body: Undone{}}},
		refusals: []string{codeControlNotFound, codeControlChanged, codeStoreUnavailable}, serve: s.undoControl,
	}}
	levels := []string{"pipeline", "stage", "handler"}
	path, params := "/admin/v1/controls", []*huma.Param(nil)
	for i, level := range levels {
		path += "/{" + level + "}"
		params = append(params[:i:i], inPath(level, "Its id."))
		ops = append(ops, s.setControl(level, path, levels[:i+1], params), s.removeControl(level, path, levels[:i+1], params))
	}
	return ops
}

// setControl describes the call that sets a control of a level; levels are those of its path.
func (s *server) setControl(level, path string, levels []string, params []*huma.Param) operation {
	on := true
	return operation{
		method: http.MethodPut, path: path, id: "set-" + level + "-control", tag: "admin",
		summary: "Switch off, hold or limit a " + level + " on all nodes",
		about: "Replaces the control of the path. It counts on every node within a second: then no call starts that it forbids; calls under way end. " +
			"`If-Match` with the revision of the control guards against lost updates; `If-None-Match: *` sets only where there is none.",
		params: append(params[:len(params):len(params)],
			inQuery("dry_run", "true: change nothing, tell what would be affected.", &huma.Schema{Type: huma.TypeBoolean}),
			inHeader("If-Match", `The revision that may be replaced, in quotes.`),
			inHeader("If-None-Match", "* to set only where there is no control."),
		),
		body: jsonBody(s.schema(ControlChange{}), ControlChange{Enabled: new(bool), Mode: engine.ModeHold, Forever: on, Reason: "push service is down"}),
		replies: []reply{{
			status: 200, about: "The control, or with `dry_run` what it would do.", body: engine.ControlView{}, or: engine.ControlEffect{},
			headers: []string{"ETag: the revision, in quotes"},
		}},
		refusals: []string{codeInvalidParameter, codeControlPath, codeInvalidControl, codeCriticalHandler, codeControlChanged, codeStoreUnavailable},
		serve:    func(w http.ResponseWriter, r *http.Request) error { return s.putControl(w, r, levels) },
	}
}

// removeControl describes the call that removes a control of a level.
func (s *server) removeControl(level, path string, levels []string, params []*huma.Param) operation {
	return operation{
		method: http.MethodDelete, path: path, id: "remove-" + level + "-control", tag: "admin",
		summary: "Remove the control of a " + level + " on all nodes",
		params: append(params[:len(params):len(params)],
			inQuery("reason", "Why, for people and the audit.", nil),
			inHeader("If-Match", `The revision that may be removed, in quotes.`),
		),
		replies:  []reply{{status: 200, about: "It is removed.", body: ControlRemoved{}}},
		refusals: []string{codeInvalidParameter, codeControlNotFound, codeControlChanged, codeStoreUnavailable},
		serve:    func(w http.ResponseWriter, r *http.Request) error { return s.deleteControl(w, r, levels) },
	}
}

func (s *server) listControls(w http.ResponseWriter, r *http.Request) error {
	controls, err := s.engine.Controls(r.Context())
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, pageOf(controls, ""))
}

// controlPath reads the path of a control. A part with an escaped slash would be another path
// once the parts are joined, perhaps one that the caller may not steer.
func controlPath(r *http.Request, levels []string) (string, error) {
	parts := make([]string, len(levels))
	for i, level := range levels {
		var err error
		if parts[i], err = pathValue(r, level); err != nil {
			return "", err
		}
		if strings.Contains(parts[i], "/") {
			return "", refuse(codeControlPath, "there is no %s %q: the parts of a path are separated by plain slashes", level, parts[i])
		}
	}
	return strings.Join(parts, "/"), nil
}

// putControl sets a control, or with dry_run tells what that would do. The grant is looked at
// in both cases: an effect names handlers and counts runs.
func (s *server) putControl(w http.ResponseWriter, r *http.Request, levels []string) error {
	path, err := controlPath(r, levels)
	if err != nil {
		return err
	}
	if err := mayAt(r, path); err != nil {
		return err
	}
	q := queryFields(r.URL.Query())
	dryRun := q.boolean("dry_run")
	if err := badParameter(q.faults); err != nil {
		return err
	}
	revision, err := ifRevision(r.Header)
	if err != nil {
		return err
	}
	change, reason, err := s.readControl(w, r)
	if err != nil {
		return err
	}
	if dryRun {
		effect, err := s.engine.ControlEffect(r.Context(), path, change)
		if err != nil {
			return controlProblem(err, path)
		}
		return writeJSON(w, http.StatusOK, effect)
	}
	control, err := s.engine.SetControl(r.Context(), path, change, revision, actor(r, reason))
	if err != nil {
		return controlProblem(err, path)
	}
	w.Header().Set("ETag", etag(control.Revision))
	return writeJSON(w, http.StatusOK, control)
}

// readControl reads a [ControlChange].
func (s *server) readControl(w http.ResponseWriter, r *http.Request) (c engine.ControlChange, reason string, err error) {
	f, err := s.readObject(w, r)
	if err != nil {
		return c, "", err
	}
	c = engine.ControlChange{
		Mode: f.label("mode", maxName), Force: f.boolean("force"), Until: f.instant("until"), Forever: f.boolean("forever"),
		RateLimit: f.label("rate_limit", maxName), Over: f.label("over", maxName), LimitUntil: f.instant("limit_until"),
		RolloutPercent: f.number("rollout_percent"),
	}
	c.Enabled = f.get("enabled") == nil || f.boolean("enabled")
	reason = f.label("reason", maxReason)
	f.refuseUnknown()
	if err := faulty(f.faults); err != nil {
		return c, reason, err
	}
	if f.get("enabled") == nil && c == (engine.ControlChange{Enabled: true, Force: c.Force}) {
		return c, reason, refuse(codeInvalidControl, `it says nothing: want "enabled", a rate_limit or a rollout_percent; "enabled": true alone removes a control`)
	}
	return c, reason, nil
}

// number gives a number; nil when it is absent.
func (f *fields) number(name string) *float64 {
	var n float64
	switch v := f.get(name).(type) {
	case nil:
		return nil
	case int:
		n = float64(v)
	case float64:
		n = v
	default:
		f.fault(name, "want a number, have %s", kindOf(v))
	}
	return &n
}

func (s *server) deleteControl(w http.ResponseWriter, r *http.Request, levels []string) error {
	path, err := controlPath(r, levels)
	if err != nil {
		return err
	}
	if err := mayAt(r, path); err != nil {
		return err
	}
	q := queryFields(r.URL.Query())
	reason := q.label("reason", maxReason)
	if err := badParameter(q.faults); err != nil {
		return err
	}
	revision, err := ifRevision(r.Header)
	if err != nil {
		return err
	}
	removed, err := s.engine.RemoveControl(r.Context(), path, revision, actor(r, reason))
	if err != nil {
		return controlProblem(err, path)
	}
	return writeJSON(w, http.StatusOK, ControlRemoved{Path: path, Revision: removed})
}

func (s *server) undoControl(w http.ResponseWriter, r *http.Request) error {
	f, err := s.readObject(w, r)
	if err != nil {
		return err
	}
	revision, reason := f.integer("revision"), f.label("reason", maxReason)
	if revision < 1 && len(f.faults) == 0 {
		f.fault("revision", "want the revision of a change, a number from 1")
	}
	f.refuseUnknown()
	if err := faulty(f.faults); err != nil {
		return err
	}
	if err := s.mayUndo(r, int64(revision)); err != nil {
		return err
	}
	path, control, err := s.engine.UndoControl(r.Context(), int64(revision), actor(r, reason))
	if err != nil {
		return controlProblem(err, path)
	}
	return writeJSON(w, http.StatusOK, Undone{Path: path, Control: control})
}

// mayUndo refuses a caller whose grant does not cover the path of a change.
func (s *server) mayUndo(r *http.Request, revision int64) error {
	if len(granted(r).Paths) == 0 {
		return nil
	}
	list, err := s.engine.Audit(r.Context(), engine.AuditFilter{Before: revision + 1, Limit: 1})
	if err != nil {
		return err
	}
	if len(list) == 0 || list[0].Revision != revision || list[0].Kind != engine.AuditControl {
		return nil // there is nothing to undo, and that will be said
	}
	return mayAt(r, list[0].Name)
}

// controlProblem says over HTTP why a control is refused.
func controlProblem(err error, path string) error {
	var wrong *engine.ControlError
	switch {
	case errors.As(err, &wrong):
		return refuse(knownCode(wrong.Code, codeInvalidControl), "%s", wrong.Message)
	case errors.Is(err, engine.ErrConflict):
		return refuse(codeControlChanged, "the control at %s has another revision; list the controls again", path)
	}
	return err
}

// Controls lists the controls.
func (c *Client) Controls(ctx context.Context) ([]engine.ControlView, error) {
	var page Page[engine.ControlView]
	err := c.call(ctx, http.MethodGet, "/admin/v1/controls", nil, nil, &page)
	return page.Items, err
}

// SetControl sets the control of a path. ifRevision guards against lost updates:
// the revision that may be replaced, 0 for none, -1 for any.
func (c *Client) SetControl(ctx context.Context, path string, change ControlChange, ifRevision int64) (engine.ControlView, error) {
	var control engine.ControlView
	err := c.call(ctx, http.MethodPut, controlURL(path), change, ifHeader(ifRevision), &control)
	return control, err
}

// ControlEffect tells what a control would do.
func (c *Client) ControlEffect(ctx context.Context, path string, change ControlChange) (engine.ControlEffect, error) {
	var effect engine.ControlEffect
	err := c.call(ctx, http.MethodPut, controlURL(path)+"?dry_run=true", change, nil, &effect)
	return effect, err
}

// RemoveControl removes the control of a path; ifRevision is as in SetControl.
func (c *Client) RemoveControl(ctx context.Context, path, reason string, ifRevision int64) (ControlRemoved, error) {
	var removed ControlRemoved
	q := ""
	if reason != "" {
		q = "?" + url.Values{"reason": {reason}}.Encode()
	}
	err := c.call(ctx, http.MethodDelete, controlURL(path)+q, nil, ifHeader(ifRevision), &removed)
	return removed, err
}

// UndoControl takes the change of a control back.
func (c *Client) UndoControl(ctx context.Context, revision int64, reason string) (Undone, error) {
	var undone Undone
	err := c.call(ctx, http.MethodPost, "/admin/v1/controls/undo", Undo{revision, reason}, nil, &undone)
	return undone, err
}

// controlURL is the address of the control of a path.
func controlURL(path string) string {
	parts := strings.Split(path, "/")
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return "/admin/v1/controls/" + strings.Join(parts, "/")
}

// ifHeader makes the precondition of a change; see [Client.SetControl].
func ifHeader(revision int64) http.Header {
	switch {
	case revision > 0:
		return http.Header{"If-Match": {etag(revision)}}
	case revision == 0:
		return http.Header{"If-None-Match": {"*"}}
	}
	return nil
}

// NewControlChange makes the body that sets a control as it is.
func NewControlChange(c engine.Control, reason string) ControlChange {
	text := func(t *time.Time) string {
		if t == nil {
			return ""
		}
		return timeText(*t)
	}
	return ControlChange{
		Enabled: &c.Enabled, Mode: c.Mode, Force: c.Force, Until: text(c.Until), Forever: c.Mode != "" && c.Until == nil,
		RateLimit: c.RateLimit, Over: c.Over, LimitUntil: text(c.LimitUntil), RolloutPercent: c.RolloutPercent, Reason: reason,
	}
}
