package engine

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"procaas/dsl"
	"procaas/engine/core"
	"procaas/engine/model"
	"procaas/engine/planner"
)

// This file says how the services that handlers call are protected: what their
// gates go by, what the end of a call tells them, and what people see of it.

const (
	// longestOut is when a run asks again that waits in the store for its turn at a
	// gate. It is called as soon as there is room for it; this is for those that
	// nobody calls.
	longestOut = 5 * time.Minute

	// gateBeat is how soon the next beat comes that calls runs to gates.
	gateBeat = 100 * time.Millisecond

	// slowShare is the part of the time-out that a call may take without being slow,
	// however short it was before.
	slowShare = 10
)

// terms gives what bounds the calls of a handler: of its own, for 0, or of the
// service that it calls, for 1. ok is false when nothing does.
func (g *guard) terms(s *planner.Step, level int) (name string, terms gateTerms, ok bool) {
	nodes := int(max(1, g.nodes.Load()))
	if level == 0 {
		most := s.Handler.MaxInFlight
		return s.Path, gateTerms{most: part(most, nodes), repeats: 1, nodes: nodes}, most > 0
	}
	if s.Service == nil {
		return "", gateTerms{}, false
	}
	return s.Service.ID, serviceTerms(s.Service, nodes), true
}

func serviceTerms(s *dsl.Service, nodes int) gateTerms {
	return gateTerms{
		most: part(s.MaxInFlight, nodes), adapts: s.Concurrency != "fixed", repeats: s.RetryBudget,
		calm: s.Timeout / slowShare, nodes: nodes,
	}
}

// part is what a node has of a bound for all nodes; 0 for none.
func part(most, nodes int) int {
	if most == 0 {
		return 0
	}
	return max(1, most/nodes)
}

// patience is how long a handler waits at a gate that protects a service before
// its run goes on without it: no longer than its attempts would take. A handler
// that is critical waits for as long as it takes, and so does one that would try
// for ever.
func patience(s *planner.Step, level int) time.Duration {
	if level == 0 || s.Handler.IsCritical() || s.Retry.Attempts == 0 {
		return 0
	}
	timeout := cmp.Or(s.Handler.Timeout, s.Service.Timeout, time.Second)
	return min(max(time.Duration(min(s.Retry.Attempts, 60))*timeout, time.Second), time.Minute)
}

// endOf tells what the end of a call says about its service.
func endOf(s *planner.Step, err error, took time.Duration) callEnd {
	end := callEnd{verdict: callGood, kind: s.Path}
	if err != nil {
		end.err = err.Error()
	}
	var status *model.StatusError
	switch {
	case err == nil:
		end.took = took
	case errors.As(err, &status):
		if status.Status >= 500 || status.Status == http.StatusTooManyRequests ||
			status.Status == http.StatusRequestTimeout || status.Status == http.StatusTooEarly {
			end.verdict = callBad
		}
		if status.Status == http.StatusServiceUnavailable || status.Status == http.StatusTooManyRequests {
			end.pause, _ = model.RetryDelay(err)
		}
	case errors.Is(err, context.Canceled), model.IsPermanent(err):
		end.verdict = callMute
	default:
		end.verdict = callBad
	}
	return end
}

// A run that waits in the store for its turn at a gate has a cause: this, the
// gate's name, and the path of the handler.
const gateMark = "@"

func gateCause(name, path string) string { return gateMark + name + " " + path }

// gateOf tells for which gate a part of a cause is, and for which handler.
func gateOf(part string) (name, path string, ok bool) {
	rest, ok := strings.CutPrefix(part, gateMark)
	name, path, _ = strings.Cut(rest, " ")
	return name, path, ok
}

// A caller decides how many runs are woken that wait in the store.
type caller struct {
	e        *Engine
	controls *controls
	now      time.Time
	rivals   map[string]int // causes for a gate

	// busy tells that runs wait for a gate that lets calls through, so that there
	// will be room for more of them soon.
	busy bool

	ends time.Time // when the first control ends for which runs wait; zero for none
}

// caller prepares to wake runs that wait for these causes.
func (e *Engine) caller(causes []string) *caller {
	c := &caller{e: e, controls: e.settings.controls(), now: e.clock.now(), rivals: map[string]int{}}
	for _, cause := range causes {
		for part := range strings.SplitSeq(cause, ",") {
			if name, _, ok := gateOf(part); ok {
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
		if hash, ok := strings.CutPrefix(part, causeUnserved); ok {
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
		name, path, ok := gateOf(part)
		switch {
		case ok && !c.waits(name, path):
			return c.bears(path, ""), true
		case ok:
			room, moves := c.e.guard.gate(name).appetite(c.now)
			if c.busy = c.busy || moves; room > 0 {
				most = max(most, min(room/c.rivals[name], c.bears(path, name)), 1)
			}
		case !c.controls.stands(part, c.now):
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
	l := c.controls.byPath[path]
	if l == nil {
		return
	}
	end := l.LimitUntil
	if part == path+causeHold {
		end = l.Until
	}
	if end != nil && (c.ends.IsZero() || end.Before(c.ends)) {
		c.ends = *end
	}
}

// isBusy tells whether a cause names a gate that lets calls through.
func (c *caller) isBusy(cause string) bool {
	for part := range strings.SplitSeq(cause, ",") {
		if name, path, ok := gateOf(part); ok && c.waits(name, path) {
			if _, moves := c.e.guard.gate(name).appetite(c.now); moves {
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
	plan := c.e.library.current.Load().byID[pipelineOf(path)]
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
	if _, off := c.controls.off(s, c.now); off {
		return true
	}
	_, off := c.e.degrader.outages().off(s, c.now)
	return off && !c.controls.overrides(s, c.now)
}

// A ServiceInfo is a service with what this node has seen of it.
type ServiceInfo struct {
	ID       string `json:"id"`
	URL      string `json:"url"`
	Owner    string `json:"owner"`
	Adaptive bool   `json:"adaptive"`
	Limit    *int   `json:"limit"` // calls at once on this node; null for no bound
	InFlight int    `json:"in_flight"`
	Waiting  int    `json:"waiting"` // runs of this node that stand in line

	// Down tells that hardly any call succeeds, so that one at a time finds out when
	// the service is back.
	Down bool `json:"down"`

	// FailingSince is since when hardly any call has succeeded, or the service has wanted
	// none; nil while it answers.
	FailingSince *time.Time `json:"failing_since"`
	LastError    string     `json:"last_error,omitempty"` // of a call of this node; it stays when others succeed

	Critical    bool       `json:"critical"`     // a handler calls it without which runs cannot succeed
	Parked      int        `json:"parked"`       // runs of all nodes that are parked until it can be called
	ParkedSince *time.Time `json:"parked_since"` // since when the first of them is; null without one

	// ClosedUntil is when calls go on that the service wants none of.
	ClosedUntil *time.Time `json:"closed_until"`

	Calls   int `json:"calls"`   // started in the last ten seconds
	Repeats int `json:"repeats"` // of those

	// SuccessRatio is of the calls that ended in the last ten seconds; null without one.
	SuccessRatio *float64 `json:"success_ratio"`
}

// Services lists the services of the present definition, in order.
func (e *Engine) Services() []ServiceInfo {
	out := []ServiceInfo{}
	now, nodes := e.clock.now(), int(max(1, e.guard.nodes.Load()))
	d, waits := e.library.current.Load(), e.backlog.Load()
	for _, s := range d.bundle.Services {
		info := ServiceInfo{ID: s.ID, URL: s.Address(), Owner: s.Owner}
		e.guard.gate(s.ID).fill(&info, serviceTerms(s, nodes), now)
		parked := waits.parkedFor(s.ID)
		if info.Parked, info.Critical = parked.Runs, d.needed[s.ID]; info.Parked > 0 {
			info.ParkedSince = moment(parked.Since)
		}
		if info.Parked == 0 && e.guard.gate(s.ID).isQuiet(now) {
			info.FailingSince = nil // nobody knows: another node may have found out that it is back
		}
		out = append(out, info)
	}
	return out
}

// fill completes a view.
func (g *gate) fill(info *ServiceInfo, terms gateTerms, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.terms != terms {
		g.heed(terms)
	}
	if limit := g.limit(); limit > 0 {
		info.Limit = &limit
	}
	info.Adaptive = g.adaptive != nil
	info.InFlight, info.Waiting = g.used, len(g.line)
	info.Down = g.adaptive != nil && g.adaptive.Down()
	if g.closed.After(now) {
		info.ClosedUntil = model.TimeOrNil(g.closed.UTC().Truncate(time.Millisecond))
	}
	info.Calls, info.Repeats = g.calls.sum(now)
	if good, bad := g.calls.outcomes(now); good+bad > 0 {
		ratio := float64(good) / float64(good+bad)
		info.SuccessRatio = &ratio
	}
	info.LastError = g.lastError
	if since := g.failing(now); !since.IsZero() {
		info.FailingSince = moment(since)
	}
}

// failing tells since when hardly any call succeeds, or the service wants none; zero when it
// answers.
func (g *gate) failing(now time.Time) time.Time {
	good, bad := g.calls.outcomes(now)
	fails := bad >= gradientCalls && float64(good) < cutBelow*float64(good+bad)
	if g.adaptive != nil {
		fails = g.adaptive.Failing()
	}
	switch fails = fails || g.closed.After(now); {
	case !fails:
		g.failingFrom = time.Time{}
	case g.failingFrom.IsZero():
		if g.failingFrom = g.badFrom; g.badFrom.IsZero() {
			g.failingFrom = now
		}
	}
	return g.failingFrom
}

// isQuiet tells whether nobody has found out for long how the service is, and nobody waits
// here who would.
func (g *gate) isQuiet(now time.Time) bool {
	const long = time.Minute
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.line) == 0 && now.Sub(g.lastEnd) > long
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
