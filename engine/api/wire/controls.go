package wire

import (
	"time"

	"procaas/engine/guard"
)

// A ControlChange is the body that sets a control. It replaces the whole control
// of its path.
type ControlChange struct {
	Enabled        *bool     `json:"enabled,omitempty" doc:"false switches off. The default is true. true and nothing else removes the control."`
	Mode           string    `json:"mode,omitempty" enum:"skip,hold,keep" by:"engine" doc:"What off means: skip (the default) leaves the handlers out as if their enabled were false; hold parks runs before them until the switch is on. While enabled is true, keep lets no handler go out of the flow by itself."`
	Force          bool      `json:"force,omitempty" doc:"Let skip and rollout_percent leave out critical handlers, too."`
	Until          time.Time `json:"until,omitzero" doc:"When the switch goes on by itself, or keep ends: in an hour when it is left out. Without a switch, when the limit ends."`
	Forever        bool      `json:"forever,omitempty" doc:"The switch stays off, or keep holds, until somebody changes it."`
	RateLimit      string    `json:"rate_limit,omitempty" example:"10/s" doc:"A bound of all calls below the path, on all nodes together; none when it is left out."`
	Over           string    `json:"over,omitempty" enum:"wait,skip" by:"engine" doc:"What becomes of a call over the limit: wait (the default) or skip. Critical handlers always wait."`
	LimitUntil     time.Time `json:"limit_until,omitzero" doc:"When the limit ends by itself."`
	RolloutPercent *float64  `json:"rollout_percent,omitempty" minimum:"0" maximum:"100" by:"engine" doc:"The share of runs in which a handler runs, told by its rollout's by, or by the run's key; what the definition says when it is left out."`
	Reason         string    `json:"reason,omitempty" maxLength:"512" doc:"Why, for people and the audit."`
}

// A ControlRemoved tells that there is no control any more.
type ControlRemoved struct {
	Path     string `json:"path" doc:"pipeline, pipeline/stage or pipeline/stage/handler."`
	Revision int64  `json:"revision" doc:"Of the settings, after the removal. Undo takes it."`
}

// An Undo names the change of a control to take back.
type Undo struct {
	Revision int64  `json:"revision" minimum:"1" want:"want the revision of a change, a number from 1" doc:"The revision that the change made."`
	Reason   string `json:"reason,omitempty" maxLength:"512" doc:"Why, for people and the audit."`
}

// Undone tells what an undo has put back.
type Undone struct {
	Path    string             `json:"path" doc:"Of the control: pipeline, pipeline/stage or pipeline/stage/handler."`
	Control *guard.ControlView `json:"control" doc:"The control that was before; null when there was none."`
}

// A FallbackEnd says which handlers go back into the flow.
type FallbackEnd struct {
	Path   string `json:"path" maxLength:"256" want:"want the path of a pipeline, stage or handler" doc:"A pipeline, stage or handler."`
	Reason string `json:"reason,omitempty" maxLength:"512" doc:"Why, for people and the audit."`
}

// FallbacksEnded tells which handlers are back in the flow.
type FallbacksEnded struct {
	Path     string   `json:"path"`
	Handlers []string `json:"handlers" doc:"Those that were out; empty when none was."`
}

// A ConfigChange is the body that changes a live setting.
type ConfigChange struct {
	Value  any    `json:"value" want:"want the new value; a setting is sent as {\"value\": …, \"reason\": …}" doc:"The new value: any JSON value."`
	Reason string `json:"reason,omitempty" maxLength:"512" doc:"Why, for people and the audit."`
}

// NewControlChange makes the body that sets a control as it is.
func NewControlChange(c guard.Control, reason string) ControlChange {
	at := func(t *time.Time) time.Time {
		if t == nil {
			return time.Time{}
		}
		return *t
	}
	return ControlChange{
		Enabled: &c.Enabled, Mode: c.Mode, Force: c.Force, Until: at(c.Until), Forever: c.Mode != "" && c.Until == nil,
		RateLimit: c.RateLimit, Over: c.Over, LimitUntil: at(c.LimitUntil), RolloutPercent: c.RolloutPercent, Reason: reason,
	}
}
