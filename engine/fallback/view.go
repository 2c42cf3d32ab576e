package fallback

import (
	"cmp"
	"time"

	"procaas/engine/planner"
)

// In is the state of a handler that is in the flow. The others are those
// of a [Change].
const In = "in"

// A View tells where a handler with a fallback stands.
type View struct {
	// State is in while the handler is in the flow, out, probing or ramping.
	// It is capped when the handler fails but too many others are out, and frozen
	// when nothing goes out since half of all services fail at once.
	State string `json:"state"`

	Service string     `json:"service,omitempty"` // that is out as a whole
	Since   *time.Time `json:"since"`             // when it left the state in
	Until   *time.Time `json:"until"`             // the end of out or ramping; null when nobody knows it
	Ratio   *float64   `json:"ratio"`             // of the calls that sent it out, how many succeeded
	Trips   int        `json:"trips"`             // in a row
	Reason  string     `json:"reason,omitempty"`
}

// IsOut reports whether the handler is out of the flow by itself, or not all of its
// calls are made yet.
func (v *View) IsOut() bool {
	return v != nil && (v.State == Out || v.State == Probing || v.State == Ramping)
}

// Effects adds what an outage does to what controls and limits do; those that
// switch the handler off count first.
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

// unfrozen reports whether a handler goes out even while half of all services fail.
func unfrozen(s *planner.Step) bool { return s.Service != nil && !s.Service.FreezeFallbacks }

// View returns where a handler stands; nil for one without a fallback.
func (o *outages) View(s *planner.Step, now time.Time) *View {
	if s.Fallback() == nil {
		return nil
	}
	v := &View{State: In}
	if o == nil {
		return v
	}
	if out := o.Of(s); out != nil && out.phase(now) != Back {
		v.State, v.Since, v.Ratio, v.Trips, v.Reason = out.phase(now), &out.Since, &out.Ratio, out.Trips, out.Why
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
