package guard

import (
	"fmt"
	"time"

	"procaas/engine/model"
)

// A ServiceInfo is a service as this node sees it.
type ServiceInfo struct {
	ID       string `json:"id"`
	URL      string `json:"url"`
	Owner    string `json:"owner"`
	Adaptive bool   `json:"adaptive" doc:"true if the node finds out by itself how many calls the service can handle."`
	Limit    *int   `json:"limit" doc:"The highest number of calls in flight on this node; null for no limit."`
	InFlight int    `json:"in_flight" doc:"Calls of this node in flight."`
	Waiting  int    `json:"waiting" doc:"Runs of this node that queue for a call. More may wait in the store."`

	Down bool `json:"down" doc:"true if hardly any call succeeds. One call at a time tries whether the service is back, and does not count as an attempt."`

	FailingSince *time.Time `json:"failing_since" doc:"Since when hardly any call of this node has succeeded, or the service is paused; null while it answers."`
	LastError    string     `json:"last_error,omitempty" doc:"The error of the last failed call of this node."`

	Critical    bool       `json:"critical" doc:"true if a critical handler calls it."`
	Parked      int        `json:"parked" doc:"Runs of all nodes that are parked until the service is available, at the last count."`
	ParkedSince *time.Time `json:"parked_since" doc:"Since when the first of them is parked; null without one."`

	ClosedUntil *time.Time `json:"closed_until" doc:"The service is paused until then, as its Retry-After asked for; null if it is not."`

	Calls   int `json:"calls" doc:"Calls of this node that started in the last 10 seconds."`
	Repeats int `json:"repeats" doc:"The number of retries among calls."`

	Certificate *ServiceCertificate `json:"certificate,omitempty" doc:"The certificate that this node shows to the service; absent without one."`

	SuccessRatio *float64 `json:"success_ratio" doc:"The share of successful calls of this node in the last 10 seconds; null without calls."`
}

// A ServiceCertificate is what a node shows to a service.
type ServiceCertificate struct {
	File    string    `json:"file" doc:"The file of tls.cert."`
	Until   time.Time `json:"until" doc:"When it ends."`
	RenewBy time.Time `json:"renew_by" doc:"When alerts about its end begin: 14 days before, or after four fifths of its time if that is shorter."`
}

// NewServiceCertificate describes a certificate that is valid between two times.
func NewServiceCertificate(file string, since, until time.Time) *ServiceCertificate {
	const soon = 14 * 24 * time.Hour
	return &ServiceCertificate{File: file, Until: until, RenewBy: until.Add(-min(soon, until.Sub(since)/5))}
}

// EndsSoon reports whether it is time for another one.
func (c *ServiceCertificate) EndsSoon(now time.Time) bool { return !now.Before(c.RenewBy) }

// Text says which file ends when.
func (c *ServiceCertificate) Text() string {
	return fmt.Sprintf("%s ends at %s", c.File, c.Until.UTC().Format(time.RFC3339))
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
