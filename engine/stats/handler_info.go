package stats

import (
	"time"

	"procaas/engine/fallback"
)

// A HandlerInfo is a handler as this node sees it.
type HandlerInfo struct {
	Path         string   `json:"path"`
	Type         string   `json:"type"`
	Owner        string   `json:"owner"` // its own, or that of the pipeline
	Critical     bool     `json:"critical"`
	Calls        int64    `json:"calls"`            // ended attempts of the last minute
	CallsPerS    float64  `json:"calls_per_second"` // of the last minute
	SuccessRatio *float64 `json:"success_ratio"`    // of the last minute; null without calls
	RecentCalls  int64    `json:"recent_calls"`     // ended attempts of the last ten seconds
	RecentRatio  *float64 `json:"recent_ratio"`     // success ratio of those; null without calls
	LatencyP50   *float64 `json:"latency_p50_ms"`
	LatencyP99   *float64 `json:"latency_p99_ms"`
	InFlight     int64    `json:"in_flight"` // calls in flight
	Waiting      int64    `json:"waiting"`   // runs of this node that a limit or a switch makes wait
	// runs of the last ten seconds that continued without it because it waited too long
	LeftOut     int64      `json:"left_out"`
	Parked      int        `json:"parked"` // runs of all nodes that are parked before it, as of the last count
	LastSuccess *time.Time `json:"last_success"`
	LastFailure *time.Time `json:"last_failure"`
	LastError   string     `json:"last_error,omitempty"`
	Switch      string     `json:"switch"`               // on, off or hold
	RateLimit   string     `json:"rate_limit,omitempty"` // the lowest one that applies
	Effective   []string   `json:"effective"`            // what restricts it, in order of precedence
	File        string     `json:"file"`
	Line        int        `json:"line"`

	Fallback *fallback.View `json:"fallback,omitempty"` // nil without one
}

// recentCalls is how many calls the last ten seconds need, to be used on their own.
const recentCalls = 5

// Ratio returns the current success ratio: that of the last minute, or of the last ten seconds if
// it is worse, because a minute shows an outage late. Nil without calls.
func (h *HandlerInfo) Ratio() *float64 {
	if h.RecentRatio != nil && h.RecentCalls >= recentCalls && (h.SuccessRatio == nil || *h.RecentRatio < *h.SuccessRatio) {
		return h.RecentRatio
	}
	return h.SuccessRatio
}
