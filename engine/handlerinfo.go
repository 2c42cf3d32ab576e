package engine

import (
	"time"

	"procaas/engine/fallback"
	"procaas/engine/planner"
)

// A HandlerInfo is a handler with what this node has seen of it.
type HandlerInfo struct {
	Path         string     `json:"path"`
	Type         string     `json:"type"`
	Owner        string     `json:"owner"` // its own, or else that of the pipeline
	Critical     bool       `json:"critical"`
	Calls        int64      `json:"calls"`            // ended attempts of the last minute
	CallsPerS    float64    `json:"calls_per_second"` // of the last minute
	SuccessRatio *float64   `json:"success_ratio"`    // of the last minute; null without calls
	RecentCalls  int64      `json:"recent_calls"`     // ended attempts of the last ten seconds
	RecentRatio  *float64   `json:"recent_ratio"`     // how many of them succeeded; null without one
	LatencyP50   *float64   `json:"latency_p50_ms"`
	LatencyP99   *float64   `json:"latency_p99_ms"`
	InFlight     int64      `json:"in_flight"` // calls under way
	Waiting      int64      `json:"waiting"`   // runs of this node that may not call it yet: a limit or a switch holds them
	LeftOut      int64      `json:"left_out"`  // runs of the last ten seconds that went on without it, since it had to wait for too long
	Parked       int        `json:"parked"`    // runs of all nodes that are parked before it, in no node's memory, as they were counted last
	LastSuccess  *time.Time `json:"last_success"`
	LastFailure  *time.Time `json:"last_failure"`
	LastError    string     `json:"last_error,omitempty"`
	Switch       string     `json:"switch"`               // on, off or hold
	RateLimit    string     `json:"rate_limit,omitempty"` // the lowest one that applies
	Effective    []string   `json:"effective"`            // what keeps it from running freely, in the order in which it counts
	File         string     `json:"file"`
	Line         int        `json:"line"`

	Fallback *fallback.View `json:"fallback,omitempty"` // nil without one
}

// recentCalls is how many calls the last ten seconds need to count for themselves.
const recentCalls = 5

// Ratio is how many calls succeed at present: of the last minute, or of the last ten seconds
// when that is worse, since a minute shows an outage late; nil without calls.
func (h *HandlerInfo) Ratio() *float64 {
	if h.RecentRatio != nil && h.RecentCalls >= recentCalls && (h.SuccessRatio == nil || *h.RecentRatio < *h.SuccessRatio) {
		return h.RecentRatio
	}
	return h.SuccessRatio
}

// Handlers lists the handlers of the present definition, in order.
func (e *Engine) Handlers() []HandlerInfo {
	out := []HandlerInfo{}
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
func (e *Engine) Handler(path string) (HandlerInfo, bool) {
	for _, p := range e.library.Present().Plans {
		if s := p.Step(path); s != nil {
			return e.info(s, time.Now()), true
		}
	}
	return HandlerInfo{}, false
}

// effects tells what keeps a handler of the present definition from running freely.
func (e *Engine) effects(path string) (effects []string, known bool) {
	info, ok := e.Handler(path)
	return info.Effective, ok
}

func (e *Engine) info(s *planner.Step, now time.Time) HandlerInfo {
	c, o, at := e.settings.Controls(), e.degrader.Outages(), e.clock.Now()
	h := s.Handler
	info := HandlerInfo{
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
	info.Parked = e.backlog.Load().parkedAt(s.Path)
	e.stats.path(s.Path).fill(&info, now)
	return info
}
