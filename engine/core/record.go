package core

import (
	"encoding/json"
	"iter"
	"strings"
	"time"

	"procaas/engine/checkpoint"
	"procaas/engine/model"
)

// A record is the state of one handler.
type record struct {
	outcome  string // empty while undecided
	attempts int    // attempts that were started
	failures int    // attempts that ended with an error
	asked    int    // verifications that ended with an error

	started  time.Time // start of the first attempt
	finished time.Time
	due      time.Time     // time of the next attempt, or of the end of a wait
	delay    time.Duration // before the last retry
	clock    time.Time     // start of the deadline's time, by the clock of deadlines
	own      time.Duration // its deadline, as the settings have it; 0 is that of the files; only this process knows it
	bound    Bound         // that operators have set, as the run saw it last; only this process knows it
	held     time.Time     // start of a hold by the guard that must not last forever

	err      string
	class    string // class of err, for a failed item
	reason   string
	response any
	raw      json.RawMessage // response as JSON
	status   int
	emitted  []string          // ids of the emitted events
	saw      checkpoint.Values // values of the shared state that its conditions read and others change later
	was      checkpoint.Values // values of the shared state before the handler changed them
	wide     []string          // names that it changed too, whose old values were too large to keep
	tries    []checkpoint.Try  // its last attempts, if one has failed

	heard  int64  // position of the last event that an await has looked at
	lookup string // what the handler gets when it is called again, see [model.Result].Again; empty if it has not asked for that

	each *iteration // items of a for-each; nil before they are known

	done int     // its rank among the handlers that have succeeded and can be undone, from 1
	undo *record // its compensation; nil before that begins

	sub   *Run                // the run inside its call; nil before the call, and once decided
	trail []checkpoint.Record // outcomes of the handlers inside its call, for people, once decided

	unknown  bool // only the service knows how the last attempt ended
	borrowed bool // done by another run, so this one does not undo it

	// The following fields exist only in this process.
	underway bool
	asking   bool      // the call in flight is a verification
	blind    bool      // the outcome of the attempt before the last one is unknown
	ready    bool      // body is set
	hold     time.Time // when to ask the guard again
	cause    string    // what it is held for, other than the time
	limited  string    // identifies the value of its limit by value; empty before it is known
	body     any       // evaluated; the same for all attempts
	bodySize int       // bytes that body takes, and its copies in requests

	text checkpoint.Part // where the last checkpoint of the run has it, once it is final
}

// unknownReason tells people what to do about a handler with OutcomeUnknown.
const unknownReason = "attempt %d was under way when its node died, and nobody knows how it ended: " +
	"find out, then retry the run to make the call again with the same Idempotency-Key, or cancel it"

// goneOn starts the reason of a handler that has succeeded by a rule of on-error.
const goneOn = "on-error goes on after "

// wentOn reports whether a rule of on-error has let the run go on without the result of the handler or item.
func (r *record) wentOn() bool { return strings.HasPrefix(r.reason, goneOn) }

// inFlight reports whether the last attempt has no outcome yet.
func (r *record) inFlight() bool {
	return r.outcome == "" && (r.unknown || r.attempts > 0 && r.due.IsZero())
}

// decided reports whether the handler has its final outcome.
func (r *record) decided() bool {
	return r.outcome == model.OutcomeSucceeded || r.outcome == model.OutcomeFailed || r.outcome == model.OutcomeSkipped
}

// repeats reports whether the handler waits for a retry.
func (r *record) repeats() bool {
	return r.outcome == "" && r.attempts > 0 && !r.due.IsZero() && !r.underway
}

// looks reports whether the handler waits to be called again for the same attempt.
func (r *record) looks() bool { return r.outcome == model.OutcomeWaiting && r.lookup != "" }

// reached reports whether the handler has begun or is decided.
func (r *record) reached() bool {
	return r.outcome != "" || r.attempts > 0 || r.reason != "" || r.each != nil
}

// next returns when the handler has something to do without the end of a task. Zero means never.
func (r *record) next() time.Time {
	switch {
	case r.decided(), r.underway:
		return time.Time{}
	case r.hold.After(r.due):
		return r.hold
	}
	return r.due
}

// calls returns the runs inside the calls of the handler or its items: those that continue, and
// those that continue when an operator retries the run.
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
