package fallback

import (
	"cmp"
	"time"

	"procaas/engine/planner"
)

// In is the state of a handler that is on. The other states are those of a [Change].
const In = "in"

// A View is the state of a handler with a fallback.
type View struct {
	State string `json:"state" doc:"in: the handler is in the flow. out: it is out of the flow until a time. probing: one call per second tries whether it works again. ramping: the share of calls grows. capped: it fails, but too many other handlers are out. frozen: half of all services fail at once, so no handler goes out."`

	Service string     `json:"service,omitempty" doc:"The service, if it is out as a whole with all its handlers that have a fallback."`
	Since   *time.Time `json:"since" doc:"When the handler left the flow."`
	Until   *time.Time `json:"until" doc:"The end of out or ramping; null if unknown."`
	Ratio   *float64   `json:"ratio" doc:"The share of successful calls when the handler left the flow."`
	Trips   int        `json:"trips" doc:"How often it went out in a row. Each time doubles the time out."`
	Reason  string     `json:"reason,omitempty"`
}

// IsOut reports whether fallback has turned the handler off, or it is still recovering.
func (v *View) IsOut() bool {
	return v != nil && (v.State == Out || v.State == Probing || v.State == Ramping)
}

// Effects adds the effect of an outage to those of controls and limits. Switches come first.
func (o *outages) Effects(s *planner.Step, switched string, effects []string, now time.Time) []string {
	out := o.Of(s)
	switch {
	case out == nil || out.phase(now) == Back:
		if v := o.View(s, now); v != nil && (v.State == Frozen || v.State == Capped) {
			return append(effects, "its fallback is "+v.State+": "+v.Reason)
		}
		return effects
	case switched == "on":
		return append([]string{out.Reason(now)}, effects...)
	}
	return append(effects, out.Reason(now))
}

// unfrozen reports whether a handler is turned off even while half of all services fail.
func unfrozen(s *planner.Step) bool { return s.Service != nil && !s.Service.FreezeFallbacks }

// View returns the state of a handler, or nil for one without a fallback.
func (o *outages) View(s *planner.Step, now time.Time) *View {
	if s.Fallback() == nil {
		return nil
	}
	v := &View{State: In}
	if o == nil {
		return v
	}
	if out := o.Of(s); out != nil && out.phase(now) != Back {
		v.State = out.phase(now)
		v.Since = &out.Since
		v.Ratio = &out.Ratio
		v.Trips = out.Trips
		v.Reason = out.Why
		if out.Service {
			v.Service = out.Name
		}
		if v.State != Probing {
			v.Until = &out.Until
		}
		return v
	}
	if at, ok := o.state.Capped[s.Path]; ok {
		v.State, v.Since, v.Reason = Capped, &at, "too few of its calls succeed, but too many others are out"
	} else if at := o.state.Frozen; !at.IsZero() && !unfrozen(s) {
		v.State, v.Since = Frozen, &at
		v.Reason = cmp.Or(o.state.FrozenWhy, "half of all services fail at once") +
			"; procaas switch off PATH takes a handler out by hand, freeze-fallbacks: false lets those of a service go out by themselves"
	}
	return v
}
