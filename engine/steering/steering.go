package steering

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"procaas/engine/clock"
	"procaas/engine/credentials"
	"procaas/engine/definitions"
	"procaas/engine/fallback"
	"procaas/engine/guard"
	"procaas/engine/model"
	"procaas/engine/planner"
	"procaas/engine/settings"
	"procaas/engine/stats"
	"procaas/engine/store"
)

// A Steering steers the paths of the current definition on one node. The caller sets its exported
// fields.
type Steering struct {
	Store    store.Store
	Library  *definitions.Library
	Settings *settings.Settings
	Degrader *fallback.Live
	Guard    *guard.Guard
	Stats    *stats.Stats
	Metrics  *stats.Metrics
	Clock    *clock.Clock
	Log      *slog.Logger
	Notify   func(model.Notice) // receives notices of fallbacks; may be nil

	Inbox    Submitter                    // accepts the events of triggers
	Ends     Ender                        // cancels the runs of triggers
	Behind   func() []stats.BehindRuns    // as in [stats.BacklogView]
	Overused func() []credentials.Refused // as in [stats.BacklogView]

	Retention time.Duration // for which ended runs are kept; 0 for ever

	backlog atomic.Pointer[stats.Backlog] // nil before the first count
	saving  sync.Mutex                    // held while the node adds to the store what paths have used; guards spent
	spent   time.Duration                 // processor time that was counted already
}

// Handlers lists the handlers of the current definition, in order.
func (st *Steering) Handlers() []stats.HandlerInfo {
	out := []stats.HandlerInfo{}
	now := time.Now()
	for _, p := range st.Library.Present().Plans {
		for _, s := range p.Written {
			out = append(out, st.info(s, now))
		}
	}
	return out
}

// Active lists the handlers of the current definition that were called in the last minute, or that something keeps out
// of the flow. It looks only at pipelines that have such a handler, or a fallback, so it costs little however many there are.
func (st *Steering) Active() []stats.HandlerInfo {
	out := []stats.HandlerInfo{}
	now, at := time.Now(), st.Clock.Now()
	c, o, active := st.Settings.Controls(), st.Degrader.Outages(), st.Stats.Active(now)
	looked := map[string]bool{}
	for path := range active {
		looked[model.PipelineOf(path)] = true
	}
	if c != nil {
		for path := range c.ByPath {
			looked[model.PipelineOf(path)] = true
		}
	}
	d := st.Library.Present()
	for _, p := range d.Plans {
		if id := p.Pipeline.ID; !looked[id] && !d.Degrades[id] {
			continue
		}
		for _, s := range p.Written {
			if active[s.Path] || c.State(s, at) != "on" || s.Fallback() != nil && o.View(s, at).State != fallback.In {
				out = append(out, st.info(s, now))
			}
		}
	}
	return out
}

// Numbers returns what this node has counted.
func (st *Steering) Numbers() stats.Numbers { return st.Stats.Numbers() }

// Durations lists how long the runs and stages of the current definition took on this node.
func (st *Steering) Durations() []stats.DurationView {
	return st.Stats.Durations(st.Library.Present(), st.Clock.Now())
}

// Targets lists the targets of the current definition with what is left of their budgets.
func (st *Steering) Targets() []stats.Target {
	return st.Stats.Targets(st.Library.Present(), st.Clock.Now())
}

// Late lists the targets that this node has missed in the last ten minutes.
func (st *Steering) Late() []stats.LateRuns {
	return st.Stats.Late(st.Library.Present(), st.Clock.Now())
}

// Pipelines lists the pipelines of the current definition, in order.
func (st *Steering) Pipelines() []stats.PipelineInfo {
	now := time.Now()
	out := []stats.PipelineInfo{}
	for _, p := range st.Library.Present().Plans {
		info := stats.PipelineInfo{Pipeline: p.Pipeline.ID, Owner: p.Pipeline.Owner}
		st.Stats.FillPipeline(&info, now)
		out = append(out, info)
	}
	return out
}

// SlowRuns lists the slowest runs that ended on this node since a time, of a pipeline or of all.
func (st *Steering) SlowRuns(pipeline string, since time.Time) []stats.SlowRun {
	return st.Stats.SlowRuns(pipeline, since)
}

// Handler returns one handler of the current definition. The second result is false if there is
// none at this path.
func (st *Steering) Handler(path string) (stats.HandlerInfo, bool) {
	for _, p := range st.Library.Present().Plans {
		if s := p.Step(path); s != nil {
			return st.info(s, time.Now()), true
		}
	}
	return stats.HandlerInfo{}, false
}

// Effects returns what restricts a handler of the current definition.
func (st *Steering) Effects(path string) (effects []string, known bool) {
	info, ok := st.Handler(path)
	return info.Effective, ok
}

// Off reports whether a handler is off now, and why. Operators' controls come first: a held handler
// waits.
func (st *Steering) Off(s *planner.Step, c *guard.Controls, now time.Time) (reason string, off bool) {
	reason, off = c.Off(s, now)
	if off {
		return reason, true
	}
	reason, off = st.Degrader.Outages().Off(s, now)
	if !off || c.Overrides(s, now) {
		return "", false
	}
	return reason, true
}

// OffAt is [Steering.Off] for a path of the current definition, now. An unknown path is not off.
func (st *Steering) OffAt(path string) (reason string, off bool) {
	if p := st.Library.Present().ByID[model.PipelineOf(path)]; p != nil && p.Step(path) != nil {
		return st.Off(p.Step(path), st.Settings.Controls(), st.Clock.Now())
	}
	return "", false
}

// HeldAt reports whether operators hold a trigger, or what an add-on declares at a path, and why.
func (st *Steering) HeldAt(path string) (reason string, held bool) {
	return st.Settings.Controls().HoldsAt(path, st.Clock.Now())
}

func (st *Steering) info(s *planner.Step, now time.Time) stats.HandlerInfo {
	c, o, at := st.Settings.Controls(), st.Degrader.Outages(), st.Clock.Now()
	h := s.Handler
	info := stats.HandlerInfo{
		Path: s.Path, Type: h.Type, Owner: s.Owner, Critical: h.IsCritical(),
		Switch: c.State(s, at), RateLimit: c.Limit(s, at), Effective: append([]string{}, o.Effects(s, c.State(s, at), c.Effects(s, at), at)...),
		Fallback: o.View(s, at),
		File:     h.Span.File, Line: h.Span.Start.Line,
	}
	if s.Callee != nil && !s.Loops {
		info.Type = "call"
	}
	if s.Service != nil {
		info.Effective = append(info.Effective, st.Guard.Gate(s.Service.ID).Effects(at)...)
	}
	info.Parked = st.backlog.Load().ParkedAt(s.Path)
	st.Stats.Path(s.Path).Fill(&info, now)
	return info
}

// Services lists the services of the current definition, in order.
func (st *Steering) Services() []guard.ServiceInfo {
	out := []guard.ServiceInfo{}
	now, nodes := st.Clock.Now(), int(max(1, st.Guard.Nodes.Load()))
	d, waits := st.Library.Present(), st.backlog.Load()
	for _, s := range d.Bundle.Peers() {
		info := guard.ServiceInfo{ID: s.ID, URL: s.Address(), Owner: s.Owner}
		st.Guard.Gate(s.ID).Fill(&info, guard.ServiceTerms(s, nodes), now)
		if own, file := st.Library.Certificates.Own(s); own != nil {
			info.Certificate = guard.NewServiceCertificate(file, own.NotBefore, own.NotAfter)
		}
		parked := waits.ParkedFor(s.ID)
		info.Parked, info.Critical = parked.Runs, d.Needed[s.ID]
		if info.Parked > 0 {
			info.ParkedSince = model.Moment(parked.Since)
		}
		if info.Parked == 0 && st.Guard.Gate(s.ID).IsQuiet(now) {
			info.FailingSince = nil // unknown: another node may have found that it is back
		}
		out = append(out, info)
	}
	return out
}
