package engine

import (
	"strings"
	"time"

	"procaas/engine/core"
	"procaas/engine/guard"
	"procaas/engine/model"
	"procaas/engine/planner"
	"procaas/engine/stats"
)

// This file wakes runs that wait in the store for a service, and shows services.

// A caller decides how many runs are woken that wait in the store.
type caller struct {
	e        *Engine
	controls *guard.Controls
	now      time.Time
	rivals   map[string]int // causes for a gate

	// busy tells that runs wait for a gate that lets calls through, so that there
	// will be room for more of them soon.
	busy bool

	ends time.Time // when the first control ends for which runs wait; zero for none
}

// caller prepares to wake runs that wait for these causes.
func (e *Engine) caller(causes []string) *caller {
	c := &caller{e: e, controls: e.settings.Controls(), now: e.clock.Now(), rivals: map[string]int{}}
	for _, cause := range causes {
		for part := range strings.SplitSeq(cause, ",") {
			if name, _, ok := guard.GateOf(part); ok {
				c.rivals[name]++
			}
		}
	}
	return c
}

// wakes tells how many of the runs that wait for a cause may go on. What it names is lifted
// when it does not hold them back any more: then there may be many of them.
func (c *caller) wakes(cause string) (most int, lifted bool) {
	for part := range strings.SplitSeq(cause, ",") {
		if hash, ok := strings.CutPrefix(part, stats.CauseUnserved); ok {
			if hash != c.e.Bundle().Hash {
				return releaseMost, true
			}
			continue
		}
		if path, ok := strings.CutSuffix(part, core.CauseRetry); ok {
			if s := c.step(path); s != nil && c.isOff(s) {
				return c.bears(path, ""), true
			}
			continue
		}
		name, path, ok := guard.GateOf(part)
		switch {
		case ok && !c.waits(name, path):
			return c.bears(path, ""), true
		case ok:
			room, moves := c.e.guard.Gate(name).Appetite(c.now)
			if c.busy = c.busy || moves; room > 0 {
				most = max(most, min(room/c.rivals[name], c.bears(path, name)), 1)
			}
		case !c.controls.Stands(part, c.now):
			path, _, _ := strings.Cut(part, " ")
			return c.bears(path, ""), true
		default:
			c.expect(part)
		}
	}
	return most, false
}

// expect notes when a control ends that holds runs back: nobody else tells of that.
func (c *caller) expect(part string) {
	path, _, _ := strings.Cut(part, " ")
	l := c.controls.ByPath[path]
	if l == nil {
		return
	}
	end := l.LimitUntil
	if part == path+guard.CauseHold {
		end = l.Until
	}
	if end != nil && (c.ends.IsZero() || end.Before(c.ends)) {
		c.ends = *end
	}
}

// isBusy tells whether a cause names a gate that lets calls through.
func (c *caller) isBusy(cause string) bool {
	for part := range strings.SplitSeq(cause, ",") {
		if name, path, ok := guard.GateOf(part); ok && c.waits(name, path) {
			if _, moves := c.e.guard.Gate(name).Appetite(c.now); moves {
				return true
			}
		}
	}
	return false
}

// waits tells whether a handler has to wait at a gate at all. Runs whose handler is
// out of the flow by now need not.
func (c *caller) waits(name, path string) bool {
	s := c.step(path)
	if s == nil || c.isOff(s) {
		return false
	}
	return name == path && s.Handler.MaxInFlight > 0 || s.Service != nil && name == s.Service.ID
}

// step finds a handler of the present definition, or its compensation; nil when there
// is none.
func (c *caller) step(path string) *planner.Step {
	plan := c.e.library.Present().ByID[model.PipelineOf(path)]
	if plan == nil {
		return nil
	}
	if s := plan.Step(path); s != nil {
		return s
	}
	handler, undoes := strings.CutSuffix(path, model.UndoPath)
	if s := plan.Step(handler); undoes && s != nil {
		return s.Undo
	}
	return nil
}

// isOff tells whether a handler is left out at present. A compensation never is: what
// has been done has to be undone, whoever has switched the handler off since.
func (c *caller) isOff(s *planner.Step) bool {
	if s.Undoes {
		return false
	}
	if _, off := c.controls.Off(s, c.now); off {
		return true
	}
	_, off := c.e.degrader.Outages().Off(s, c.now)
	return off && !c.controls.Overrides(s, c.now)
}

// Services lists the services of the present definition, in order.
func (e *Engine) Services() []guard.ServiceInfo {
	out := []guard.ServiceInfo{}
	now, nodes := e.clock.Now(), int(max(1, e.guard.Nodes.Load()))
	d, waits := e.library.Present(), e.backlog.Load()
	for _, s := range d.Bundle.Services {
		info := guard.ServiceInfo{ID: s.ID, URL: s.Address(), Owner: s.Owner}
		e.guard.Gate(s.ID).Fill(&info, guard.ServiceTerms(s, nodes), now)
		parked := waits.ParkedFor(s.ID)
		if info.Parked, info.Critical = parked.Runs, d.Needed[s.ID]; info.Parked > 0 {
			info.ParkedSince = model.Moment(parked.Since)
		}
		if info.Parked == 0 && e.guard.Gate(s.ID).IsQuiet(now) {
			info.FailingSince = nil // nobody knows: another node may have found out that it is back
		}
		out = append(out, info)
	}
	return out
}

// watchServices logs when a service goes down or is back. Known are those that
// were down before.
func (e *Engine) watchServices(known map[string]bool) {
	for _, s := range e.Services() {
		switch {
		case s.Down && !known[s.ID]:
			e.log.Warn("service is down, one call at a time finds out when it is back", "service", s.ID, "waiting", s.Waiting)
		case !s.Down && known[s.ID]:
			e.log.Info("service is back", "service", s.ID, "waiting", s.Waiting)
		}
		known[s.ID] = s.Down
	}
}
