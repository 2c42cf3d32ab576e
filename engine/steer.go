package engine

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
	"procaas/dsl/diag"
	"procaas/engine/model"
	"procaas/engine/planner"
	"procaas/engine/store"
)

// This file lets operators set controls: it checks what they want, tells what
// that would do, and keeps it in the store, from where all nodes take it.

// A ControlError says why a control is refused.
type ControlError struct {
	Code    string // stable: unknown_control_path, control_not_found, invalid_control, critical_handler
	Message string // for people, with what to do instead
}

// Error implements error.
func (e *ControlError) Error() string { return e.Message }

// The codes of a [ControlError].
const (
	codeControlPath     = "unknown_control_path"
	codeControlNotFound = "control_not_found"
	codeInvalidControl  = "invalid_control"
	codeCriticalHandler = "critical_handler"
)

// DefaultSwitchTime is for how long a switch is off when nobody says.
const DefaultSwitchTime = time.Hour

const (
	longestControl = 100 * 365 * 24 * time.Hour // a longer one is for ever, and hardly meant
	highestRate    = 1e6                        // calls per second
	lowestRate     = 1.0 / (24 * 60 * 60)
)

// A ControlChange is what an operator wants of a path. It replaces the whole
// control.
type ControlChange struct {
	Enabled        bool      // false: switched off
	Mode           string    // ModeSkip when it is empty and Enabled is false; with Enabled, empty or ModeKeep
	Force          bool      // critical handlers too
	Until          time.Time // of the switch, or of ModeKeep; without them, of the limit
	Forever        bool      // the switch stays off until it is switched on
	RateLimit      string    // such as 10/s, of all nodes together; empty for none
	Over           string    // wait or skip, for those over the limit; wait when it is empty
	LimitUntil     time.Time // zero: Until when there is no switch, or else until it is lifted
	RolloutPercent *float64  // of the runs, from 0 to 100; nil leaves what the definition says
}

// A ControlView is a control as people and programs see it.
type ControlView struct {
	Path string `json:"path"`
	Control
	Revision int64     `json:"revision"`
	Changed  time.Time `json:"changed"`
	By       string    `json:"by"`
	Reason   string    `json:"reason"`
	Expired  bool      `json:"expired"` // nothing of it holds any more
	Known    bool      `json:"known"`   // the present definition has the path
}

func (l *liveControl) view(known bool, now time.Time) ControlView {
	return ControlView{
		Path: l.path, Control: l.Control, Revision: l.setting.Revision, Changed: l.setting.Changed,
		By: l.setting.By.Name, Reason: l.setting.By.Reason, Known: known,
		Expired: !l.isOff(l.Mode, now) && !l.isKept(now) && !l.limits(now) && l.RolloutPercent == nil,
	}
}

// Controls lists the controls by path.
func (e *Engine) Controls(ctx context.Context) ([]ControlView, error) {
	if err := e.settings.refresh(ctx); err != nil {
		return nil, err
	}
	out := []ControlView{}
	c, now := e.settings.controls(), e.clock.now()
	for _, path := range slices.Sorted(maps.Keys(c.byPath)) {
		out = append(out, c.byPath[path].view(len(e.under(path)) > 0, now))
	}
	return out, nil
}

// SetControl sets the control of a path on all nodes. A change that switches on and
// says nothing else removes it. ifRevision is as in [store.Settings].SetConfig. The error
// is a [*ControlError] when it is refused.
func (e *Engine) SetControl(ctx context.Context, path string, change ControlChange, ifRevision int64,
	by store.Actor,
) (ControlView, error) {
	control, err := e.checkControl(path, change)
	if err != nil {
		return ControlView{}, err
	}
	if control.isFree() {
		return e.liftControl(ctx, path, control, ifRevision, by)
	}
	return e.storeControl(ctx, path, control, ifRevision, by)
}

func (e *Engine) storeControl(ctx context.Context, path string, c Control, ifRevision int64, by store.Actor) (ControlView, error) {
	revision, err := e.o.Store.SetControl(ctx, path, model.EncodeJSON(c), ifRevision, by)
	if err != nil {
		return ControlView{}, fmt.Errorf("set control %s: %w", path, err)
	}
	e.learn(ctx)
	return ControlView{
		Path: path, Control: c, Revision: revision, Changed: e.clock.now().UTC().Truncate(time.Millisecond),
		By: by.Name, Reason: by.Reason, Known: true,
	}, nil
}

// learn makes this node know at once what was changed here. The others, and this
// one when it does not work now, learn by their next beat.
func (e *Engine) learn(ctx context.Context) {
	if err := e.settings.refresh(ctx); err != nil {
		e.log.Warn("settings cannot be read, the next beat tries again", "error", err)
	}
}

// RemoveControl removes the control of a path. The error is a [*ControlError]
// when there is none.
func (e *Engine) RemoveControl(ctx context.Context, path string, ifRevision int64, by store.Actor) (revision int64, err error) {
	revision, err = e.o.Store.SetControl(ctx, path, nil, ifRevision, by)
	if errors.Is(err, store.ErrNotFound) {
		return 0, &ControlError{codeControlNotFound, fmt.Sprintf("there is no control at %s", path)}
	}
	if err != nil {
		return 0, fmt.Errorf("remove control %s: %w", path, err)
	}
	e.learn(ctx)
	return revision, nil
}

// liftControl removes the control of a path, if there is one: people who switch
// on what they switched off mean that, and may do so twice.
func (e *Engine) liftControl(ctx context.Context, path string, free Control, ifRevision int64, by store.Actor) (ControlView, error) {
	revision, err := e.RemoveControl(ctx, path, ifRevision, by)
	var refused *ControlError
	if errors.As(err, &refused) && refused.Code == codeControlNotFound && ifRevision <= 0 {
		err = nil
	}
	return ControlView{
		Path: path, Control: free, Revision: revision, Changed: e.clock.now().UTC().Truncate(time.Millisecond),
		By: by.Name, Reason: by.Reason, Known: true,
	}, err
}

// UndoControl puts back what was before the change of a control with a revision,
// unless the control has changed since: that is [store.ErrConflict]. A nil view says
// that there is none again.
func (e *Engine) UndoControl(ctx context.Context, revision int64, by store.Actor) (path string, v *ControlView, err error) {
	list, err := e.o.Store.Audit(ctx, store.AuditFilter{Before: revision + 1, Limit: 1})
	if err != nil {
		return "", nil, fmt.Errorf("read the audit: %w", err)
	}
	if len(list) == 0 || list[0].Revision != revision || list[0].Kind != store.AuditControl {
		return "", nil, &ControlError{codeControlNotFound, fmt.Sprintf("revision %d is no change of a control", revision)}
	}
	done := list[0]
	path = done.Name
	present := revision
	if slices.Equal(done.After, store.AuditRemoved()) {
		present = 0
	}
	by.Reason = cmp.Or(by.Reason, fmt.Sprintf("undo of revision %d", revision))
	if len(done.Before) == 0 {
		_, err := e.RemoveControl(ctx, path, present, by)
		return path, nil, err
	}
	var before Control
	if err := json.Unmarshal(done.Before, &before); err != nil {
		return path, nil, fmt.Errorf("read audit %d: before: %w", revision, err)
	}
	view, err := e.storeControl(ctx, path, before, present, by)
	return path, &view, err
}

// under lists the handlers of the present definition below a path, itself
// included, in order.
func (e *Engine) under(path string) []*planner.Step {
	var out []*planner.Step
	for _, p := range e.library.current.Load().plans {
		for _, s := range p.Written {
			if p.Pipeline.ID == path || s.StagePath == path || s.Path == path {
				out = append(out, s)
			}
		}
	}
	return out
}

// checkControl makes a control of what an operator wants.
func (e *Engine) checkControl(path string, change ControlChange) (Control, error) {
	steps := e.under(path)
	if p := e.library.current.Load().byID[path]; len(steps) == 0 && p != nil {
		return Control{}, invalidControl("%s is a queue without stages: programs claim its tasks, so there are no calls of handlers to "+
			"switch or to limit. "+
			"queue: {concurrency: {cluster: 10}} in its pipeline bounds how many are under way; procaas queue pause %s lets none be taken, "+
			"procaas queue resume %s all",
			path, path, path)
	}
	if len(steps) == 0 {
		return Control{}, e.unknownPath(path)
	}
	c := Control{
		Enabled: change.Enabled, Mode: change.Mode, Force: change.Force,
		RateLimit: change.RateLimit, Over: change.Over, RolloutPercent: change.RolloutPercent,
	}
	now := e.clock.now()
	if err := c.checkSwitch(change, now); err != nil {
		return c, err
	}
	if err := c.checkLimit(change, now); err != nil {
		return c, err
	}
	if err := c.checkRollout(steps, path); err != nil {
		return c, err
	}
	if c.Enabled || c.Mode != ModeSkip || c.Force {
		return c, nil
	}
	for _, s := range steps {
		if s.Handler.IsCritical() {
			return c, &ControlError{codeCriticalHandler, fmt.Sprintf(
				"%s is critical: its runs cannot succeed without it; hold %s instead, or insist with force", s.Path, path)}
		}
	}
	return c, nil
}

// isFree tells whether the control keeps nothing from running.
func (c Control) isFree() bool {
	return c.Enabled && c.Mode == "" && c.RateLimit == "" && c.RolloutPercent == nil
}

func invalidControl(format string, args ...any) *ControlError {
	return &ControlError{codeInvalidControl, fmt.Sprintf(format, args...)}
}

func (e *Engine) unknownPath(path string) *ControlError {
	var known []string
	for _, p := range e.library.current.Load().plans {
		known = append(known, p.Pipeline.ID)
		for _, s := range p.Written {
			known = append(known, s.StagePath, s.Path)
		}
	}
	message := fmt.Sprintf("there is no pipeline, stage or handler %s", path)
	if near := diag.Suggest(path, slices.Compact(known)); near != "" {
		message += fmt.Sprintf("; did you mean %s?", near)
	}
	return &ControlError{codeControlPath, message}
}

// checkSwitch completes the switch of a control.
func (c *Control) checkSwitch(change ControlChange, now time.Time) error {
	switch {
	case c.Enabled && c.Mode == "":
		return nil
	case c.Enabled && c.Mode == ModeKeep:
		return c.checkEnd(change, now)
	case c.Enabled:
		return invalidControl(`mode %s is for "enabled": false`, c.Mode)
	case c.Mode == ModeKeep:
		return invalidControl(`mode keep is for "enabled": true; what is off cannot stay in the flow`)
	}
	if c.Mode = cmp.Or(c.Mode, ModeSkip); c.Mode != ModeSkip && c.Mode != ModeHold {
		return invalidControl("want mode %s or %s, have %q", ModeSkip, ModeHold, c.Mode)
	}
	return c.checkEnd(change, now)
}

// checkEnd completes when a switch ends.
func (c *Control) checkEnd(change ControlChange, now time.Time) error {
	if change.Forever {
		if !change.Until.IsZero() {
			return invalidControl("want until or forever, have both")
		}
		return nil
	}
	until := change.Until
	if until.IsZero() {
		until = now.Add(DefaultSwitchTime)
	}
	var err error
	c.Until, err = checkUntil("until", until, now)
	return err
}

// checkUntil refuses an end that has come already, or never comes.
func checkUntil(field string, until, now time.Time) (*time.Time, error) {
	switch {
	case !until.After(now):
		return nil, invalidControl("%s: want a time to come, have %s", field, until.UTC().Format(time.RFC3339))
	case until.Sub(now) > longestControl:
		return nil, invalidControl("%s: want a time within 100 years, have %s; say forever when you mean it", field,
			until.UTC().Format(time.RFC3339))
	}
	until = until.UTC().Truncate(time.Second)
	return &until, nil
}

// checkLimit completes the rate limit of a control.
func (c *Control) checkLimit(change ControlChange, now time.Time) error {
	if c.RateLimit == "" {
		if c.Over != "" || !change.LimitUntil.IsZero() || c.Enabled && c.Mode == "" && !change.Until.IsZero() && c.RolloutPercent == nil {
			return invalidControl("over, limit_until and the until of a limit want a rate_limit")
		}
		return nil
	}
	rate, err := datum.ParseRate(c.RateLimit)
	if err != nil {
		return invalidControl("rate_limit: %v; to let nothing through, switch off or hold", err)
	}
	if s := rate.PerSecond(); s > highestRate || s < lowestRate {
		return invalidControl("rate_limit: want a rate from 1/d to %.0f/s, have %s", highestRate, c.RateLimit)
	}
	if c.Over = cmp.Or(c.Over, overWait); c.Over != overWait && c.Over != overSkip {
		return invalidControl("over: want wait or skip, have %q", c.Over)
	}
	until := change.LimitUntil
	if c.Enabled && c.Mode == "" && until.IsZero() {
		until = change.Until // without a switch, it can only be the limit's
	}
	if until.IsZero() {
		return nil
	}
	c.LimitUntil, err = checkUntil("limit_until", until, now)
	return err
}

// checkRollout checks the share of a control.
func (c *Control) checkRollout(steps []*planner.Step, path string) error {
	if c.RolloutPercent == nil {
		return nil
	}
	if p := *c.RolloutPercent; !(p >= 0 && p <= 100) {
		return invalidControl("rollout_percent: want a number from 0 to 100, have %g", p)
	}
	if steps[0].Path != path {
		return invalidControl("rollout_percent: want the path of a handler, have %s", path)
	}
	if steps[0].Handler.IsCritical() && !c.Force {
		return &ControlError{codeCriticalHandler, fmt.Sprintf("%s is critical: its runs cannot succeed without it; insist with force", path)}
	}
	return nil
}

// A ControlEffect tells what a control would do.
type ControlEffect struct {
	DryRun    bool            `json:"dry_run"` // true
	Path      string          `json:"path"`
	Control   Control         `json:"control"`
	Handlers  []HandlerEffect `json:"handlers"`
	CallsPerS float64         `json:"calls_per_second"` // of the last minute, on this node
	Waiting   int             `json:"waiting_runs"`     // of the pipeline, in the whole cluster
	Running   int             `json:"running_runs"`
	Parked    int             `json:"parked_runs"`
}

// A HandlerEffect tells what a control would do to a handler.
type HandlerEffect struct {
	Path      string   `json:"path"`
	Critical  bool     `json:"critical"`
	CallsPerS float64  `json:"calls_per_second"` // of the last minute, on this node
	ReadBy    []string `json:"read_by"`          // handlers that read what it writes
}

// ControlEffect tells what a control would do, and does nothing. The error is
// that of SetControl.
func (e *Engine) ControlEffect(ctx context.Context, path string, change ControlChange) (ControlEffect, error) {
	c, err := e.checkControl(path, change)
	if err != nil {
		return ControlEffect{}, err
	}
	out := ControlEffect{DryRun: true, Path: path, Control: c, Handlers: []HandlerEffect{}}
	now := time.Now()
	for _, s := range e.under(path) {
		var info HandlerInfo
		e.stats.path(s.Path).fill(&info, now)
		h := HandlerEffect{
			Path: s.Path, Critical: s.Handler.IsCritical(), CallsPerS: info.CallsPerS,
			ReadBy: e.readers(s),
		}
		out.CallsPerS += h.CallsPerS
		out.Handlers = append(out.Handlers, h)
	}
	pipeline, _, _ := strings.Cut(path, "/")
	for status, n := range map[model.Status]*int{model.Waiting: &out.Waiting, model.Running: &out.Running, model.Parked: &out.Parked} {
		groups, err := e.o.Store.Count(ctx, store.RunFilter{Pipeline: pipeline, Status: status})
		if err != nil {
			return ControlEffect{}, fmt.Errorf("count runs: %w", err)
		}
		for _, g := range groups {
			*n += g.Runs
		}
	}
	return out, nil
}

// readers lists the handlers of the pipeline that read what a handler writes.
func (e *Engine) readers(s *planner.Step) []string {
	out := []string{}
	pipeline, _, _ := strings.Cut(s.Path, "/")
	for _, other := range e.library.current.Load().byID[pipeline].Written {
		if other == s {
			continue
		}
		if _, _, ok := planner.Overlap(s, other); ok {
			out = append(out, other.Path)
		}
	}
	return out
}
