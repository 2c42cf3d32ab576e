package intake

import (
	"errors"
	"math/rand/v2"
	"time"

	"procaas/engine/stats"
	"procaas/engine/writes"
)

// This file says when the engine takes no more events in: what comes faster than
// the store writes would only wait, until whoever sent it has given up.

const (
	// longestIntake is how long an event may wait until it is durable, unless the
	// store is slow: then it is the time of patientIntake calls of it.
	longestIntake = 250 * time.Millisecond
	patientIntake = 4

	// longestStall is how long a call of the store may take before events are
	// refused that do not ride in the next one. A hiccup is no overload.
	longestStall = time.Second

	longestRetryAfter = 30 * time.Second
)

// Overload returns why no event can be taken in at present; nil when one can. It
// counts one as refused: it is asked before events are read.
func (a *Acceptor) Overload() *OverloadError {
	over := a.overload(1)
	if over != nil {
		a.shed(1, stats.ShedOverload)
	}
	return over
}

// overload returns why so many events cannot be taken in at present; nil when they
// can.
func (a *Acceptor) overload(events int) *OverloadError {
	o := a.accepts.Outlook(min(events, writes.MaxBatch))
	patience := patientIntake * o.Usual
	if o.Next || o.Wait <= max(longestIntake, patience) && o.Stuck <= max(longestStall, patience) {
		return nil
	}
	wait := max(o.Wait, o.Stuck)
	// Not all at the same time.
	after := time.Duration(float64(wait) * (1 + rand.Float64()))
	return &OverloadError{Wait: wait, After: min(max(after, time.Second), longestRetryAfter)}
}

// shed counts events that are not taken in.
func (a *Acceptor) shed(events int, why string) {
	a.Metrics.Shed.WithLabelValues(why).Add(float64(events))
	if why == stats.ShedOverload {
		a.shedLast.Store(time.Now().UnixNano())
	}
}

// Sheds reports whether the node has refused events lately.
func (a *Acceptor) Sheds() error {
	const lately = 10 * time.Second
	at := a.shedLast.Load()
	if at == 0 || time.Since(time.Unix(0, at)) > lately {
		return nil
	}
	return errors.New("events come faster than the store writes, so that some are refused")
}
