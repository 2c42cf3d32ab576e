package wire

import (
	"time"

	"procaas/engine/guard"
)

// A ControlChange is the body of the call that sets a control. It replaces the whole control of its
// path.
type ControlChange struct {
	Enabled        *bool     `json:"enabled,omitempty" doc:"false switches the path off. The default is true. true without other fields removes the control."`
	Mode           string    `json:"mode,omitempty" enum:"skip,hold,keep" by:"engine" doc:"The meaning of off. skip, the default, leaves the handlers out as if their enabled were false. hold parks runs before them until the switch is on. With enabled true, keep prevents fallbacks from taking handlers out of the flow."`
	Force          bool      `json:"force,omitempty" doc:"Lets skip and rollout_percent also apply to critical handlers."`
	Until          time.Time `json:"until,omitzero" doc:"When the switch or keep ends. The default is in one hour. Without a switch it is the end of the limit."`
	Forever        bool      `json:"forever,omitempty" doc:"true keeps the switch, or keep, until somebody changes it."`
	RateLimit      string    `json:"rate_limit,omitempty" example:"10/s" doc:"The highest rate of all calls below the path, on all nodes together. The default is no limit."`
	Over           string    `json:"over,omitempty" enum:"wait,skip" by:"engine" doc:"What a call over the limit does: wait (the default) or skip. Critical handlers always wait."`
	LimitUntil     time.Time `json:"limit_until,omitzero" doc:"When the limit ends."`
	Deadline       string    `json:"deadline,omitempty" example:"300ms" doc:"The longest time of each handler below the path, all its attempts together. It bounds calls that start from now on, and the shorter one of it and the file holds. The default is that of the file."`
	DeadlineForce  bool      `json:"deadline_force,omitempty" doc:"Lets deadline also bound critical handlers. Their runs fail at it."`
	DeadlineUntil  time.Time `json:"deadline_until,omitzero" doc:"When the deadline ends. The default is in one hour."`
	RolloutPercent *float64  `json:"rollout_percent,omitempty" minimum:"0" maximum:"100" by:"engine" doc:"The percentage of runs that include the handler. The field by of its rollout, or the key of the run, chooses them. The default is that of the definition."`
	Reason         string    `json:"reason,omitempty" maxLength:"512" doc:"The reason, for people and the audit."`
}

// A ControlRemoved reports that there is no control any more.
type ControlRemoved struct {
	Path     string `json:"path" doc:"pipeline, pipeline/stage or pipeline/stage/handler."`
	Revision int64  `json:"revision" doc:"The revision of the settings after the removal. Undo takes it."`
}

// An Undo names the change of a control to undo.
type Undo struct {
	Revision int64  `json:"revision" minimum:"1" want:"want the revision of a change, a number from 1" doc:"The revision after the change to undo."`
	Reason   string `json:"reason,omitempty" maxLength:"512" doc:"The reason, for people and the audit."`
}

// Undone says what an undo has restored.
type Undone struct {
	Path    string             `json:"path" doc:"The path of the control: pipeline, pipeline/stage or pipeline/stage/handler."`
	Control *guard.ControlView `json:"control" doc:"The restored control; null if there was none."`
}

// A FallbackEnd says which handlers to turn on again.
type FallbackEnd struct {
	Path   string `json:"path" maxLength:"256" want:"want the path of a pipeline, stage or handler" doc:"A pipeline, stage or handler."`
	Reason string `json:"reason,omitempty" maxLength:"512" doc:"The reason, for people and the audit."`
}

// FallbacksEnded lists the handlers that were turned on again.
type FallbacksEnded struct {
	Path     string   `json:"path"`
	Handlers []string `json:"handlers" doc:"The handlers that were out of the flow."`
}

// A ConfigChange is the body of the call that changes a live setting.
type ConfigChange struct {
	Value  any    `json:"value" want:"want the new value; a setting is sent as {\"value\": …, \"reason\": …}" doc:"The new value: any JSON value."`
	Reason string `json:"reason,omitempty" maxLength:"512" doc:"The reason, for people and the audit."`
}

// NewControlChange makes the body that sets a control to its current value.
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
		Deadline: c.Deadline, DeadlineForce: c.DeadlineForce, DeadlineUntil: at(c.DeadlineUntil),
	}
}
