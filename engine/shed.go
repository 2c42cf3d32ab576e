package engine

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
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

// Why events are not taken in.
const (
	shedOverload = "overload"    // the store is too slow for them
	shedLeft     = "client_left" // nobody waits for the answer any more
)

// An OverloadError refuses events that would have to wait for too long. None of
// them is stored.
type OverloadError struct {
	Wait  time.Duration // what the events would have waited, about
	After time.Duration // when to send them again
}

// Error implements error.
func (e *OverloadError) Error() string {
	return fmt.Sprintf("events come faster than the store writes: these would wait for %s", e.Wait.Round(time.Millisecond))
}

// Overload tells why no event can be taken in at present; nil when one can. It
// counts one as refused: it is asked before events are read.
func (e *Engine) Overload() *OverloadError {
	over := e.overload(1)
	if over != nil {
		e.shed(1, shedOverload)
	}
	return over
}

// overload tells why so many events cannot be taken in at present; nil when they
// can.
func (e *Engine) overload(events int) *OverloadError {
	o := e.accepts.outlook(min(events, maxBatch))
	patience := patientIntake * o.usual
	if o.next || o.wait <= max(longestIntake, patience) && o.stuck <= max(longestStall, patience) {
		return nil
	}
	wait := max(o.wait, o.stuck)
	// Not all at the same time.
	after := time.Duration(float64(wait) * (1 + rand.Float64()))
	return &OverloadError{Wait: wait, After: min(max(after, time.Second), longestRetryAfter)}
}

// shed counts events that are not taken in.
func (e *Engine) shed(events int, why string) {
	e.metrics.Shed.WithLabelValues(why).Add(float64(events))
	if why == shedOverload {
		e.shedLast.Store(time.Now().UnixNano())
	}
}

// sheds tells whether the node has refused events lately.
func (e *Engine) sheds() error {
	const lately = 10 * time.Second
	at := e.shedLast.Load()
	if at == 0 || time.Since(time.Unix(0, at)) > lately {
		return nil
	}
	return errors.New("events come faster than the store writes, so that some are refused")
}
