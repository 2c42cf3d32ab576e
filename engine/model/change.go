package model

import (
	"strings"
	"time"
)

// A Change is one step of a run.
type Change struct {
	Run      string
	Version  int64  // the version that the change is based on
	Status   Status // Running keeps the run with its node; any other status releases it
	Bundle   string // empty if the run has not begun after all
	Pipeline string

	// Flow and Key are those of the run. A store that seals data binds it to them.
	Flow, Key string

	// Alone says that the run has no place in the order of a key, see [store.Claimed].Ordered: no
	// other run waits for its end. A store may ignore it.
	Alone bool

	// Progress says that the run has advanced. Nodes that died before no longer count against it,
	// and [store.Claimed].Losses starts at 0 again.
	Progress bool

	// Trial says that the node is about to try a run that is [Suspected]. Only then does the node's
	// death count against the run. Only for a Running run.
	Trial bool

	// Checkpoint always replaces the one before. When the run has ended, it is kept for people.
	Checkpoint []byte

	// Due is when a parked run continues. With zero it stays parked, and the later events of its
	// key wait, until an operator retries or cancels it. A Waiting run of the class [ClassKept] is
	// kept until then: the later events of its key go on.
	Due time.Time

	// Cause names what a parked run waits for other than its time, such as a control that holds it.
	// [store.Runs].Release finds the run by it. Empty means nothing.
	Cause string

	// Moved says that the operator's order in [store.Claimed].Move or [store.Beat].Moves was
	// carried out or dropped. Only for a Waiting run.
	Moved bool

	// Undoing says that the run carries out an [UndoOrder], or never will.
	Undoing bool

	// Awaits lists types of events that a parked run waits for, other than its time. The run is
	// ready as soon as such an event is pending in its key after the position Heard.
	Awaits []string
	Heard  int64

	// Take lists pending runs of the same key whose events the run has taken. They end as
	// Succeeded, with a reason. If one of them is no longer pending, the error is [store.ErrStale].
	Take []Taken

	// Calls lists runs that a parked run waits for. It is ready at once if one of them has ended or
	// failed. Otherwise their end names this run in Wakes, which makes it ready if it is parked.
	// That is a hint and may be lost, so a run that waits for others also has a due time.
	Calls []string
	Wakes string

	// Defer sets a Waiting run aside until the state of its entity changes, so that the later
	// events of the key may run first. Then it returns to its place in the queue of its key.
	Defer bool

	// FailedPath, Error and ErrorClass say why a run failed. Reason says why it was ignored. A run
	// that an operator cancelled keeps the operator's reason. The class is one of [ClassOf].
	FailedPath string
	Error      string
	ErrorClass string
	Reason     string

	// Emit lists events to accept in the same transaction, after the change itself. Events whose
	// ids were accepted before are left out. Own and From are ignored.
	Emit []Intake

	// LeftOut are the handlers that a succeeded run left out.
	LeftOut []LeftOut

	// State and Shared are written to the entity when Status is Succeeded. State is the new state
	// of the automaton, or empty to keep it. Shared is a JSON object to merge: the names of the
	// flow's shared state that the run wrote.
	State  string
	Shared []byte
}

// IsPlainEnd reports whether a run has succeeded and leaves nothing behind: no event, no change of its key, and nobody who waits for it.
// So nothing has to be read to write it.
func (c *Change) IsPlainEnd() bool {
	touchesOthers := len(c.Emit) > 0 || len(c.Take) > 0 || c.Wakes != ""
	changesKey := c.State != "" || len(c.Shared) > 0
	says := c.FailedPath != "" || c.Error != "" || c.ErrorClass != "" || c.Reason != ""
	return c.Status == Succeeded && !touchesOthers && !changesKey && !says
}

// A Taken is a pending run whose event another run has taken.
type Taken struct {
	Run    string
	Reason string
}

// undoOrder is the prefix of a [store.Move] that asks to undo a run. The reason follows.
const undoOrder = "undo "

// UndoOrder returns the order to undo and end a run. A store keeps it instead of a definition.
func UndoOrder(reason string) string { return undoOrder + reason }

// UndoReason returns the reason of an [UndoOrder]. ok is false for the hash of a definition.
func UndoReason(order string) (reason string, ok bool) { return strings.CutPrefix(order, undoOrder) }

// Next returns what remains of an operator's order after a change that releases the run. ready
// reports whether the run must be ready then, because the order is an [UndoOrder] that the node has
// not seen.
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

// These are the statuses. The last four are final, but a failed run may be retried.
const (
	Waiting   Status = "waiting" // for its turn, its time or a node
	Running   Status = "running" // a node owns it
	Parked    Status = "parked"  // inside a handler, for a time or until an operator decides
	Succeeded Status = "succeeded"
	Failed    Status = "failed"
	Cancelled Status = "cancelled"
	Ignored   Status = "ignored" // no pipeline or transition for it
)

// Ended reports whether the run continues only if an operator retries it.
func (s Status) Ended() bool {
	return s == Succeeded || s == Failed || s == Cancelled || s == Ignored
}

// A Pending is an event that waits for its turn in its key. The run in flight may take it.
type Pending struct {
	Run      string // the run that the event would begin; it ends without a handler if the event is taken
	Position int64  // in the order of acceptance
	Event    Event
	Kept     bool // it was kept: only an await that is buffered may take it
}

// An Intake is an event to accept, with its route.
type Intake struct {
	ID       string // of the new run, unique
	Event    Event  // complete: id and time are set
	Hash     string // of what the sender sent; distinguishes a repeated event from a reused id
	Flow     string // the flow's id, or the pipeline's when it has no flow
	Key      string // the entity
	Ordered  bool   // false: the event has no order and no entity row
	Block    bool   // a failed run blocks the later events of the key
	Pipeline string // expected to serve it; may change before the run begins
	Dedup    bool   // the sender chose the event's id, so it may come again
	Own      bool   // the accepting node has room: it gets the run at once if the run is ready
	Bundle   string // the definition of a run that a node gets at once, as in Claim

	// Keep says that the event would be kept at once if no run of its key is in flight. It is
	// refused then if the key has no room for it.
	Keep bool

	// Turn is how much later than its due time the run stands in the queue, so that other runs get
	// their share. It may be negative.
	Turn time.Duration

	// From lists the states in which the automaton accepts the event. The empty state is that of an
	// entity that no event has reached. Nil accepts the event in any state.
	From []string

	// End is how the run ends, if the accepting node has decided that before: see [Ending]. Nil if it has not. Only with Own.
	End *Ending
}

// An Ending is the end of a run that makes no call and has no place in the order of a key. Its node decides it before the event is
// stored, so the run needs no room, and the store keeps it as ended at once. A run whose event is not stored has never been.
type Ending struct {
	Change           // a plain end, of version 0: see [Change.IsPlainEnd]
	Began  time.Time // by the store's clock, as the node knows it
}

// EndsWith reports whether the run is stored with its End, if it may begin at once with this definition. A run that would begin with
// another one, which the store has learned of since, is the node's to work on.
func (in *Intake) EndsWith(bundle string) bool {
	return in.End != nil && !in.Ordered && in.End.Bundle == bundle
}

// Patience is how long after its due time the run's place in the queue is.
func (in *Intake) Patience() time.Duration { return in.Event.DelayTolerance + in.Turn }
