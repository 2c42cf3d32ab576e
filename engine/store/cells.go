package store

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"time"

	"procaas/engine/model"
)

// This file has the ports for an inbox that is spread over several databases, its cells. A slot has
// a part of the keys. A cell has some slots, and a slot can move to another cell with all data of
// its keys. The add-on handlers/inbox combines the cells into one store.

// InboxSlots is the number of slots of an inbox. It never changes.
const InboxSlots = 4096

// InboxSlot returns the slot of a key, from 0. The databases have the same function.
func InboxSlot(key string) int {
	sum := sha256.Sum256([]byte(key))
	return int(binary.BigEndian.Uint16(sum[:])) % InboxSlots
}

// Callers of a store with cells test for these errors.
var (
	// ErrMoving reports that the key is moving to another cell, or is not in this cell. Nothing was
	// changed. A retry within seconds succeeds.
	ErrMoving = errors.New("the key is on its way to another cluster of the inbox")

	// ErrAway reports that the cell with the key or the run cannot be reached. The outcome of a
	// change is unknown.
	ErrAway = errors.New("the cluster of the inbox that has the key cannot be reached")
)

// A Cell is a store that can be one of several that share an inbox. Until it is enrolled, it has
// all slots and works like any other store. An enrolled cell reports [ErrMoving] for keys that it
// does not have: Accept in the result of the event, and Retry, Cancel, Undo and Move for runs of
// moving slots. Its Commit puts events for such keys into the outbox. It has all ports of a store
// except Scattered.
type Cell struct {
	Store

	Enrolment Enrolment
	Moves     SlotMoves
	Outbox    Outbox
	Marked    MarkedRuns
	Shared    SharedTasks // the other part of [Store.Tasks]
}

// SharedTasks is the part of a cell's task queue that queues over several cells need. Slots of
// tasks have numbers in the map and in [SlotMoves] that come after the slots of keys: InboxSlots
// plus the slot. Tasks with neither a key nor a unique name may be in any cell.
type SharedTasks interface {
	// FirstTasks returns the places of the first ready tasks of some types, up to limit.
	FirstTasks(ctx context.Context, types []TaskWant, limit int) ([]TaskPlace, error)

	// TakenTasks counts the taken tasks of the types that limit this number.
	TakenTasks(ctx context.Context, types []string) (map[string]int, error)

	// HoldTypes runs do while no other call of HoldTypes runs for one of the types.
	HoldTypes(ctx context.Context, types []string, do func() error) error

	// RaiseTasksTo is RaiseTasks with a given priority, because another cell may have a task of a
	// greater one.
	RaiseTasksTo(ctx context.Context, taskType string, wait time.Duration, limit, priority int) (int, error)

	// SeekTasks returns the ids of many untaken tasks of slots, most urgent first, in groups of the
	// size of a parcel.
	SeekTasks(ctx context.Context, slots []int) (parcels [][]int64, err error)

	// PackTasks makes a parcel of tasks from slots that a move has frozen here. It contains the
	// tasks with these ids that still exist, and all taken tasks if taken is set. The parcel is
	// empty if there are none. The error is [ErrConflict] if the move has not frozen the slots.
	PackTasks(ctx context.Context, move, target string, slots []int, ids []int64, taken bool) (TaskParcel, error)

	// Parcels returns the first parcels that wait in this cell.
	Parcels(ctx context.Context) ([]TaskParcel, error)

	// UnpackTasks stores the tasks of a parcel, unless it did so before.
	UnpackTasks(ctx context.Context, p TaskParcel) error

	// ForgetParcel removes a parcel that has arrived at its target.
	ForgetParcel(ctx context.Context, id string) error
}

// A TaskPlace is the position of a ready task in the order of claims.
type TaskPlace struct {
	Type     string
	Priority int
	Deadline time.Time
}

// A TaskParcel has tasks that move to another cell.
type TaskParcel struct {
	ID     string
	Target string // the name of a cell
	Rows   string
}

// An Enrolment says which cell a store is.
type Enrolment interface {
	// IsAway reports whether an error of the store means that it cannot be reached.
	IsAway(err error) bool

	// EnrolledAs returns the cell of the store, or the zero CellID if it is not enrolled.
	EnrolledAs(ctx context.Context) (CellID, error)

	// Enroll makes the store a cell, with all slots or with none. The error is [ErrConflict] if it
	// is enrolled as another cell.
	Enroll(ctx context.Context, b CellID, all bool) error

	// Last returns the last position in the order of acceptance.
	Last(ctx context.Context) (int64, error)

	// Now returns the store's time in microseconds, for Export.
	Now(ctx context.Context) (int64, error)

	// Serving returns the versions that new runs begin with here, and the revision of that choice.
	// Serve takes over the choice of the home, unless the cell has a newer one.
	Serving(ctx context.Context) (split string, revision int64, err error)
	Serve(ctx context.Context, split string, revision int64) error

	// Load returns the load of the cell, for people and metrics.
	Load(ctx context.Context) (CellLoad, error)
}

// SlotMoves moves slots from one cell to another.
//
// A move has these steps. The target calls Arrive. The source calls Freeze until nothing is left.
// Export and Import copy the data. Then the map changes, which is the switch. After that the target
// calls Open and the source calls Drop. Before the switch, Thaw undoes a move. Each step may be
// repeated. The name identifies a move.
type SlotMoves interface {
	// Slots describes the slots that the cell has, and those that arrive or leave.
	Slots(ctx context.Context) ([]CellSlot, error)

	// Weigh returns how many rows of runs and entities each of the slots has. These rows determine
	// how long the slots stay frozen. It counts at most most rows of each kind.
	Weigh(ctx context.Context, slots []int, most int) (rows []int, err error)

	// Loads returns the load of each slot of keys in this cell: the number of unfinished runs,
	// entities and tasks. A task counts for the slot that it moves with. It reads all of them.
	Loads(ctx context.Context) (map[int]int64, error)

	// Freeze stops the slots from accepting events, and sets aside all of their runs except those
	// that nodes own. It returns how many those are: call it again until there are none. The error
	// is [ErrConflict] if the cell does not have all of the slots, open or frozen by this move.
	Freeze(ctx context.Context, move string, slots []int) (left int, err error)

	// Thaw reopens the slots that the move has frozen, and deletes what it has brought here.
	Thaw(ctx context.Context, move string) error

	// Export reads a part of the data of the slots' keys from a cursor on. The cursor is empty at
	// the start and at the end. Of the ids of events, Export reads those accepted since a time of
	// the store in microseconds. 0 reads all.
	Export(ctx context.Context, what CellPart, slots []int, since int64, cursor string) (rows []byte, next string, err error)

	// Arrive prepares the cell for slots, and deletes leftovers of an earlier move. The error is
	// [ErrConflict] if it has one of the slots, or if another move is bringing it.
	Arrive(ctx context.Context, move string, slots []int) error

	// Import stores what Export returned, and skips what is stored already.
	Import(ctx context.Context, move string, what CellPart, rows []byte) error

	// Open lets the cell work on the slots of the move. What it accepts from now on has positions
	// greater than after.
	Open(ctx context.Context, move string, after int64) error

	// Drop deletes a limited part of the data that the move has left here. more reports that there
	// may be more. Runs that have ended stay.
	Drop(ctx context.Context, move string, slots []int) (more bool, err error)
}

// An Outbox stores events that runs have emitted for keys of other cells.
type Outbox interface {
	// OutboxEvents reads the first events that this cell emitted for other cells. It leaves out those
	// for some slots, and those with some numbers.
	OutboxEvents(ctx context.Context, slots []int, numbers []int64, limit int) ([]OutboxEvent, error)

	// Sent removes events that another cell has accepted from the outbox.
	Sent(ctx context.Context, parcels []int64) error
}

// MarkedRuns lists runs like [Runs].List, with a cursor for each run.
type MarkedRuns interface {
	// ListMarked is List with cursors. The first cursor is the place before the first run, and one
	// follows for the place after each run.
	ListMarked(ctx context.Context, f RunFilter) (runs []RunRecord, cursors []string, more bool, err error)
}

// A CellID identifies a cell.
type CellID struct {
	Inbox  string // the inbox of the cell
	Name   string
	Number int   // below [MaxCells]; makes the positions of the cells distinct
	After  int64 // all of its positions are greater
}

// MaxCells is the maximum number of cells of an inbox.
const MaxCells = 64

// A CellPart is a part of the data of keys.
type CellPart string

// These are the parts, in the order in which they are copied.
const (
	CellEvents CellPart = "events" // ids that identify repeated events
	CellKeys   CellPart = "keys"   // the entities
	CellRuns   CellPart = "runs"   // unfinished and failed runs
	CellOutbox CellPart = "outbox" // events for other keys that runs of these keys have emitted and that are still here
)

// A CellSlot is a slot as seen by a cell.
type CellSlot struct {
	Slot  int
	State SlotState
	Move  string // the move that is bringing or taking it, or has brought it
}

// A SlotState says what a cell does with a slot.
type SlotState string

// These are the states of a slot in a cell. A slot that the cell does not have has no state.
const (
	SlotOpen     SlotState = "open"
	SlotFrozen   SlotState = "frozen"   // leaving
	SlotArriving SlotState = "arriving" // arriving
)

// A CellLoad is the work that waits in a cell.
type CellLoad struct {
	Frozen int // slots that accept nothing now
	Outbox int // events for other cells; counted up to 1000

	// Oldest is how long the first of them has waited. 0 if there is none.
	Oldest time.Duration
}

// An OutboxEvent is an event on its way to another cell.
type OutboxEvent struct {
	Number int64
	Intake model.Intake
	Damage error // why it cannot be read, or nil
}

// Scattered is a store in which some parts may be unreachable while others work.
type Scattered interface {
	// Unreachable returns which keys cannot be used now, and why, or nil.
	Unreachable() error

	// Damaged returns an error if events on their way between the parts cannot be read, or nil.
	Damaged() error
}
