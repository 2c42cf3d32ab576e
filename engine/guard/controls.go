package guard

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"procaas/dsl/datum"
	"procaas/engine/planner"
	"procaas/engine/store"
)

// This file interprets controls: the switches, limits and rollouts that operators set at run time.
// It does no I/O and reads no clock.

// A Control is what operators have set on a path: a pipeline, a stage or a handler. It applies to
// everything below the path. Among the controls above a handler, a switch that is off wins over
// those that are on, and every limit applies.
type Control struct {
	Enabled bool `json:"enabled" doc:"false means that the switch is off."`
	// Mode is the effect of a switch that is off: ModeSkip or ModeHold. While Enabled, it is empty
	// or ModeKeep.
	Mode           string     `json:"mode,omitempty" doc:"The meaning of off: skip or hold. With the switch on: keep, if fallbacks must not take handlers out."`
	Force          bool       `json:"force,omitempty" doc:"true if the control also applies to critical handlers."`
	Until          *time.Time `json:"until,omitempty" doc:"When the switch ends; null is never."`
	RateLimit      string     `json:"rate_limit,omitempty" doc:"The highest rate of all calls below the path, on all nodes together."`
	Over           string     `json:"over,omitempty" doc:"What a call over the limit does: wait or skip."`
	LimitUntil     *time.Time `json:"limit_until,omitempty" doc:"When the limit ends; null is never."`
	RolloutPercent *float64   `json:"rollout_percent,omitempty" doc:"The percentage of runs that include the handler."`
	// Deadline bounds each handler, as its own deadline does. It always has an end.
	Deadline      string            `json:"deadline,omitempty" doc:"The longest time of each handler below the path. The shorter one of it and the file holds."`
	DeadlineForce bool              `json:"deadline_force,omitempty" doc:"true if the deadline also bounds critical handlers, whose runs fail at it."`
	DeadlineUntil *time.Time        `json:"deadline_until,omitempty" doc:"When the deadline ends."`
	Setters       map[string]Setter `json:"setters,omitempty" doc:"Who set each part, and why: switch, limit, deadline and rollout. by and reason are those of the last change."`
}

// Present removes the parts of a control that have ended. Call it before you change a part.
// Otherwise ended parts would come back.
func (c Control) Present(now time.Time) Control {
	if c.Until != nil && !now.Before(*c.Until) {
		c.Enabled = true
		c.Mode = ""
		c.Force = c.Force && c.RolloutPercent != nil
		c.Until = nil
	}
	if c.LimitUntil != nil && !now.Before(*c.LimitUntil) {
		c.RateLimit, c.Over, c.LimitUntil = "", "", nil
	}
	if c.DeadlineUntil != nil && !now.Before(*c.DeadlineUntil) {
		c.Deadline, c.DeadlineForce, c.DeadlineUntil = "", false, nil
	}
	return c
}

// These are the effects of a switch. ModeKeep is for a switch that is on.
const (
	ModeSkip = "skip" // handlers are skipped, as if enabled were false
	ModeHold = "hold" // runs are parked before the handlers until the switch is on
	ModeKeep = "keep" // automatic fallback is off for the handlers
)

// These are the values of Control.Over.
const (
	overWait = "wait"
	overSkip = "skip"
)

// A liveControl is a control in a form that is fast to check.
type liveControl struct {
	Control
	path    string
	setting store.Setting
	rate    datum.Rate
	most    time.Duration // the deadline

	off, over, bound      string // why, for people
	holdCause, limitCause string
}

// Controls are all controls of one revision. They never change. Nil means none.
type Controls struct {
	ByPath     map[string]*liveControl
	Superseded chan struct{} // closed when there are newer ones
}

// NewControls reads controls in the form of the store.
func NewControls(set map[string]store.Setting) (*Controls, error) {
	c := &Controls{ByPath: make(map[string]*liveControl, len(set)), Superseded: make(chan struct{})}
	for path, setting := range set {
		l, err := newLiveControl(path, setting)
		if err != nil {
			return nil, fmt.Errorf("read control %s: %w", path, err)
		}
		c.ByPath[path] = l
	}
	return c, nil
}

func newLiveControl(path string, setting store.Setting) (*liveControl, error) {
	l := &liveControl{path: path, setting: setting}
	if err := json.Unmarshal(setting.Value, &l.Control); err != nil {
		return nil, err
	}
	l.Control = l.creditRest(Setter{setting.By.Name, setting.By.Reason})
	by := l.Setters[PartSwitch].text()
	l.off = "switched off at " + path + untilText(l.Until) + by
	switch l.Mode {
	case ModeHold:
		l.off = "held at " + path + untilText(l.Until) + by
	case ModeKeep:
		l.off = "kept in the flow at " + path + untilText(l.Until) + by
	}
	l.holdCause = path + CauseHold
	var err error
	if l.Deadline != "" {
		if l.most, err = datum.ParseDuration(l.Deadline); err != nil {
			return l, err
		}
		l.bound = "operators at " + path + untilText(l.DeadlineUntil) + l.Setters[PartDeadline].text()
	}
	if l.RateLimit == "" {
		return l, nil
	}
	l.rate, err = datum.ParseRate(l.RateLimit)
	l.over = "over the limit of " + l.RateLimit + " at " + path + untilText(l.LimitUntil) + l.Setters[PartLimit].text()
	l.limitCause = path + " " + l.RateLimit
	return l, err
}

// CauseHold is the suffix of the cause of a run that a switch holds. The path of the control comes
// before. The cause of a run that waits for a limit ends with the rate. If a run waits for several
// things, its causes are separated by commas.
const CauseHold = " hold"

// causeRate is the suffix of the cause of a run that waits for the rate limit in a handler's
// definition. The path of the handler comes before. Nothing lifts this limit, so the cause is only
// for people.
const causeRate = " rate"

func untilText(t *time.Time) string {
	if t == nil {
		return ""
	}
	return " until " + t.UTC().Format(time.RFC3339)
}

// isOff reports whether the switch is off in a mode now.
func (l *liveControl) isOff(mode string, now time.Time) bool {
	return l != nil && !l.Enabled && l.Mode == mode && l.holds(now)
}

// isKept reports whether the control keeps fallback from turning handlers off now.
func (l *liveControl) isKept(now time.Time) bool {
	return l != nil && l.Enabled && l.Mode == ModeKeep && l.holds(now)
}

// holds reports whether the switch is in force still.
func (l *liveControl) holds(now time.Time) bool { return l.Until == nil || now.Before(*l.Until) }

// limits reports whether a rate limit is in force now.
func (l *liveControl) limits(now time.Time) bool {
	return l != nil && l.RateLimit != "" && (l.LimitUntil == nil || now.Before(*l.LimitUntil))
}

// bounds reports whether a deadline is in force now for a handler. Waits are no calls, so nothing
// that operators want to bound.
func (l *liveControl) bounds(s *planner.Step, now time.Time) bool {
	return l != nil && l.most > 0 && (l.DeadlineUntil == nil || now.Before(*l.DeadlineUntil)) &&
		(l.DeadlineForce || !s.Handler.IsCritical()) && MayBound(s)
}

// MayBound reports whether a deadline of operators can bound a handler.
func MayBound(s *planner.Step) bool {
	return !s.Undoes && !s.Loops && !s.Computes() && s.Handler.Await == nil && s.Handler.Type != "wait"
}

// Deadline returns the shortest deadline that operators have set for a handler, and who set it. It is 0 for none.
func (c *Controls) Deadline(s *planner.Step, now time.Time) (most time.Duration, by string) {
	for _, l := range c.above(s) {
		if l.bounds(s, now) && (most == 0 || l.most < most) {
			most, by = l.most, l.bound
		}
	}
	return most, by
}

// above returns the controls that apply to a handler: its own, the stage's and the pipeline's. Nil
// means none.
func (c *Controls) above(s *planner.Step) [3]*liveControl {
	if c == nil || len(c.ByPath) == 0 {
		return [3]*liveControl{}
	}
	pipeline, _, _ := strings.Cut(s.StagePath, "/")
	return [3]*liveControl{c.ByPath[s.Path], c.ByPath[s.StagePath], c.ByPath[pipeline]}
}

// Skips returns the control by which a handler is skipped, or nil. A critical one is skipped only
// if the operator has forced it. A compensation is skipped only by its own control: with a whole
// pipeline off, what has been done must still be undone.
func (c *Controls) Skips(s *planner.Step, now time.Time) *liveControl {
	for i, l := range c.above(s) {
		if (i == 0 || !s.Undoes) && l.isOff(ModeSkip, now) && (l.Force || !s.Handler.IsCritical()) {
			return l
		}
	}
	return nil
}

// Holds returns the control that holds runs before a handler, or nil.
func (c *Controls) Holds(s *planner.Step, now time.Time) *liveControl {
	for _, l := range c.above(s) {
		if l.isOff(ModeHold, now) {
			return l
		}
	}
	return nil
}

// HoldsAt reports whether the control of exactly this path holds, and why.
func (c *Controls) HoldsAt(path string, now time.Time) (reason string, held bool) {
	if c == nil || !c.ByPath[path].isOff(ModeHold, now) {
		return "", false
	}
	return c.ByPath[path].off, true
}

// HeldUntil returns when the hold of exactly this path has ended or will end. It is zero if there is none, and if it does
// not end.
func (c *Controls) HeldUntil(path string) time.Time {
	if c == nil || c.ByPath[path] == nil || c.ByPath[path].Mode != ModeHold || c.ByPath[path].Until == nil {
		return time.Time{}
	}
	return *c.ByPath[path].Until
}

// Keeps reports whether a control keeps a handler in the flow even if its calls fail.
func (c *Controls) Keeps(s *planner.Step, now time.Time) bool {
	above := c.above(s)
	return above[0].isKept(now) || above[1].isKept(now) || above[2].isKept(now)
}

// Off is [core.Live].Off.
func (c *Controls) Off(s *planner.Step, now time.Time) (reason string, off bool) {
	if l := c.Skips(s, now); l != nil {
		return l.off, true
	}
	return "", false
}

// Share is [core.Live].Share.
func (c *Controls) Share(s *planner.Step) (percent float64, ok bool) {
	l := c.above(s)[0]
	if l != nil && l.RolloutPercent != nil && (l.Force || !s.Handler.IsCritical()) {
		return *l.RolloutPercent, true
	}
	if r := s.Handler.Rollout; r != nil {
		return r.Percent, true
	}
	return 0, false
}

// InForce reports whether all controls that a cause names are still in force. The receiver may be
// nil while a node starts and has not read its controls yet: none is known to have ended.
func (c *Controls) InForce(cause string, now time.Time) bool {
	if c == nil {
		return true
	}
	for part := range strings.SplitSeq(cause, ",") {
		path, _, _ := strings.Cut(part, " ")
		l := c.ByPath[path]
		switch part {
		case path + causeRate, path + CauseLoop:
			continue
		case path + CauseHold:
			if !l.isOff(ModeHold, now) {
				return false
			}
			continue
		}
		if !l.limits(now) || l.limitCause != part {
			return false
		}
	}
	return true
}

// Effects lists what restricts a handler, in order of precedence.
func (c *Controls) Effects(s *planner.Step, now time.Time) []string {
	var out []string
	for _, l := range c.above(s) {
		switch {
		case l.isOff(ModeHold, now), l.isOff(ModeSkip, now) && (l.Force || !s.Handler.IsCritical()):
			out = append(out, l.off)
		case l.isOff(ModeSkip, now):
			out = append(out, l.off+" (not in force: the handler is critical)")
		case l.isKept(now) && s.Fallback() != nil:
			out = append(out, l.off)
		}
	}
	if percent, ok := c.Share(s); ok && percent < 100 {
		out = append(out, fmt.Sprintf("rolled out to %g %%", percent))
	}
	for _, l := range c.above(s) {
		if l.limits(now) {
			out = append(out, "limited to "+strings.TrimPrefix(l.over, "over the limit of "))
		}
	}
	if r := s.Handler.RateLimit; r != nil {
		out = append(out, "limited to "+r.Text()+" by its definition")
	}
	if most, by := c.Deadline(s, now); most > 0 {
		out = append(out, "deadline of "+most.String()+", by "+by)
	}
	if n := s.Handler.MaxInFlight; n > 0 {
		out = append(out, fmt.Sprintf("limited to %d calls at once by its definition", n))
	}
	return out
}

// State returns the state of a handler's switch: on, off or hold.
func (c *Controls) State(s *planner.Step, now time.Time) string {
	switch {
	case c.Skips(s, now) != nil:
		return "off"
	case c.Holds(s, now) != nil:
		return "hold"
	}
	return "on"
}

// Limit returns the lowest rate limit of a handler, or empty.
func (c *Controls) Limit(s *planner.Step, now time.Time) string {
	var rates []datum.Rate
	own := s.Handler.RateLimit
	if own != nil && own.Per == nil {
		rates = append(rates, own.Rate)
	}
	for _, l := range c.above(s) {
		if l.limits(now) {
			rates = append(rates, l.rate)
		}
	}
	switch {
	case len(rates) == 0 && own != nil:
		return own.Rate.Text() + " each"
	case len(rates) == 0:
		return ""
	}
	return slices.MinFunc(rates, func(a, b datum.Rate) int { return cmp.Compare(a.PerSecond(), b.PerSecond()) }).Text()
}

// Overrides reports whether controls override an automatic fallback: they hold runs before the
// handler, or keep it in the flow.
func (c *Controls) Overrides(s *planner.Step, now time.Time) bool {
	return c.Holds(s, now) != nil || c.Keeps(s, now)
}
