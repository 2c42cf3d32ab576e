package core

import (
	"procaas/engine/checkpoint"
	"procaas/engine/model"
)

// A news has the changes of a run since it was last saved, and the notices about them. The
// runs inside of its calls share it.
type news struct {
	dirty   bool // something has changed since the last Change
	must    bool // and a crash may not forget it
	further bool // a handler or an element was decided, or a call ended, since the last Change

	emits []model.Event
	taken []model.Taken // since the last Change
	ended []checkpoint.HandlerView
}

// touch notes a change that a crash may not forget.
func (n *news) touch() { n.dirty, n.must = true, true }

// Dirty reports whether anything has changed since the last Change.
func (n *news) Dirty() bool { return n.dirty }

// MustSave reports whether the change since the last Change has to be durable
// BEFORE the tasks that Ready gave start. It is false when nothing has changed,
// and when all that is new is that attempts start: a run that forgets them in a
// crash starts them again, with the same keys, as it would have done had it
// known of them. It is true when the handler of one has an on-unknown, which is
// about attempts that the run knows of, or a compensation, since the run may have to undo
// what the attempt has done without starting it again, and when live settings or the time
// had a part in starting one, since it is not certain then that it starts again.
func (n *news) MustSave() bool { return n.must }

// TakeEmits returns the events to accept with the next change, once. Their ids
// are derived from the run and the handler's path, so a repetition is found.
func (n *news) TakeEmits() []model.Event {
	out := n.emits
	n.emits = nil
	return out
}

// TakeEnded returns the handlers that were decided since the last call, in the
// order in which they were, for logs and metrics.
func (n *news) TakeEnded() []checkpoint.HandlerView {
	out := n.ended
	n.ended = nil
	return out
}

// emit hands out events of a handler with the next change.
func (n *news) emit(rec *record, events []model.Event) {
	for _, e := range events {
		rec.emitted = append(rec.emitted, e.ID)
	}
	n.emits = append(n.emits, events...)
}
