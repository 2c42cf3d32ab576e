package core

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"procaas/engine/model"
	"procaas/engine/planner"
)

// This file lets handlers wait for events of the key.

// An Await is what handlers of a run wait for at present.
type Await struct {
	Types []string // of events, each once
	Heard int64    // the position up to which all of them have seen what was pending
}

// A timeoutError is the end of a wait for an event.
type timeoutError struct{ text string }

// Error implements error.
func (e *timeoutError) Error() string { return e.text }

// Timeout makes it an error of the class timeout.
func (*timeoutError) Timeout() bool { return true }

// await begins to wait for an event.
func (r *decisions) await(s *planner.Step, live Live) {
	rec := &r.records[s.Position]
	a := s.Handler.Await
	rec.started = model.Stamp(live.Now)
	rec.outcome = model.OutcomeWaiting
	rec.due = after(live.Now, a.Timeout)
	rec.reason = "awaits " + strings.Join(a.Event, " or ")
	r.touch()
}

// expire ends a wait for which no event has come in time.
func (r *decisions) expire(s *planner.Step, live Live) {
	rec := &r.records[s.Position]
	a := s.Handler.Await
	err := model.Permanent(&timeoutError{fmt.Sprintf("no event %s within %s", strings.Join(a.Event, " or "), a.Timeout)})
	rec.outcome, rec.err = "", model.CleanText(err.Error())
	r.settle(s, err, live)
}

// Awaits returns what events the run waits for; ok is false when it waits for none. The
// caller looks for them whenever it asks Ready, and BEFORE that when the time of the
// run has come, so that an event counts that has come in time.
func (r *progress) Awaits() (a Await, ok bool) {
	a.Heard = math.MaxInt64
	ok = r.listen(&a)
	return a, ok
}

// listen adds what handlers wait for, with those inside of calls.
func (r *progress) listen(a *Await) (listens bool) {
	if r.status.Ended() || r.givesUp() || r.stage == len(r.plan.Stages) {
		return false
	}
	for _, s := range r.plan.Stages[r.stage].Steps {
		rec := &r.records[s.Position]
		if s.Handler.Await != nil && rec.outcome == model.OutcomeWaiting {
			listens = true
			a.Heard = min(a.Heard, rec.heard)
			for _, t := range s.Handler.Await.Event {
				if !slices.Contains(a.Types, t) {
					a.Types = append(a.Types, t)
				}
			}
		}
		if s.Callee == nil || rec.decided() {
			continue
		}
		for sub := range rec.calls() {
			listens = sub.listen(a) || listens
		}
	}
	return listens
}

// Offer hands pending events in, by position. The first handler takes each that it
// waits for, and is decided by that. It reports whether any was taken.
func (r *Run) Offer(pending []model.Pending, live Live) (taken bool) {
	for _, p := range pending {
		if slices.ContainsFunc(r.taken, func(t model.Taken) bool { return t.Run == p.Run }) {
			continue // not saved yet
		}
		taken = r.offer(p, live) || taken
	}
	return taken
}

// offer hands in one event, also to what goes on inside of calls.
func (r *Run) offer(p model.Pending, live Live) (taken bool) {
	if r.status.Ended() || r.givesUp() || r.stage == len(r.plan.Stages) {
		return false
	}
	for _, s := range r.plan.Stages[r.stage].Steps {
		rec := &r.records[s.Position]
		switch {
		case s.Handler.Await != nil && rec.outcome == model.OutcomeWaiting:
			taken = r.offerTo(s, p, live)
		case s.Callee != nil && !rec.decided():
			r.visit(s, func(u unit) { taken = taken || r.offerIn(u, p, live) })
		}
		if taken {
			r.settled = false
			r.advance(live)
			return true
		}
	}
	return false
}

// offerTo hands an event to a handler that waits. It is looked at once: one that is passed
// over is not offered again, not even after a crash. Those of other types count as heard,
// too: since all come in their order, there is none of its own before them, and the caller
// gets on to the next ones only when all handlers have heard these.
func (r *decisions) offerTo(s *planner.Step, p model.Pending, live Live) (taken bool) {
	rec := &r.records[s.Position]
	if rec.heard >= p.Position {
		return false
	}
	rec.heard = p.Position
	r.dirty = true
	if !slices.Contains(s.Handler.Await.Event, p.Event.Type) || !r.fits(s, p.Event, live) {
		return false
	}
	r.receive(s, p, live)
	return true
}

// offerIn hands an event to what goes on inside of a call, which may end by that.
func (r *Run) offerIn(u unit, p model.Pending, live Live) (taken bool) {
	sub := u.rec.sub
	if sub == nil || u.rec.decided() {
		return false
	}
	taken = sub.offer(p, live)
	if sub.status.Ended() {
		r.leaveCall(u, live)
	}
	if u.item > 0 {
		r.finishItems(u.Step, live)
	}
	return taken
}

// fits reports whether an event is one that a handler waits for.
func (r *progress) fits(s *planner.Step, e model.Event, live Live) bool {
	where := s.Handler.Await.Where
	if where.IsNull() {
		return true
	}
	env := r.scope.env(live)
	env["awaited"] = model.EventData(e)
	v, err := where.Eval(env)
	if err != nil {
		r.records[s.Position].reason = model.CleanText(fmt.Sprintf("event %s is passed over: %v", e.ID, err))
		return false
	}
	fits, _ := v.(bool)
	return fits
}

// receive decides a handler with the event that it has waited for.
func (r *decisions) receive(s *planner.Step, p model.Pending, live Live) {
	rec := &r.records[s.Position]
	data := model.EventData(p.Event)
	raw, err := r.encode(s, data, false)
	if err != nil {
		r.giveUp(s, err, live)
		return
	}
	rec.response, rec.raw = data, raw
	r.recording.Event(live.Now.Sub(r.extent.began), p.Event)
	r.taken = append(r.taken, model.Taken{Run: p.Run, Reason: fmt.Sprintf("taken by run %s at %s", r.start.ID, s.Path)})
	r.succeed(s, live)
}
