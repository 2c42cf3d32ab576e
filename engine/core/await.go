package core

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"procaas/engine/model"
	"procaas/engine/planner"
)

// This file lets handlers wait for events of the run's key.

// An Await describes the events that handlers of a run wait for now.
type Await struct {
	Types []string // types of the events, each once
	Heard int64    // all waiting handlers have looked at pending events up to this position
}

// A timeoutError ends a wait for an event.
type timeoutError struct{ text string }

// Error implements error.
func (e *timeoutError) Error() string { return e.text }

// Timeout sets the class of the error to timeout.
func (*timeoutError) Timeout() bool { return true }

// await starts the wait for an event.
func (r *Run) await(s *planner.Step, live Live) {
	rec := &r.records[s.Position]
	a := s.Handler.Await
	rec.started = model.Stamp(live.Now)
	rec.outcome = model.OutcomeWaiting
	rec.due = after(live.Now, a.Timeout)
	rec.reason = "awaits " + strings.Join(a.Event, " or ")
	r.touch()
}

// expire ends a wait because no event came in time.
func (r *Run) expire(s *planner.Step, live Live) {
	rec := &r.records[s.Position]
	a := s.Handler.Await
	err := model.Permanent(&timeoutError{fmt.Sprintf("no event %s within %s", strings.Join(a.Event, " or "), a.Timeout)})
	rec.outcome, rec.err = "", model.CleanText(err.Error())
	r.settle(s, err, live)
}

// Awaits returns the events that the run waits for. ok is false if it waits for none. Look for
// events before every call of Ready. When a deadline of the run has come, look BEFORE Ready, so
// that an event that came in time counts.
func (r *Run) Awaits() (a Await, ok bool) {
	a.Heard = math.MaxInt64
	ok = r.listen(&a)
	return a, ok
}

// listen adds the types that handlers wait for, also inside calls.
func (r *Run) listen(a *Await) (listens bool) {
	stage := r.current()
	if r.status.Ended() || r.givesUp() || stage == nil {
		return false
	}
	for _, s := range stage.Steps {
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

// Offer passes pending events to the run, ordered by position. The first handler that waits for an
// event takes it and is decided. Offer reports whether any event was taken.
func (r *Run) Offer(pending []model.Pending, live Live) (taken bool) {
	for _, p := range pending {
		if slices.ContainsFunc(r.whole.taken, func(t model.Taken) bool { return t.Run == p.Run }) {
			continue // not saved yet
		}
		taken = r.offer(p, live) || taken
	}
	return taken
}

// offer passes one event to the run and to the runs inside its calls.
func (r *Run) offer(p model.Pending, live Live) (taken bool) {
	stage := r.current()
	if r.status.Ended() || r.givesUp() || stage == nil {
		return false
	}
	for _, s := range stage.Steps {
		rec := &r.records[s.Position]
		switch {
		case s.Handler.Await != nil && rec.outcome == model.OutcomeWaiting:
			taken = r.offerTo(s, p, live)
		case s.Callee != nil && !rec.decided():
			r.visit(s, func(u unit) { taken = taken || r.offerIn(u, p, live) })
		}
		if taken { // by one handler only, even if others wait for the same type
			r.settled = false
			r.advance(live)
			return true
		}
	}
	return false
}

// offerTo passes an event to a waiting handler. The handler looks at each event once: an event that
// it passed over is not offered again, even after a crash. Events of other types also advance its
// position. This is safe because events come in order, so no event of its own type is before them.
// The caller moves on only when all handlers have seen these events.
func (r *Run) offerTo(s *planner.Step, p model.Pending, live Live) (taken bool) {
	rec := &r.records[s.Position]
	if rec.heard >= p.Position {
		return false
	}
	rec.heard = p.Position
	r.whole.dirty = true
	a := s.Handler.Await
	if p.Kept && !a.Buffered || !slices.Contains(a.Event, p.Event.Type) || !r.fits(s, p.Event, live) {
		return false
	}
	r.receive(s, p, live)
	return true
}

// offerIn passes an event to the run inside a call, which may end the call.
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

// fits reports whether a handler waits for an event.
func (r *Run) fits(s *planner.Step, e model.Event, live Live) bool {
	where := s.Handler.Await.Where
	if where.IsNull() {
		return true
	}
	env := r.scope.env(live)
	env["awaited"] = model.EventData(e)
	v, err := where.Share(env)
	if err != nil {
		r.records[s.Position].reason = model.CleanText(fmt.Sprintf("event %s is passed over: %v", e.ID, err))
		return false
	}
	fits, _ := v.(bool)
	return fits
}

// receive decides a handler with the event that it waited for.
func (r *Run) receive(s *planner.Step, p model.Pending, live Live) {
	rec := &r.records[s.Position]
	data := model.EventData(p.Event)
	raw, err := r.encode(r.unit(s), data, false)
	if err != nil {
		r.giveUp(s, err, live)
		return
	}
	rec.response, rec.raw = data, raw
	r.whole.recording.Event(live.Now.Sub(r.whole.extent.began), p.Event)
	r.whole.taken = append(r.whole.taken, model.Taken{Run: p.Run, Reason: fmt.Sprintf("taken by run %s at %s", r.start.ID, s.Path)})
	r.succeed(s, live)
}
