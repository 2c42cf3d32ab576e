package core

import (
	"time"

	"procaas/engine/checkpoint"
	"procaas/engine/model"
)

// A news has the changes of a run since it was last saved, and notices about them. The run and the
// runs inside its calls share it.
type news struct {
	dirty   bool // something has changed since the last Change
	must    bool // and the change must survive a crash
	costly  bool // outcomes of elements have changed: forgetting one in a crash repeats its call
	further bool // a handler or an element was decided, or a call ended, since the last Change

	emits []model.Event
	taken []model.Taken // since the last Change
	ended []checkpoint.HandlerView
}

// touch notes a change that must survive a crash.
func (n *news) touch() { n.dirty, n.must = true, true }

// touchItem notes the outcome of an attempt of a unit. Elements do not depend on each other. So the outcome of one may
// be saved with those of others, unless a second call could differ from the first one, or has to be verified.
func (n *news) touchItem(u unit) {
	if u.item == 0 || u.Callee != nil || u.Volatile || u.keepsAttempts() {
		n.touch()
	}
	n.dirty, n.costly = true, true
}

// decideItem notes that an item is decided.
func (n *news) decideItem(u unit) {
	u.rec.due, u.rec.started = time.Time{}, time.Time{}
	u.rec.body, u.rec.bodySize, u.rec.ready = nil, 0, false
	n.further = true
	n.touchItem(u)
}

// Dirty reports whether anything has changed since the last Change.
func (n *news) Dirty() bool { return n.dirty }

// MustSave reports whether the change since the last Change must be durable BEFORE the tasks from
// Ready start. It is false if nothing has changed, or if attempts started and nothing else
// happened: after a crash the run starts them again with the same keys. It is true if such an
// attempt has an on-unknown or a compensation, because the run must know of an attempt to verify or
// undo it. It is also true if live settings or the time helped to start an attempt, because it
// might not start again.
func (n *news) MustSave() bool { return n.must }

// Costs reports whether a crash now would repeat calls of elements that have ended since the last Change. Saving each
// outcome at once would write the outcomes of all elements as often as there are elements.
func (n *news) Costs() bool { return n.costly }

// TakeEmits returns the events to accept with the next change, once. Their ids are derived from the
// run and the handler's path, so a repeated notice is recognized.
func (n *news) TakeEmits() []model.Event {
	out := n.emits
	n.emits = nil
	return out
}

// TakeEnded returns the handlers that were decided since the last call, in order, for logs and
// metrics.
func (n *news) TakeEnded() []checkpoint.HandlerView {
	out := n.ended
	n.ended = nil
	return out
}

// emit adds the events of a handler to the next change.
func (n *news) emit(rec *record, events []model.Event) {
	for _, e := range events {
		rec.emitted = append(rec.emitted, e.ID)
	}
	n.emits = append(n.emits, events...)
	n.must = n.must || len(events) > 0
}
