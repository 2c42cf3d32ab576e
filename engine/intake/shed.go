package intake

import (
	"errors"
	"math/rand/v2"
	"time"

	"procaas/engine/stats"
	"procaas/engine/writes"
)

// This file sheds load: it refuses events when they come faster than the store writes. They would
// only wait until their sender has given up.

const (
	// longestIntake is how long an event may wait until it is durable. If the store is slow, it is
	// the time of patientIntake calls of the store instead.
	longestIntake = 250 * time.Millisecond
	patientIntake = 4

	// longestStall is how long a call of the store may take before events are refused that do not
	// fit into the next one. A short pause is not an overload.
	longestStall = time.Second

	longestRetryAfter = 30 * time.Second
)

// Overload returns why no event can be accepted now, or nil. It counts one event as refused,
// because callers ask before they read the events.
func (a *Acceptor) Overload() *OverloadError {
	over := a.overload(1)
	if over != nil {
		a.shed(1, stats.ShedOverload)
	}
	return over
}

// overload returns why this many events cannot be accepted now, or nil.
func (a *Acceptor) overload(events int) *OverloadError {
	o := a.accepts.Outlook(min(events, writes.MaxBatch))
	patience := patientIntake * o.Usual
	if o.Next || o.Wait <= max(longestIntake, patience) && o.Stuck <= max(longestStall, patience) {
		return nil
	}
	wait := max(o.Wait, o.Stuck)
	// Spread the retries of senders.
	after := time.Duration(float64(wait) * (1 + rand.Float64()))
	return &OverloadError{Wait: wait, After: min(max(after, time.Second), longestRetryAfter)}
}

// shed counts refused events.
func (a *Acceptor) shed(events int, why string) {
	a.Metrics.Shed.WithLabelValues(why).Add(float64(events))
	if why == stats.ShedOverload {
		a.shedLast.Store(time.Now().UnixNano())
	}
}

// Sheds returns an error if the node has refused events recently.
func (a *Acceptor) Sheds() error {
	const lately = 10 * time.Second
	at := a.shedLast.Load()
	if at == 0 || time.Since(time.Unix(0, at)) > lately {
		return nil
	}
	return errors.New("events come faster than the store writes, so that some are refused")
}
