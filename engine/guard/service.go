package guard

import (
	"time"

	"procaas/engine/model"
)

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

// The states of a service.
const (
	ServiceUp      = "up"
	ServiceDown    = "down"    // one call at a time finds out when it is back
	ServicePaused  = "paused"  // until the time that it named in Retry-After
	ServiceFailing = "failing" // most calls fail
)

// State is how the service stands, in a word for people.
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

// Fill completes a view.
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

// failing returns since when hardly any call succeeds, or the service wants none; zero when it
// answers.
func (g *gate) failing(now time.Time) time.Time {
	good, bad := g.calls.Outcomes(now)
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

// IsQuiet reports whether nobody has found out for long how the service is, and nobody waits
// here who would.
func (g *gate) IsQuiet(now time.Time) bool {
	const long = time.Minute
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.line) == 0 && now.Sub(g.lastEnd) > long
}
