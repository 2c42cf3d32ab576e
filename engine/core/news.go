package core

import (
	"procaas/engine/checkpoint"
	"procaas/engine/model"
)

// A news has the changes of a run since it was last saved, and notices about them. The run and the
// runs inside its calls share it.
type news struct {
	dirty   bool // something has changed since the last Change
	must    bool // and the change must survive a crash
	further bool // a handler or an element was decided, or a call ended, since the last Change

	emits []model.Event
	taken []model.Taken // since the last Change
	ended []checkpoint.HandlerView
}

// touch notes a change that must survive a crash.
func (n *news) touch() { n.dirty, n.must = true, true }

// Dirty reports whether anything has changed since the last Change.
func (n *news) Dirty() bool { return n.dirty }

// MustSave reports whether the change since the last Change must be durable BEFORE the tasks from
// Ready start. It is false if nothing has changed, or if attempts started and nothing else
// happened: after a crash the run starts them again with the same keys. It is true if such an
// attempt has an on-unknown or a compensation, because the run must know of an attempt to verify or
// undo it. It is also true if live settings or the time helped to start an attempt, because it
// might not start again.
func (n *news) MustSave() bool { return n.must }

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
}
