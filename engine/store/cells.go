package store

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"time"

	"procaas/engine/model"
)

// This file is the part of the ports that speaks of an inbox that is spread over
// several databases, its cells. Keys are spread over slots, slots are given to cells,
// and a slot moves from cell to cell with all that its keys need. Package cells makes
// one store of them.

// InboxSlots is among how many slots the keys of the inbox are spread. The number
// never changes.
const InboxSlots = 4096

// InboxSlot returns the slot of a key. The databases have the same function.
func InboxSlot(key string) int {
	sum := sha256.Sum256([]byte(key))
	return int(binary.BigEndian.Uint16(sum[:])) % InboxSlots
}

// What callers of a store with cells test for.
var (
	// ErrMoving reports that the key is on its way to another cell, or that this cell
	// does not have it: nothing was changed. It passes within seconds.
	ErrMoving = errors.New("the key is on its way to another cluster of the inbox")

	// ErrAway reports that the cell that has the key, or the run, cannot be reached.
	// Whether a change was made is unknown.
	ErrAway = errors.New("the cluster of the inbox that has the key cannot be reached")
)

// A Cell is a store that can be one of several that share an inbox. Until it is
// enrolled, it has all slots and is a store like any other. Then its Accept gives
// [ErrMoving] in the result of an event of a slot that it has not, its Commit puts what
// is emitted to such slots into the outbox, and its Retry, Cancel, Undo and Move give
// [ErrMoving] for runs of slots on their way.
type Cell struct {
	Store

	Enrolment Enrolment
	Moves     SlotMoves
	Outbox    Outbox
	Marked    MarkedRuns
	Shared    SharedTasks // the other side of [Store.Tasks]
}

// SharedTasks is what a cell's queue of tasks does for the queues of all cells. A slot of tasks is, in the map and for
// [SlotMoves], that many behind the slots of keys. Any cell may have tasks without a key and a unique name.
type SharedTasks interface {
	// FirstTasks returns the places of the first ready tasks of some types, at most so many.
	FirstTasks(ctx context.Context, types []TaskWant, limit int) ([]TaskPlace, error)

	// TakenTasks counts the taken tasks of types that bound how many may be.
	TakenTasks(ctx context.Context, types []string) (map[string]int, error)

	// HoldTypes does something while nobody else does so for one of the types.
	HoldTypes(ctx context.Context, types []string, do func() error) error

	// RaiseTasksTo is RaiseTasks where another cell may have a task of a greater priority.
	RaiseTasksTo(ctx context.Context, taskType string, wait time.Duration, limit, priority int) (int, error)

	// SeekTasks finds many tasks of slots that nobody has taken, the most urgent first, as parcels of them may be.
	SeekTasks(ctx context.Context, slots []int) (parcels [][]int64, err error)

	// PackTasks makes a parcel of tasks of slots that a move has frozen here: those with ids that are still there, and with
	// taken all that are taken. Empty when there are none; [ErrConflict] when the move has not frozen the slots.
	PackTasks(ctx context.Context, move, target string, slots []int, ids []int64, taken bool) (TaskParcel, error)

	// Parcels returns the first parcels that wait here.
	Parcels(ctx context.Context) ([]TaskParcel, error)

	// UnpackTasks takes the tasks of a parcel in, unless it was here before.
	UnpackTasks(ctx context.Context, p TaskParcel) error

	// ForgetParcel removes a parcel that has come to its target.
	ForgetParcel(ctx context.Context, id string) error
}

// A TaskPlace is the place of a ready task in the order of claims.
type TaskPlace struct {
	Type     string
	Priority int
	Deadline time.Time
}

// A TaskParcel is tasks on their way to another cell.
type TaskParcel struct {
	ID     string
	Target string // the name of a cell
	Rows   string
}

// An Enrolment says which cell a store is.
type Enrolment interface {
	// IsAway reports whether an error of the store says that it cannot be reached.
	IsAway(err error) bool

	// EnrolledAs returns as which cell the store is enrolled; zero when it is not.
	EnrolledAs(ctx context.Context) (CellID, error)

	// Enroll makes the store a cell, with all slots or none. [ErrConflict] when it is
	// enrolled as another one.
	Enroll(ctx context.Context, b CellID, all bool) error

	// Last returns the last position in the order of acceptance.
	Last(ctx context.Context) (int64, error)

	// Now returns the store's time in microseconds, for Export.
	Now(ctx context.Context) (int64, error)

	// Serving returns by which versions new runs begin here, and the revision with which that changed. Serve takes it over
	// from the home, unless the cell has a newer one.
	Serving(ctx context.Context) (split string, revision int64, err error)
	Serve(ctx context.Context, split string, revision int64) error

	// Load returns what the cell has to do, for people and metrics.
	Load(ctx context.Context) (CellLoad, error)
}

// SlotMoves brings slots from one cell to another.
//
// A move of slots goes: Arrive at the target, Freeze at the source until nothing is
// left, Export and Import, then, in the map, the switch; after it Open at the target
// and Drop at the source. Before the switch, Thaw undoes it. All of these may be
// repeated. Moves are distinguished by their names.
type SlotMoves interface {
	// Slots describes the slots that the cell has, or that come or go.
	Slots(ctx context.Context) ([]CellSlot, error)

	// Weigh returns how many rows of runs and entities each of the slots has, which is
	// what takes time while they are frozen. Of each kind it counts no more than most.
	Weigh(ctx context.Context, slots []int, most int) (rows []int, err error)

	// Loads returns how many runs that have not ended, entities and tasks the slots of keys have that are here, tasks at the
	// slot they go with. It looks at all of them.
	Loads(ctx context.Context) (map[int]int64, error)

	// Freeze lets the slots take nothing in, and sets their runs aside but for those
	// that nodes own. It returns how many those are: repeat it until there are none.
	// [ErrConflict] when the cell has not all of the slots open, or frozen by this
	// move.
	Freeze(ctx context.Context, move string, slots []int) (left int, err error)

	// Thaw opens the slots again that the move has frozen, and forgets what came here
	// with it.
	Thaw(ctx context.Context, move string) error

	// Export reads a part of what the keys of the slots have, from a cursor on, which is
	// empty at first and at the end. Of the ids of events, it reads those accepted since
	// a time of the store, in microseconds; 0 for all.
	Export(ctx context.Context, what CellPart, slots []int, since int64, cursor string) (rows []byte, next string, err error)

	// Arrive makes the cell wait for slots, and forgets what an earlier move has left of
	// them. [ErrConflict] when it has one of them, or waits for it by another move.
	Arrive(ctx context.Context, move string, slots []int) error

	// Import stores what Export gave. What is stored already stays.
	Import(ctx context.Context, move string, what CellPart, rows []byte) error

	// Open lets the slots of the move work here. What is accepted from now on comes
	// behind a position.
	Open(ctx context.Context, move string, after int64) error

	// Drop forgets a bounded part of what the move has left here; more tells that there
	// may be more. Runs that have ended stay.
	Drop(ctx context.Context, move string, slots []int) (more bool, err error)
}

// An Outbox keeps the events that runs have emitted to keys of other cells.
type Outbox interface {
	// OutboxEvents reads the first events that were emitted here to slots that are not, but
	// those to some slots.
	OutboxEvents(ctx context.Context, without []int, limit int) ([]OutboxEvent, error)

	// Sent removes events from the outbox that another cell has accepted.
	Sent(ctx context.Context, parcels []int64) error
}

// MarkedRuns are those of [Runs].List, each with a place to go on from.
type MarkedRuns interface {
	// ListMarked is List with cursors: the first is that before the first run, and one
	// follows for behind each run.
	ListMarked(ctx context.Context, f RunFilter) (runs []RunRecord, cursors []string, more bool, err error)
}

// A CellID names a cell.
type CellID struct {
	Inbox  string // that it belongs to
	Name   string
	Number int   // below [MaxCells]; positions of the cells never meet
	After  int64 // that all of its positions come behind
}

// MaxCells is how many cells an inbox may have.
const MaxCells = 64

// A CellPart is a part of what keys have.
type CellPart string

// The parts, in the order in which they are copied.
const (
	CellEvents CellPart = "events" // the ids by which repetitions are known
	CellKeys   CellPart = "keys"   // the entities
	CellRuns   CellPart = "runs"   // that have not ended, and failed ones
	CellOutbox CellPart = "outbox" // what runs of the keys have emitted to others, and is still here
)

// A CellSlot is a slot as a cell knows it.
type CellSlot struct {
	Slot  int
	State SlotState
	Move  string // that it comes or goes by, or came by last
}

// A SlotState says what a cell does with a slot.
type SlotState string

// The states of a slot in a cell. One that the cell has not has none.
const (
	SlotOpen     SlotState = "open"
	SlotFrozen   SlotState = "frozen"   // goes
	SlotArriving SlotState = "arriving" // comes
)

// A CellLoad is what a cell has to do.
type CellLoad struct {
	Frozen int // slots that take nothing in at present
	Outbox int // events for other cells; at most 1000 are counted

	// Oldest is for how long the first of them has been there; 0 when there is none.
	Oldest time.Duration
}

// A OutboxEvent is an event on its way to another cell.
type OutboxEvent struct {
	Number int64
	Intake model.Intake
}

// A Scattered is a store of which parts may be away while others work.
type Scattered interface {
	// Unreachable tells of which keys nothing can be done at present, and why; nil when
	// all is there.
	Unreachable() error
}
