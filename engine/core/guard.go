package core

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"procaas/dsl/datum"
	"procaas/dsl/expr"
	"procaas/engine/model"
	"procaas/engine/planner"
)

// This file applies what the node decides about a call: the guard, and the memory of the node.

// Live has the values that may change during a run. The caller passes it at every step.
type Live struct {
	Now     time.Time      // by the store's clock, which also tells when a parked run is due
	Configs map[string]any // what expressions read as configs

	// Off reports whether a handler is switched off now, and why. nil switches none off. The run
	// calls it often and early, so it must be cheap and must not use up a limit. A handler that is
	// off is skipped at once, and other handlers do not wait for it, unless it has a fallback
	// result.
	Off func(*planner.Step) (reason string, off bool)

	// Share returns the percentage of runs that include a handler. ok is false, or Share is nil, if all runs include it.
	Share func(*planner.Step) (percent float64, ok bool)

	// Deadline returns the shortest deadline that operators have set for a handler. A zero Most, or
	// a nil Deadline, is none.
	Deadline func(*planner.Step) Bound

	// Guard decides whether a call may start now. nil allows all calls. The run asks Guard last, so
	// Guard may take a token of a limit. It asks again at each Ready, so Guard must remember its
	// grants. Guard skips a critical handler only if an operator has forced it.
	Guard func(Ask) Verdict

	// Memory decides whether the run may grow now, by the bytes that it keeps. nil always lets it
	// grow. Hold parks the run, so it leaves the memory of its node.
	Memory func(held int) Verdict
}

// An Ask asks the guard about a call.
type Ask struct {
	Step   *planner.Step
	Ref    string    // names the handler, or one item of its for-each, as [Attempt.Ref] does
	Due    time.Time // when a retry became due; zero for a first attempt
	Value  string    // identifies the value of a limit by value, without telling it; empty for a handler without one
	Waited bool      // the guard has made the call wait before, maybe on another node
	Lost   bool      // its last attempt was in flight when its node died
}

// A Bound is a deadline that operators have set.
type Bound struct {
	Most time.Duration // for all attempts of a handler together, as its own deadline
	Of   string        // where, by whom and why
}

// A Verdict of the guard. The zero Verdict lets the handler run.
type Verdict struct {
	Skip   bool      // leave the handler out
	Hold   time.Time // park the run and ask again at this time; zero: do not hold
	Cause  string    // what it waits for, in addition to the time; see [model.Change]
	People bool      // an operator holds or limits it; deadlines stand still meanwhile
	// Turn says that it only waits for its turn. Deadlines stand still meanwhile if an operator has
	// held the run before.
	Turn   bool
	Reason string // why, for people
	Beside bool   // with Skip: give the call all the same, as an [Attempt] beside the run

	// Patience is how long a handler that is not critical is held before it is left out. 0 is forever.
	Patience time.Duration
}

// off reports whether a handler is switched off, and why.
func (l Live) off(s *planner.Step) (string, bool) {
	if l.Off == nil {
		return "", false
	}
	return l.Off(s)
}

// admitted asks the guard and applies its verdict.
func (r *Run) admitted(u unit, live Live) bool {
	v, ok := r.verdict(u, live)
	return ok && r.applyVerdict(u, v, live)
}

// hasRoom reports whether there is memory for the run to grow. Otherwise the unit waits.
func (r *Run) hasRoom(u unit, live Live) bool {
	if live.Memory == nil {
		return true
	}
	v := live.Memory(r.whole.extent.held())
	if !v.Hold.IsZero() {
		r.whole.holds = r.whole.holds || v.People
		r.hold(u, v, live)
		return false
	}
	if rec := u.rec; rec.cause == CauseMemory {
		rec.reason, rec.hold, rec.cause = "", time.Time{}, ""
	}
	return true
}

// verdict returns the guard's verdict, or that the run waits for memory. Memory comes first: a run
// that waits for memory must not hold a token of a limit meanwhile. ok is false if the unit is decided instead.
func (r *Run) verdict(u unit, live Live) (v Verdict, ok bool) {
	if live.Memory != nil {
		if v := live.Memory(r.whole.extent.held()); !v.Hold.IsZero() {
			return v, true
		}
	}
	if live.Guard == nil {
		return Verdict{}, true
	}
	if l := u.Handler.RateLimit; l != nil && l.Per != nil && u.rec.limited == "" {
		var err error
		if u.rec.limited, err = limitValue(l.Per, r.scope.envOf(u, live)); err != nil {
			r.giveUpUnit(u, err, live)
			return Verdict{}, false
		}
	}
	v = live.Guard(Ask{Step: u.Step, Ref: r.within + u.ref(), Due: u.rec.due, Value: u.rec.limited, Waited: u.rec.reason != "", Lost: u.rec.inFlight()})
	if v.Turn && r.wasHeld() {
		// It stands in the queue that the operator's hold has made, so this wait is the operator's, too.
		v.People, v.Patience = true, 0
	}
	return v, true
}

// limitValue evaluates the value of a limit by value, and returns what identifies it. Stores, other nodes and logs see only
// that: the value may be personal.
func limitValue(per *expr.Value, env datum.Env) (string, error) {
	v, err := per.Share(env)
	if err != nil {
		return "", err
	}
	switch v.(type) {
	case nil, []any, map[string]any:
		return "", model.Permanent(fmt.Errorf("%s: rate-limit: per: want text, a number or a boolean, have %s; "+
			"for events without the value, name another one, as in per: !$ event.payload.customer ?? 'unknown'", per.Span, model.KindOf(v)))
	}
	raw, err := model.EncodeData(v)
	if err != nil {
		return "", fmt.Errorf("rate-limit: per: %w", err)
	}
	sum := sha256.Sum256(raw)
	return string(sum[:valueBytes]), nil
}

// valueBytes is how much of a digest tells values of a limit apart.
const valueBytes = 16

// applyVerdict applies the guard's verdict and reports whether the call may start.
func (r *Run) applyVerdict(u unit, v Verdict, live Live) bool {
	r.whole.holds = r.whole.holds || v.People
	switch {
	case v.Skip:
		r.leaveOut(u, v.Reason, live)
		return false
	case !v.Hold.IsZero():
		r.hold(u, v, live)
		return false
	}
	// The wait is over. What is left of it would wake the run, or count against its next wait.
	u.rec.reason = ""
	u.rec.hold = time.Time{}
	u.rec.cause = ""
	u.rec.held = time.Time{}
	return true
}

// hold keeps a call from starting, or skips it when it has waited too long.
func (r *Run) hold(u unit, v Verdict, live Live) {
	rec := u.rec
	switch {
	case v.Patience == 0 || u.Handler.IsCritical():
		rec.held = time.Time{}
	case rec.held.IsZero(): // saved, so that crashes do not prolong the hold
		rec.held = model.Stamp(live.Now)
	}
	if !rec.held.IsZero() {
		end := rec.held.Add(v.Patience)
		if !end.After(live.Now) {
			r.leaveOut(u, fmt.Sprintf("left out after %s: %s", v.Patience, v.Reason), live)
			return
		}
		if end.Before(v.Hold) {
			v.Hold = end
		}
	}
	r.whole.dirty = r.whole.dirty || v.Reason != rec.reason // dirty is enough: a crash may forget what only people read
	rec.reason, rec.hold, rec.cause = v.Reason, v.Hold, v.Cause
}

// leaveOut applies the guard's verdict that a handler is over its limits. If the handler iterates
// and has begun, only the item is skipped.
func (r *Run) leaveOut(u unit, reason string, live Live) {
	if u.item > 0 && u.of.each.reached() {
		r.itemFailed(u, errors.New(reason))
		return
	}
	r.skip(u.Step, reason, live)
	r.standIn(u.Step, live)
}
