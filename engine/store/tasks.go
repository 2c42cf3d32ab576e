package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// The types of this file are the interface of a queue of tasks in any store. Tasks are separate from runs, because they
// are short and many, and because programs without pipelines use them.

// A Duplicate says what happens to a task if an unfinished task of its type has the same unique key.
type Duplicate string

// The ways to handle a duplicate. Merge and replace change the first task until a worker takes it. After that they act like rerun.
const (
	DuplicateKeep    Duplicate = "keep"    // the first task stays as it is, the duplicate is dropped
	DuplicateMerge   Duplicate = "merge"   // the payloads become one
	DuplicateReplace Duplicate = "replace" // the duplicate takes the place of the first task
	DuplicateRerun   Duplicate = "rerun"   // one more task follows when a taken one has ended, however many duplicates come
)

// Duplicates lists the ways to handle a duplicate, in the order of the docs.
func Duplicates() []Duplicate {
	return []Duplicate{DuplicateKeep, DuplicateMerge, DuplicateReplace, DuplicateRerun}
}

// A TaskSpec is a task to put into the queue.
type TaskSpec struct {
	// Type chooses the workers that can do it.
	Type string

	// Payload is the content as JSON. Empty is null.
	Payload json.RawMessage

	// Key is the entity that the task is about; empty for none. A claim may limit how many tasks of one key workers hold
	// at once. The key decides the slot.
	Key string

	// Priority orders tasks before their time does. Higher priorities go first.
	Priority int

	// At is when the task may start. The zero time, or a time in the past, is now.
	At time.Time

	// Delay is added to At, or to now.
	Delay time.Duration

	// Tolerance is how long the task may wait beyond its time without harm. Among
	// tasks of one priority, that whose tolerance ends first goes first.
	Tolerance time.Duration

	// Timeout bounds one attempt; 0 leaves it to the worker.
	Timeout time.Duration

	// Unique names the task among those of its type that have not ended; empty for a
	// task that may have any number of copies.
	Unique string

	// OnDuplicate says what becomes of it when Unique is taken; keep when empty.
	OnDuplicate Duplicate

	// Merge makes one payload of those of the first task and of its duplicate, for
	// [DuplicateMerge]. It may be called several times, and an error refuses the task.
	Merge func(first, second json.RawMessage) (json.RawMessage, error)
}

// The bounds of a task.
const (
	MaxTaskPayload = 1 << 20                   // bytes
	MaxTaskName    = 512                       // bytes of a type, a key, a unique key
	MaxTaskAhead   = 10 * 365 * 24 * time.Hour // from now to when a task may start
	maxTaskRank    = 1<<31 - 1
)

// TaskSlots is among how many slots the tasks are spread by their keys. The number
// never changes: it is written with each task.
const TaskSlots = 1024

// Slot returns the slot of a task: by its key, or by its unique key when it has none.
// All others are in the slot of their type.
func (t *TaskSpec) Slot() int {
	h := fnv.New32a()
	switch {
	case t.Key != "":
		_, _ = h.Write([]byte(t.Key))
	case t.Unique != "":
		_, _ = h.Write([]byte(t.Unique))
	default:
		_, _ = h.Write([]byte(t.Type))
	}
	return int(h.Sum32() % TaskSlots)
}

// ErrTask reports that a task cannot be stored as it is.
var ErrTask = errors.New("task cannot be stored")

// Check returns what is wrong with a task.
func (t *TaskSpec) Check() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{ErrTask}, args...)...)
	}
	switch {
	case t.Type == "":
		return bad("want a type, have none")
	case len(t.Type) > MaxTaskName, len(t.Key) > MaxTaskName, len(t.Unique) > MaxTaskName:
		return bad("want type, key and unique of at most %d bytes, have %d, %d and %d", MaxTaskName, len(t.Type), len(t.Key), len(t.Unique))
	case len(t.Payload) > MaxTaskPayload:
		return bad("want a payload of at most %d bytes, have %d: keep large data elsewhere and put its address here", MaxTaskPayload,
			len(t.Payload))
	case len(t.Payload) > 0 && !json.Valid(t.Payload):
		return bad("want a payload that is JSON, have %.40q", t.Payload)
	case t.Priority > maxTaskRank, t.Priority < -maxTaskRank:
		return bad("want a priority between %d and %d, have %d", -maxTaskRank, maxTaskRank, t.Priority)
	case t.Delay < 0, t.Tolerance < 0, t.Timeout < 0:
		return bad("want delay, tolerance and timeout not below zero, have %v, %v and %v", t.Delay, t.Tolerance, t.Timeout)
	case t.Delay > MaxTaskAhead, t.Tolerance > MaxTaskAhead, t.Timeout > MaxTaskTimeout, time.Until(t.At) > MaxTaskAhead:
		return bad("want a time within ten years and a timeout of at most %v, have delay %v, tolerance %v, timeout %v", MaxTaskTimeout, t.Delay,
			t.Tolerance, t.Timeout)
	}
	switch t.OnDuplicate {
	case "", DuplicateKeep, DuplicateReplace, DuplicateRerun:
	case DuplicateMerge:
		if t.Merge == nil {
			return bad("on-duplicate is merge, and nothing says how to merge")
		}
	default:
		return bad("on-duplicate: want one of %v, have %q", Duplicates(), t.OnDuplicate)
	}
	if t.OnDuplicate != "" && t.Unique == "" {
		return bad("on-duplicate is %s, and there is no unique key", t.OnDuplicate)
	}
	return nil
}

// MaxTaskTimeout is the longest bound of an attempt.
const MaxTaskTimeout = 24 * 24 * time.Hour

// A PutOutcome says what became of a task that was put.
type PutOutcome string

// What becomes of a task that is put.
const (
	PutAdded    PutOutcome = "added"
	PutKept     PutOutcome = "kept"     // another one has its unique key, and stays as it is
	PutMerged   PutOutcome = "merged"   // the other one has both payloads now
	PutReplaced PutOutcome = "replaced" // the other one is now as this one
	PutFollows  PutOutcome = "follows"  // one more task follows when the other one has ended
	PutRefused  PutOutcome = "refused"  // see Err
)

// A TaskPut is what became of one task of a batch.
type TaskPut struct {
	ID      int64 // of the task that is in the queue now
	Outcome PutOutcome
	Err     error // why the task was refused; others of its batch are in the queue
}

// ErrDraining reports that a type takes no new tasks.
var ErrDraining = errors.New("the queue of this type is drained and takes no new tasks")

// A TaskState says where a task is.
type TaskState string

// The states of a task.
const (
	TaskScheduled TaskState = "scheduled" // its time has not come
	TaskReady     TaskState = "ready"     // may be taken
	TaskWaiting   TaskState = "waiting"   // as many of its key are taken as may be
	TaskStarting  TaskState = "starting"  // a worker holds it in its own queue
	TaskRunning   TaskState = "running"   // a worker runs it
	TaskCompleted TaskState = "completed"
	TaskFailed    TaskState = "failed" // for good: a dead letter
	TaskCancelled TaskState = "cancelled"
)

// A QueuedTask is a task as the queue has it. Of one that has ended well only the ID, the
// Type, the Key, the Epoch, the Worker and most times are kept: the history is large, and
// nobody does it again.
type QueuedTask struct {
	ID       int64 // rises with the order of the puts of one process, not over all of them
	Type     string
	Key      string
	Unique   string
	Payload  json.RawMessage
	Priority int // [TaskMaintenance] may have raised it
	State    TaskState
	Slot     int // see [TaskSpec.Slot]

	Created  time.Time
	Due      time.Time // from when on it may be taken
	Deadline time.Time // Due plus its tolerance
	Begun    time.Time // when it was taken last; zero before
	Until    time.Time // by then its worker has to be heard of; zero when nobody has it
	Ended    time.Time // zero before

	Timeout  time.Duration // of one attempt; 0 leaves it to the worker
	Epoch    int           // which of its takings this is, see [NextTaskEpoch]; part of its [TaskRef]
	Failures int           // attempts that have failed
	Lost     int           // attempts whose worker was not heard of any more
	Worker   string
	Error    string // of the last attempt that failed
}

// Ref names the attempt that a worker was given.
func (t *QueuedTask) Ref() TaskRef { return TaskRef{t.ID, t.Epoch} }

// Attempt is the number of this attempt, from 1. Those whose worker was lost do not
// count: they are not known to have failed.
func (t *QueuedTask) Attempt() int { return t.Failures + 1 }

// NextTaskEpoch returns the epoch of a task that is taken anew: any other than the one
// before. A store that was set back may give the same task again, so it is drawn by lot:
// who had it before does not hold it any more.
func NextTaskEpoch(epoch int) int { return (epoch + 1 + rand.IntN(math.MaxInt32-1)) % math.MaxInt32 }

// A TaskRef names one attempt of a task. Who was given a later one holds the task; all
// that is said by an earlier ref changes nothing. So a worker that stood still and comes
// back cannot end what another one does by now.
type TaskRef struct {
	ID    int64
	Epoch int // the [QueuedTask.Epoch] that it was taken with
}

// A TaskWant says how many tasks of a type a worker takes.
type TaskWant struct {
	Type  string
	Limit int // 0 takes none

	// MaxTaken bounds how many tasks of the type are taken in the whole cluster; 0
	// for no bound. All who claim the type have to say the same: what was taken
	// without a bound does not count.
	MaxTaken int

	// MaxPerKey bounds how many tasks of one key are taken; 0 for no bound. All who
	// claim the type have to say the same.
	MaxPerKey int
}

// A TaskClaim asks for tasks. What it brings is the most urgent over all its types, not of
// one after the other.
type TaskClaim struct {
	Worker string // a name for people; receipts tell attempts apart, not this
	Types  []TaskWant
	Limit  int           // of all types together; 0 for no other bound than theirs
	Lease  time.Duration // by then the worker has to be heard of

	// Prefetch says that the worker will begin later: the tasks are starting, not
	// running.
	Prefetch bool
}

// A TaskFailure says that an attempt has failed.
type TaskFailure struct {
	TaskRef
	Error string        // for people; see [CutTaskText]
	Retry bool          // otherwise the task has failed for good
	Delay time.Duration // to the next attempt; of one that is to be retried
}

// maxTaskText is how many bytes stores keep of the error of an attempt, and of other texts
// that are for people.
const maxTaskText = 2000

// CutTaskText makes a text one that each store keeps: not too long, of UTF-8, and without
// U+0000, which PostgreSQL has no room for.
func CutTaskText(text string) string {
	if len(text) > maxTaskText {
		text = text[:maxTaskText]
	}
	return strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", ""), "")
}

// A TaskSnooze gives a task back as if nobody had taken it.
type TaskSnooze struct {
	TaskRef
	Delay time.Duration // until it may be taken again
}

// A TaskReport is what a worker has to say of the tasks it holds. An attempt is in it
// once.
type TaskReport struct {
	Completed []TaskRef
	Failed    []TaskFailure
	Snoozed   []TaskSnooze

	// Plain says that none of these tasks has a unique key, so that nobody has to
	// look for one.
	Plain bool
}

// Len is the number of attempts that it is about.
func (r *TaskReport) Len() int { return len(r.Completed) + len(r.Failed) + len(r.Snoozed) }

// A TaskBeat says that a worker still holds a task.
type TaskBeat struct {
	TaskRef
	Running bool          // and has begun with it
	Lease   time.Duration // by then the worker will be heard of again
}

// A TaskFilter chooses tasks: those for which all of it holds. What is empty chooses all.
type TaskFilter struct {
	IDs    []int64
	Type   string
	Key    string
	Unique string
	State  TaskState // of a change, one that no worker holds, or failed for a retry; else [ErrConflict]
	Limit  int       // 0 for no bound

	// MaxPayload bounds the payloads that a listing gives, each in bytes: larger ones are
	// left out. 0 for no bound.
	MaxPayload int
}

// Trim leaves the payload of a listed task out when it is too large.
func (f *TaskFilter) Trim(t *QueuedTask) {
	if f.MaxPayload > 0 && len(t.Payload) > f.MaxPayload {
		t.Payload = nil
	}
}

// A TaskTypeStats counts the tasks of a type.
type TaskTypeStats struct {
	Type   string
	Mode   TaskMode
	Reason string // why it is in that mode

	// How many are in each state. SQLite counts those that wait for others of their key
	// as ready: it passes by them, and puts none aside.
	Ready, Waiting, Starting, Running, Scheduled, Failed int64

	// Estimated lists the states of which a sample was counted, since the table is
	// large: their numbers are about right, and 0 may stand for a few. Empty when all
	// are exact.
	Estimated []TaskState

	// Raised is how many tasks [TaskMaintenance] has raised that had waited for too long, and
	// RaisedLast when it did so last; zero when it never has.
	Raised     int64
	RaisedLast time.Time

	// Asked is when somebody asked for tasks of the type last, to the minute, and AskedBy
	// its name; zero when nobody has for [TaskFactsKept]. Tasks that wait there are
	// likely of a mistyped type.
	Asked   time.Time
	AskedBy string

	// Oldest is when the first of the ready ones was due; zero when there is none.
	Oldest time.Time

	// Lag is by how much the most urgent ready task is beyond what it tolerates.
	Lag time.Duration
}

// IsEstimated reports whether the number of tasks in a state is an estimate.
func (t TaskTypeStats) IsEstimated(state TaskState) bool { return slices.Contains(t.Estimated, state) }

// How stores remember who asks for which tasks. A worker that idles asks all the time, so
// it is not written down each time; and a type that nobody has asked for in a month is
// like one that nobody ever has.
const (
	TaskAskedPause = time.Minute
	TaskFactsKept  = 30 * 24 * time.Hour
)

// A TaskMode says what a type does.
type TaskMode string

// The modes of a type.
const (
	TasksOpen     TaskMode = "open"
	TasksPaused   TaskMode = "paused"   // tasks are put, and none is taken
	TasksDraining TaskMode = "draining" // tasks are taken, and none is put
)

// A TaskStore keeps tasks. Every method is safe for concurrent use, and every change
// is atomic and durable before it returns; what is said of many tasks by operators, or
// done by the care for them, is so part by part. An error that is not [ErrTask] or
// [ErrConflict] may mean that only the answer was lost: reports may be repeated, since
// a ref counts once, and puts with a unique key.
type TaskStore struct {
	Queue       TaskQueue
	Work        TaskWork
	Maintenance TaskMaintenance
	Admin       TaskAdmin
}

// A TaskQueue takes tasks in.
type TaskQueue interface {
	// PutTasks stores tasks, and returns a result for each, in order. A task with [TaskPut.Err] is refused. The error is for all tasks.
	PutTasks(ctx context.Context, tasks []TaskSpec) ([]TaskPut, error)

	// CancelTasks ends scheduled, ready and waiting tasks, together with tasks that should follow them. It does not end
	// tasks that a worker holds.
	CancelTasks(ctx context.Context, f TaskFilter) (int, error)
}

// A TaskWork gives tasks to workers.
type TaskWork interface {
	// ClaimTasks takes ready tasks in the order of priority, deadline and id. It never waits for other claims.
	ClaimTasks(ctx context.Context, c TaskClaim) ([]QueuedTask, error)

	// ReportTasks records the outcomes of tasks. It returns the refs that no longer hold their tasks. These changed nothing.
	ReportTasks(ctx context.Context, r TaskReport) (lost []TaskRef, err error)

	// ExchangeTasks does both in one transaction, the report first.
	ExchangeTasks(ctx context.Context, r TaskReport, c TaskClaim) (tasks []QueuedTask, lost []TaskRef, err error)

	// BeatTasks extends the leases of tasks. It returns the refs that no longer hold their tasks.
	BeatTasks(ctx context.Context, beats []TaskBeat) (lost []TaskRef, err error)

	// WatchTasks returns a channel that gets a value when tasks of these types may be ready. It holds at most one value,
	// and some may get lost, so also poll from time to time.
	WatchTasks(types []string) (woken <-chan struct{}, stop func())
}

// A TaskMaintenance maintains the queue. Any number of processes may do so at once.
type TaskMaintenance interface {
	// PromoteTasks makes up to limit due tasks ready. It returns their number, and the time until the next one is due, 0 for none.
	PromoteTasks(ctx context.Context, limit int) (n int, next time.Duration, err error)

	// RaiseTasks gives up to limit tasks of a type that nobody has taken though they might
	// be, those that have waited for longer than wait beyond what they tolerate, the
	// greatest priority among them all, and returns how many: they go before all that are
	// not as late. Those that wait for others of their key are among them: else the
	// urgent ones of a key might keep its patient ones waiting forever.
	RaiseTasks(ctx context.Context, taskType string, wait time.Duration, limit int) (int, error)

	// ReclaimTasks takes up to limit tasks back from workers that did not report in time. A task that was lost more than
	// maxLost times fails for good. A task that was lost before waits for a while, see [SuspectDelay].
	ReclaimTasks(ctx context.Context, limit, maxLost int) (int, error)

	// ExpireTasks deletes tasks that ended longer ago than ended, and failed tasks after failed. With 0 it keeps failed tasks.
	ExpireTasks(ctx context.Context, ended, failed time.Duration) (int, error)

	// VacuumTasks cleans up after deleted tasks.
	VacuumTasks(ctx context.Context) error
}

// A TaskAdmin has the operations for operators.
type TaskAdmin interface {
	// TaskStats counts the tasks of each type, in the order of their names.
	TaskStats(ctx context.Context) ([]TaskTypeStats, error)

	// PeekTasks lists tasks in the order in which workers will take them, and ended tasks newest first. The order may still change.
	PeekTasks(ctx context.Context, f TaskFilter) ([]QueuedTask, error)

	// RetryTasks makes failed tasks ready again.
	RetryTasks(ctx context.Context, f TaskFilter) (int, error)

	// MoveTasks changes the type of tasks that no worker holds.
	MoveTasks(ctx context.Context, f TaskFilter, to string) (int, error)

	// KnownTaskTypes lists the types that a worker has asked for within [TaskFactsKept], and those whose mode was ever
	// set. It returns up to ten thousand, in no order.
	KnownTaskTypes(ctx context.Context) ([]string, error)

	// SetTaskMode sets the mode of a type.
	SetTaskMode(ctx context.Context, taskType string, mode TaskMode, reason string) error
}
