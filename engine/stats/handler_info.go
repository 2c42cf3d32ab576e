package stats

import (
	"time"

	"procaas/engine/fallback"
)

// A HandlerInfo is a handler as this node sees it.
type HandlerInfo struct {
	Path         string     `json:"path"`
	Type         string     `json:"type"`
	Owner        string     `json:"owner" doc:"The owner of the handler, or else of its pipeline."`
	Critical     bool       `json:"critical"`
	Calls        int64      `json:"calls" doc:"Attempts that ended in the last minute, on this node."`
	CallsPerS    float64    `json:"calls_per_second" doc:"The rate of these attempts."`
	SuccessRatio *float64   `json:"success_ratio" doc:"The share of calls that succeeded in the last minute; null without calls."`
	RecentCalls  int64      `json:"recent_calls" doc:"Attempts that ended in the last ten seconds, on this node."`
	RecentRatio  *float64   `json:"recent_ratio" doc:"The share of recent_calls that succeeded; null without calls."`
	LatencyP50   *float64   `json:"latency_p50_ms"`
	LatencyP99   *float64   `json:"latency_p99_ms"`
	Windows      []Window   `json:"windows" doc:"The attempts of the last 10 seconds, minute, 10 minutes and hour, on this node."`
	InFlight     int64      `json:"in_flight" doc:"Calls in flight on this node."`
	Waiting      int64      `json:"waiting" doc:"Runs in the memory of this node that wait for a limit or a switch before they call the handler."`
	LeftOut      int64      `json:"left_out" doc:"Runs of this node that left the handler out in the last 10 seconds, because its service was not available for too long."`
	Parked       int        `json:"parked" doc:"Runs of all nodes that are parked before the handler, at the last count."`
	LastSuccess  *time.Time `json:"last_success" doc:"When an attempt last succeeded on this node; null for never."`
	LastFailure  *time.Time `json:"last_failure" doc:"When an attempt last failed on this node; null for never."`
	LastError    string     `json:"last_error,omitempty"`
	Switch       string     `json:"switch" doc:"on, off or hold: the effect of the controls of the handler, its stage and its pipeline."`
	RateLimit    string     `json:"rate_limit,omitempty" doc:"The lowest rate that applies."`
	Effective    []string   `json:"effective" doc:"The restrictions of the handler, the strongest first, each with its author, end and reason."`
	File         string     `json:"file"`
	Line         int        `json:"line"`

	Fallback *fallback.View `json:"fallback,omitempty" doc:"The state of the fallback; absent without one."`
}

// TakeWindows sets the figures. There is a window for each of [Periods].
func (h *HandlerInfo) TakeWindows(windows []Window) {
	if len(windows) < len(periods) {
		return // an older node has none
	}
	h.Windows = windows
	recent, minute := windows[0], windows[1]
	h.RecentCalls, h.RecentRatio = recent.Ended, recent.SuccessRatio
	h.Calls, h.CallsPerS, h.SuccessRatio = minute.Ended, minute.PerS, minute.SuccessRatio
	h.LatencyP50, h.LatencyP99 = minute.LatencyP50, minute.LatencyP99
}

// recentCalls is how many calls the last ten seconds need, to be used on their own, and allFailed how many if all have
// failed: a service that is down gets only a call now and then.
const (
	recentCalls = 5
	allFailed   = 2
)

// Ratio returns the current success ratio: that of the last minute, or of the last ten seconds if
// it is worse, because a minute shows an outage late. Nil without calls.
func (h *HandlerInfo) Ratio() *float64 {
	return worse(h.RecentCalls, h.RecentRatio, h.SuccessRatio)
}

// Fails reports whether the handler is failing.
func (h *HandlerInfo) Fails() bool { return isFailing(h.Ratio()) }

// worse returns the ratio of the last ten seconds if it is worse than that of the last minute and of enough calls.
func worse(calls int64, recent, minute *float64) *float64 {
	enough := calls >= recentCalls || calls >= allFailed && recent != nil && *recent == 0
	if recent != nil && enough && (minute == nil || *recent < *minute) {
		return recent
	}
	return minute
}

// isFailing reports whether so few succeed that people call it failing.
func isFailing(ratio *float64) bool { return ratio != nil && *ratio < 0.9 }
