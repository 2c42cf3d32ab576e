package model

import (
	"strings"
	"time"
)

// A Change is one step forward of a run.
type Change struct {
	Run      string
	Version  int64  // that the change builds on
	Status   Status // Running keeps the run with its node; any other takes it out of its hands
	Bundle   string // empty for a run that has not begun after all
	Pipeline string

	// Alone says that the run has no place in the order of a key, as [store.Claimed].Ordered
	// has told: no other run waits for its end. A store need not know.
	Alone bool

	// Progress says that the run has got further than where it was: the nodes that died
	// before are no matter any more, and [store.Claimed].Losses begins at 0 again.
	Progress bool

	// Trial says that the node is about to try a run that is [Suspected]. Its death
	// counts against such a run only then. Only of a Running run.
	Trial bool

	// Checkpoint replaces the one before, in any case. It is kept for people
	// when the run has ended.
	Checkpoint []byte

	// Due is when a parked run goes on. Zero leaves it parked, and the later
	// events of its key waiting, until an operator retries or cancels it.
	Due time.Time

	// Cause names what a parked run waits for besides its time, such as a control
	// that holds it, so that [store.Runs].Release finds it. Empty for nothing.
	Cause string

	// Moved says that what an operator wants of the run, in [store.Claimed].Move or
	// [store.Beat].Moves, has been done or given up. Only of a Waiting run.
	Moved bool

	// Undoing says that the run does what an [UndoOrder] says, or never will.
	Undoing bool

	// Awaits lists types of events that a parked run waits for besides its time: it
	// is ready as soon as one of them is pending in its key behind the position
	// Heard, however it came there.
	Awaits []string
	Heard  int64

	// Take names pending runs of the same key whose events the run has taken. They
	// end, as Succeeded with a reason. When one of them is not pending any more, the
	// change is [store.ErrStale].
	Take []Taken

	// Calls names runs that a parked run waits for: it is ready at once when one of
	// them is over, failed ones included. Later, the end of such a run names this one
	// as Wakes, which makes it ready when it is parked. That is a hint, which may be
	// lost: a run that waits for others has a due time, too.
	Calls []string
	Wakes string

	// Defer sets a Waiting run aside until the state of its entity changes, so
	// that the later events of the key may go first. Then it is again the
	// first in the queue of its key, by acceptance.
	Defer bool

	// FailedPath, Error and ErrorClass say why a run failed; Reason why it was
	// ignored. A run that an operator cancelled keeps the operator's reason.
	// The class is one of [ClassOf].
	FailedPath string
	Error      string
	ErrorClass string
	Reason     string

	// Emit lists events to accept in the same transaction, after the change
	// itself. One whose id was accepted before is left out. Own and From are
	// not heeded.
	Emit []Intake

	// LeftOut are the handlers that a run which has succeeded went on without.
	LeftOut []LeftOut

	// State and Shared are written to the entity when Status is Succeeded:
	// the automaton's new state (unchanged when empty) and the names of the
	// flow's shared state that the run wrote, as a JSON object to merge.
	State  string
	Shared []byte
}

// A Taken is a pending run whose event another run has taken.
type Taken struct {
	Run    string
	Reason string
}

// undoOrder stands before the reason in the [store.Move] that asks for a run to be undone.
const undoOrder = "undo "

// UndoOrder is what a store keeps in the place of a definition when an operator wants
// that a run undoes what it has done, and ends.
func UndoOrder(reason string) string { return undoOrder + reason }

// UndoReason reads an [UndoOrder]; false for the hash of a definition.
func UndoReason(order string) (reason string, ok bool) { return strings.CutPrefix(order, undoOrder) }

// Next returns what is kept of an order of an operator after a change that takes the run
// from its node, and whether the run must be ready then because the order is an
// [UndoOrder] that the node has not seen.
func (c *Change) Next(order string) (kept string, ready bool) {
	_, undo := UndoReason(order)
	switch {
	case undo && c.Undoing, !undo && c.Moved:
		return "", false
	}
	return order, undo
}

// A Status says where a run is.
type Status string

// The statuses. The last four are ends, though a failed run may be retried.
const (
	Waiting   Status = "waiting" // for its turn, its time or a node
	Running   Status = "running" // a node owns it
	Parked    Status = "parked"  // in a handler, for a time or until an operator decides
	Succeeded Status = "succeeded"
	Failed    Status = "failed"
	Cancelled Status = "cancelled"
	Ignored   Status = "ignored" // no pipeline or transition for it
)

// Ended reports whether the run will not go on by itself.
func (s Status) Ended() bool {
	return s == Succeeded || s == Failed || s == Cancelled || s == Ignored
}

// A Pending is an event that waits for its turn in its key, and might be taken by the
// run that is under way.
type Pending struct {
	Run      string // that the event would begin; it ends without a handler when the event is taken
	Position int64  // in the order of acceptance
	Event    Event
}

// An Intake is an event on its way in, with what routing found out.
type Intake struct {
	ID       string // of the run, unique
	Event    Event  // complete: id and time are set
	Hash     string // of what the sender sent; tells a repetition from a reuse of the id
	Flow     string // the flow's id, or the pipeline's when it has no flow
	Key      string // the entity
	Ordered  bool   // false: the event stands for itself, no order, no entity row
	Block    bool   // a failed run blocks the later events of the key
	Pipeline string // the pipeline expected to serve it; may change before it starts
	Dedup    bool   // the sender chose the event's id, so that it may come again
	Own      bool   // the node that accepts it has room: give the run to it at once if it is ready
	Bundle   string // that a run given to a node at once begins with, as in Claim

	// Turn is how much later than it is due the run stands in the queue, so that others have their share. It may be
	// negative.
	Turn time.Duration

	// From lists the states in which the automaton accepts the event, the empty
	// one for an entity that no event has reached; nil accepts it in any.
	From []string
}

// Patience is how long after its due time the run stands in the queue.
func (in *Intake) Patience() time.Duration { return in.Event.DelayTolerance + in.Turn }
