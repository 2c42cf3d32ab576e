package guard

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"procaas/dsl/datum"
	"procaas/engine/model"
	"procaas/engine/planner"
)

// A ControlError says why a control is refused.
type ControlError struct {
	Code    string // stable: unknown_control_path, control_not_found, invalid_control, critical_handler
	Message string // for people, with what to do instead
}

// Error implements error.
func (e *ControlError) Error() string { return e.Message }

// The codes of a [ControlError].
const (
	CodeControlPath     = "unknown_control_path"
	CodeTriggerNotFound = "trigger_not_found"
	CodeControlNotFound = "control_not_found"
	codeInvalidControl  = "invalid_control"
	codeCriticalHandler = "critical_handler"
)

// DefaultSwitchTime is how long a switch stays off by default.
const DefaultSwitchTime = time.Hour

const (
	longestControl  = 100 * 365 * 24 * time.Hour // a longer one is probably a mistake
	longestDeadline = 24 * time.Hour
	highestRate     = 1e6 // calls per second
	lowestRate      = 1.0 / (24 * 60 * 60)
)

// A ControlChange is what an operator wants for a path. It replaces the whole control.
type ControlChange struct {
	Enabled        bool      // false: switched off
	Mode           string    // empty means ModeSkip if Enabled is false; with Enabled it is empty or ModeKeep
	Force          bool      // critical handlers too
	Until          time.Time // end of the switch or of ModeKeep; without them, of the limit
	Forever        bool      // the switch stays off until somebody switches it on
	RateLimit      string    // such as 10/s, for all nodes together; empty for none
	Over           string    // wait or skip, for calls over the limit; empty means wait
	LimitUntil     time.Time // zero: Until if there is no switch, else no end
	Deadline       string    // such as 300ms, for each handler below the path; empty for none
	DeadlineForce  bool      // critical handlers too
	DeadlineUntil  time.Time // zero: in an hour
	RolloutPercent *float64  // of the runs, from 0 to 100; nil keeps that of the definition
}

// A ControlView is a control in the form for people and programs.
type ControlView struct {
	Path string `json:"path"`
	Control
	Revision int64     `json:"revision" doc:"The revision of the control, which grows with every change. Undo takes it."`
	Changed  time.Time `json:"changed"`
	By       string    `json:"by"`
	Reason   string    `json:"reason"`
	Expired  bool      `json:"expired" doc:"true if no part of the control is in effect any longer."`
	Known    bool      `json:"known" doc:"true if the present definition has the path."`
}

func (l *liveControl) View(known bool, now time.Time) ControlView {
	return ControlView{
		Path: l.path, Control: l.Control, Revision: l.setting.Revision, Changed: l.setting.Changed,
		By: l.setting.By.Name, Reason: l.setting.By.Reason, Known: known,
		Expired: !l.isOff(l.Mode, now) && !l.isKept(now) && !l.limits(now) && l.RolloutPercent == nil &&
			l.Present(now).Deadline == "",
	}
}

// These are the parts of a control.
const (
	PartSwitch  = "switch"
	PartLimit   = "limit"
	PartRollout = "rollout"

	PartDeadline = "deadline"
)

// A Setter is who set a part of a control, and why.
type Setter struct {
	By     string `json:"by"`
	Reason string `json:"reason"`
}

func (s Setter) text() string {
	if s.Reason == "" {
		return " by " + s.By
	}
	return " by " + s.By + ": " + s.Reason
}

// parts splits a control into its parts.
func (c Control) parts() map[string]Control {
	out := map[string]Control{}
	if !c.Enabled || c.Mode != "" {
		out[PartSwitch] = Control{Enabled: c.Enabled, Mode: c.Mode, Force: c.Force, Until: c.Until}
	}
	if c.RateLimit != "" {
		out[PartLimit] = Control{Enabled: true, RateLimit: c.RateLimit, Over: c.Over, LimitUntil: c.LimitUntil}
	}
	if c.RolloutPercent != nil {
		out[PartRollout] = Control{Enabled: true, Force: c.Force, RolloutPercent: c.RolloutPercent}
	}
	if c.Deadline != "" {
		out[PartDeadline] = Control{Enabled: true, Deadline: c.Deadline, DeadlineForce: c.DeadlineForce, DeadlineUntil: c.DeadlineUntil}
	}
	return out
}

// Credit returns a new control with its setters. The setter of the changed parts is by, or of all
// parts if none has changed. The other parts keep their setters.
func (cs *Controls) Credit(path string, c Control, by Setter) Control {
	var before Control
	if cs != nil && cs.ByPath[path] != nil {
		before = cs.ByPath[path].Control
	}
	old, now, kept := before.parts(), c.parts(), map[string]Setter{}
	for name, part := range now {
		if was, ok := old[name]; ok && bytes.Equal(model.EncodeJSON(was), model.EncodeJSON(part)) {
			kept[name] = before.Setters[name]
		}
	}
	c.Setters = kept
	if len(kept) == len(now) && len(old) == len(now) {
		c.Setters = nil
	}
	return c.creditRest(by)
}

// creditRest sets the setter of parts that have none.
func (c Control) creditRest(by Setter) Control {
	setters := maps.Clone(c.Setters)
	for name := range c.parts() {
		if _, ok := setters[name]; !ok {
			if setters == nil {
				setters = map[string]Setter{}
			}
			setters[name] = by
		}
	}
	c.Setters = setters
	return c
}

// Apart splits controls into their parts that have not ended, each with its setter.
func Apart(controls []ControlView, now time.Time) (parts []ControlView) {
	for _, v := range controls {
		all := v.Present(now).parts()
		for _, name := range slices.Sorted(maps.Keys(all)) {
			part := v
			part.Control = all[name]
			if by, ok := v.Setters[name]; ok { // a server of an older version has no setters
				part.By, part.Reason = by.By, by.Reason
			}
			parts = append(parts, part)
		}
	}
	return parts
}

// NewControl makes the control for a path from an operator's change. steps are the handlers below
// the path.
func NewControl(steps []*planner.Step, path string, change ControlChange, now time.Time) (Control, error) {
	c := Control{
		Enabled: change.Enabled, Mode: change.Mode, Force: change.Force,
		RateLimit: change.RateLimit, Over: change.Over, RolloutPercent: change.RolloutPercent,
		Deadline: change.Deadline, DeadlineForce: change.DeadlineForce,
	}
	if err := c.checkSwitch(change, now); err != nil {
		return c, err
	}
	if err := c.checkLimit(change, now); err != nil {
		return c, err
	}
	if err := c.checkRollout(steps, path); err != nil {
		return c, err
	}
	if err := c.checkDeadline(steps, path, change, now); err != nil {
		return c, err
	}
	if c.Enabled || c.Mode != ModeSkip || c.Force {
		return c, nil
	}
	for _, s := range steps {
		if s.Undoes {
			return c, &ControlError{codeCriticalHandler, fmt.Sprintf("%s is a compensation: its runs fail without it, and what they have done "+
				"is not undone; hold it instead, or insist with force (--force on the command line)", s.Path)}
		}
		if s.Handler.IsCritical() {
			return c, &ControlError{codeCriticalHandler, fmt.Sprintf(
				"%s is critical: its runs cannot succeed without it; hold %s instead, or insist with force (--force on the command line)", s.Path,
				path)}
		}
	}
	return c, nil
}

// NewHold makes the control of what an add-on declares. It makes no calls, so it can only be held.
func NewHold(path string, change ControlChange, now time.Time) (Control, error) {
	if change.RateLimit != "" || change.Deadline != "" || change.RolloutPercent != nil || change.Mode == ModeKeep ||
		!change.Enabled && change.Mode != ModeHold {
		return Control{}, InvalidControl("%s is no handler, so it can be held and nothing else: procaas switch hold %s", path, path)
	}
	return NewControl(nil, path, change, now)
}

// IsFree reports whether the control has no effect.
func (c Control) IsFree() bool {
	return c.Enabled && c.Mode == "" && c.RateLimit == "" && c.RolloutPercent == nil && c.Deadline == ""
}

// InvalidControl makes the error of an invalid control.
func InvalidControl(format string, args ...any) *ControlError {
	return &ControlError{codeInvalidControl, fmt.Sprintf(format, args...)}
}

// checkSwitch fills in the switch of a control.
func (c *Control) checkSwitch(change ControlChange, now time.Time) error {
	switch {
	case c.Enabled && c.Mode == "":
		return nil
	case c.Enabled && c.Mode == ModeKeep:
		return c.checkEnd(change, now)
	case c.Enabled:
		return InvalidControl(`mode %s is for "enabled": false`, c.Mode)
	case c.Mode == ModeKeep:
		return InvalidControl(`mode keep is for "enabled": true; what is off cannot stay in the flow`)
	}
	c.Mode = cmp.Or(c.Mode, ModeSkip)
	if c.Mode != ModeSkip && c.Mode != ModeHold {
		return InvalidControl("want mode %s or %s, have %q", ModeSkip, ModeHold, c.Mode)
	}
	return c.checkEnd(change, now)
}

// checkEnd fills in when a switch ends.
func (c *Control) checkEnd(change ControlChange, now time.Time) error {
	if change.Forever {
		if !change.Until.IsZero() {
			return InvalidControl("want until or forever, have both")
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

// checkUntil refuses an end that has passed or never comes.
func checkUntil(field string, until, now time.Time) (*time.Time, error) {
	switch {
	case !until.After(now):
		return nil, InvalidControl("%s: want a time to come, have %s", field, until.UTC().Format(time.RFC3339))
	case until.Sub(now) > longestControl:
		return nil, InvalidControl("%s: want a time within 100 years, have %s; say forever when you mean it", field,
			until.UTC().Format(time.RFC3339))
	}
	until = until.UTC().Truncate(time.Second)
	return &until, nil
}

// checkLimit fills in the rate limit of a control.
func (c *Control) checkLimit(change ControlChange, now time.Time) error {
	if c.RateLimit == "" {
		// until belongs to a switch, a mode or a rollout; without any of them it can only be that of a limit.
		hasOwner := !c.Enabled || c.Mode != "" || c.RolloutPercent != nil || c.Deadline != ""
		untilOfLimit := !change.LimitUntil.IsZero() || !change.Until.IsZero() && !hasOwner
		if c.Over != "" || untilOfLimit {
			return InvalidControl("over, limit_until and the until of a limit want a rate_limit")
		}
		return nil
	}
	rate, err := datum.ParseRate(c.RateLimit)
	if err != nil {
		return InvalidControl("rate_limit: %v; to let nothing through, switch off or hold", err)
	}
	if s := rate.PerSecond(); s > highestRate || s < lowestRate {
		return InvalidControl("rate_limit: want a rate from 1/d to %.0f/s, have %s", highestRate, c.RateLimit)
	}
	c.Over = cmp.Or(c.Over, overWait)
	if c.Over != overWait && c.Over != overSkip {
		return InvalidControl("over: want wait or skip, have %q", c.Over)
	}
	until := change.LimitUntil
	if c.Enabled && c.Mode == "" && until.IsZero() {
		until = change.Until // without a switch, it can only be the end of the limit
	}
	if until.IsZero() {
		return nil
	}
	c.LimitUntil, err = checkUntil("limit_until", until, now)
	return err
}

// checkRollout checks the rollout of a control.
func (c *Control) checkRollout(steps []*planner.Step, path string) error {
	if c.RolloutPercent == nil {
		return nil
	}
	if p := *c.RolloutPercent; !(p >= 0 && p <= 100) {
		return InvalidControl("rollout_percent: want a number from 0 to 100, have %g", p)
	}
	if steps[0].Path != path || steps[0].Undoes {
		return InvalidControl("rollout_percent: want the path of a handler, have %s", path)
	}
	if steps[0].Handler.IsCritical() && !c.Force {
		return &ControlError{codeCriticalHandler, fmt.Sprintf("%s is critical: its runs cannot succeed without it; insist with force "+
			"(--force on the command line)", path)}
	}
	return nil
}

// checkDeadline fills in the deadline of a control.
func (c *Control) checkDeadline(steps []*planner.Step, path string, change ControlChange, now time.Time) error {
	if c.Deadline == "" {
		if c.DeadlineForce || !change.DeadlineUntil.IsZero() {
			return InvalidControl("deadline_force and deadline_until want a deadline")
		}
		return nil
	}
	most, err := datum.ParseDuration(c.Deadline)
	if err != nil || most < time.Millisecond || most > longestDeadline {
		return InvalidControl("deadline: want a duration from 1ms to %s, such as 300ms, have %q", "24h", c.Deadline)
	}
	var free, critical []string // handlers that it bounds, and those that it bounds only with force
	for _, s := range steps {
		switch {
		case !MayBound(s):
		case s.Handler.IsCritical():
			critical = append(critical, s.Path)
		default:
			free = append(free, s.Path)
		}
	}
	switch {
	case steps[0].Undoes:
		return InvalidControl("deadline: a compensation has only that of its definition; hold or limit %s instead", path)
	case len(free)+len(critical) == 0:
		return InvalidControl("deadline: nothing at %s makes calls, so there is nothing to bound", path)
	case len(free) == 0 && !c.DeadlineForce:
		return &ControlError{codeCriticalHandler, fmt.Sprintf("%s is critical: its runs fail at the deadline; hold or limit %s instead, or "+
			"insist with deadline_force (--force on the command line)", critical[0], path)}
	}
	until := change.DeadlineUntil
	if until.IsZero() {
		until = now.Add(DefaultSwitchTime)
	}
	c.DeadlineUntil, err = checkUntil("deadline_until", until, now)
	return err
}
