package guard

import (
	"time"

	"procaas/engine/model"
)

// A ServiceInfo is a service as this node sees it.
type ServiceInfo struct {
	ID       string `json:"id"`
	URL      string `json:"url"`
	Owner    string `json:"owner"`
	Adaptive bool   `json:"adaptive"`
	Limit    *int   `json:"limit"` // calls at once on this node; null for no limit
	InFlight int    `json:"in_flight"`
	Waiting  int    `json:"waiting"` // runs of this node in the queue

	// Down reports that hardly any call succeeds, so that single calls probe whether the service is
	// back.
	Down bool `json:"down"`

	// FailingSince is since when hardly any call has succeeded, or the service has accepted none.
	// Nil while it answers.
	FailingSince *time.Time `json:"failing_since"`
	LastError    string     `json:"last_error,omitempty"` // of a call of this node; later successes keep it

	Critical    bool       `json:"critical"`     // a critical handler calls it
	Parked      int        `json:"parked"`       // runs of all nodes that are parked until it can be called
	ParkedSince *time.Time `json:"parked_since"` // since when the first of them is; null if none is

	// ClosedUntil is until when the service accepts no calls.
	ClosedUntil *time.Time `json:"closed_until"`

	Calls   int `json:"calls"`   // started in the last ten seconds
	Repeats int `json:"repeats"` // retries among them

	// SuccessRatio is the share of successes among the calls that ended in the last ten seconds.
	// Null if none ended.
	SuccessRatio *float64 `json:"success_ratio"`
}

// These are the states of a service.
const (
	ServiceUp      = "up"
	ServiceDown    = "down"    // single calls probe whether it is back
	ServicePaused  = "paused"  // until the time that it named in Retry-After
	ServiceFailing = "failing" // most calls fail
)

// State returns the state of the service in one word.
func (s *ServiceInfo) State() string {
	switch {
	case s.Down:
		return ServiceDown
	case s.ClosedUntil != nil:
		return ServicePaused
	case s.FailingSince != nil:
		return ServiceFailing
	}
	return ServiceUp
}

// Fill adds the gate's data to a view.
func (g *gate) Fill(info *ServiceInfo, terms Terms, now time.Time) {
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
	if good, bad := g.calls.Outcomes(now); good+bad > 0 {
		ratio := float64(good) / float64(good+bad)
		info.SuccessRatio = &ratio
	}
	info.LastError = g.lastError
	if since := g.failing(now); !since.IsZero() {
		info.FailingSince = model.Moment(since)
	}
}

// failing returns since when hardly any call succeeds or the service accepts none. It is zero while
// the service answers.
func (g *gate) failing(now time.Time) time.Time {
	good, bad := g.calls.Outcomes(now)
	fails := bad >= gradientCalls && float64(good) < cutBelow*float64(good+bad)
	if g.adaptive != nil {
		fails = g.adaptive.Failing()
	}
	fails = fails || g.closed.After(now)
	switch {
	case !fails:
		g.failingFrom = time.Time{}
	case g.failingFrom.IsZero():
		g.failingFrom = g.badFrom
		if g.badFrom.IsZero() {
			g.failingFrom = now
		}
	}
	return g.failingFrom
}

// IsQuiet reports whether the state of the service has not been tested for long, and no call waits
// here that would test it.
func (g *gate) IsQuiet(now time.Time) bool {
	const long = time.Minute
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.line) == 0 && now.Sub(g.lastEnd) > long
}
