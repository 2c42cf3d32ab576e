package core

import (
	"encoding/json"
	"iter"
	"strings"
	"time"

	"procaas/engine/checkpoint"
	"procaas/engine/model"
)

// A record is what became of one handler.
type record struct {
	outcome  string // empty while undecided
	attempts int    // that were started
	failures int    // attempts that ended with an error
	unknown  bool   // how the last attempt ended must be asked of the service
	asked    int    // verifications that ended with an error

	started  time.Time // of the first attempt
	finished time.Time
	due      time.Time     // of the next attempt, or of the end of a wait
	delay    time.Duration // before the last repetition
	clock    time.Time     // since when the deadline counts, by the clock of deadlines
	held     time.Time     // since when the guard holds it who shall not do so forever

	err      string
	class    string // of err; of an item that has failed
	reason   string
	response any
	raw      json.RawMessage // of response
	status   int
	emitted  []string                   // ids
	saw      map[string]json.RawMessage // what its conditions read of the shared state and others change later
	was      map[string]json.RawMessage // of the shared state, before the handler changed it
	wide     []string                   // what it changed of the shared state, too, and was too large to be kept
	tries    []checkpoint.Try           // its last attempts, when one has failed

	heard int64 // position of the last event that an await has looked at

	each *iteration // what became of the items of a for-each; nil before they are known

	borrowed bool    // another run has done it, and this one does not undo it
	done     int     // its place among the handlers that have succeeded and can be undone, from 1
	undo     *record // of its compensation; nil before that begins

	sub   *Run                // inside of the pipeline that it calls; nil before, and when it is decided
	trail []checkpoint.Record // what became of the handlers in there, for people, when it is

	// The following is of this process only.
	underway bool
	asking   bool      // what is under way is a verification
	blind    bool      // nothing says how the attempt before the last one ended
	hold     time.Time // ask the guard again
	cause    string    // what it holds for, besides the time
	body     any       // evaluated, the same for all attempts
	ready    bool      // body is set
}

// unknownReason tells people what to do about a handler with OutcomeUnknown.
const unknownReason = "attempt %d was under way when its node died, and nobody knows how it ended: " +
	"find out, then retry the run to make the call again with the same Idempotency-Key, or cancel it"

// goneOn begins the reason of a handler that has succeeded by a rule.
const goneOn = "on-error goes on after "

// wentOn reports whether the handler has succeeded by a rule.
func (r *record) wentOn() bool { return strings.HasPrefix(r.reason, goneOn) }

// inFlight reports whether nothing says how the last attempt ended.
func (r *record) inFlight() bool {
	return r.outcome == "" && (r.unknown || r.attempts > 0 && r.due.IsZero())
}

// decided reports whether the handler is over and done with.
func (r *record) decided() bool {
	return r.outcome == model.OutcomeSucceeded || r.outcome == model.OutcomeFailed || r.outcome == model.OutcomeSkipped
}

// repeats reports whether the handler waits for the time of its next attempt.
func (r *record) repeats() bool {
	return r.outcome == "" && r.attempts > 0 && !r.due.IsZero() && !r.underway
}

// reached reports whether anything has become of the handler.
func (r *record) reached() bool {
	return r.outcome != "" || r.attempts > 0 || r.reason != "" || r.each != nil
}

// next returns when there is something to do without the end of a task; zero for never.
func (r *record) next() time.Time {
	switch {
	case r.decided(), r.underway:
		return time.Time{}
	case r.hold.After(r.due):
		return r.hold
	}
	return r.due
}

// calls returns the runs inside of the calls that a record keeps, of the handler itself or
// of its items: those that go on, and those that do when an operator retries the run.
func (r *record) calls() iter.Seq[*Run] {
	return func(yield func(*Run) bool) {
		if r.sub != nil && !yield(r.sub) || r.each == nil {
			return
		}
		for i := range r.each.of {
			if sub := r.each.of[i].sub; sub != nil && !yield(sub) {
				return
			}
		}
	}
}
