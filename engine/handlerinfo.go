package engine

import (
	"time"

	"procaas/engine/planner"
	"procaas/engine/stats"
)

// Handlers lists the handlers of the present definition, in order.
func (e *Engine) Handlers() []stats.HandlerInfo {
	out := []stats.HandlerInfo{}
	now := time.Now()
	for _, p := range e.library.Present().Plans {
		for _, s := range p.Written {
			out = append(out, e.info(s, now))
		}
	}
	return out
}

// Handler tells about one handler of the present definition; false when it has
// none at this path.
func (e *Engine) Handler(path string) (stats.HandlerInfo, bool) {
	for _, p := range e.library.Present().Plans {
		if s := p.Step(path); s != nil {
			return e.info(s, time.Now()), true
		}
	}
	return stats.HandlerInfo{}, false
}

// effects tells what keeps a handler of the present definition from running freely.
func (e *Engine) effects(path string) (effects []string, known bool) {
	info, ok := e.Handler(path)
	return info.Effective, ok
}

func (e *Engine) info(s *planner.Step, now time.Time) stats.HandlerInfo {
	c, o, at := e.settings.Controls(), e.degrader.Outages(), e.clock.Now()
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
		info.Effective = append(info.Effective, e.guard.Gate(s.Service.ID).Effects(at)...)
	}
	info.Parked = e.backlog.Load().ParkedAt(s.Path)
	e.stats.Path(s.Path).Fill(&info, now)
	return info
}
