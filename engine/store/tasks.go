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

// The types of this file are the interface of a queue of tasks in any store. Tasks are separate
// from runs, because they are short and many, and because programs without pipelines use them.

// A Duplicate says what happens to a task if an unfinished task of its type has the same unique key.
type Duplicate string

// The ways to handle a duplicate. Merge and replace change the first task until a worker takes it.
// After that they act like rerun.
const (
	DuplicateKeep    Duplicate = "keep"    // the first task stays as it is, the duplicate is dropped
	DuplicateMerge   Duplicate = "merge"   // the payloads become one
	DuplicateReplace Duplicate = "replace" // the duplicate takes the place of the first task
	// one more task follows when a taken one has ended, however many duplicates come
	DuplicateRerun Duplicate = "rerun"
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

	// Tolerance is how long the task may wait beyond its time without harm. Among tasks of one
	// priority, the one whose tolerance ends first goes first.
	Tolerance time.Duration

	// Timeout bounds one attempt. 0 leaves it to the worker.
	Timeout time.Duration

	// Unique identifies the task among the unfinished tasks of its type. A task with an empty
	// Unique may have any number of copies.
	Unique string

	// OnDuplicate says what happens if Unique is taken. Empty means keep.
	OnDuplicate Duplicate

	// Merge combines the payloads of the first task and of its duplicate, for [DuplicateMerge]. It
	// may be called several times. An error refuses the task.
	Merge func(first, second json.RawMessage) (json.RawMessage, error)
}

// These are the bounds of a task.
const (
	MaxTaskPayload = 1 << 20                   // bytes
	MaxTaskName    = 512                       // bytes of a type, a key, a unique key
	MaxTaskAhead   = 10 * 365 * 24 * time.Hour // from now until a task may start
	maxTaskRank    = 1<<31 - 1
)

// TaskSlots is the number of slots for tasks. It never changes, because each task is stored with
// its slot.
const TaskSlots = 1024

// Slot returns the slot of a task. It is chosen by the key, else by the unique key, else by the
// type.
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

// ErrTask reports that a task cannot be stored in its form.
var ErrTask = errors.New("task cannot be stored")

// Check returns what is wrong with a task, or nil.
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

// MaxTaskTimeout is the longest allowed Timeout.
const MaxTaskTimeout = 24 * 24 * time.Hour

// A PutOutcome says what happened to a task that was put.
type PutOutcome string

// These are the outcomes of putting a task.
const (
	PutAdded    PutOutcome = "added"
	PutKept     PutOutcome = "kept"     // another one has its unique key, and stays as it is
	PutMerged   PutOutcome = "merged"   // the other one now has the merged payload
	PutReplaced PutOutcome = "replaced" // this one has replaced the other
	PutFollows  PutOutcome = "follows"  // one more task follows when the other one has ended
	PutRefused  PutOutcome = "refused"  // see Err
)

// A TaskPut is the result of one task of a batch.
type TaskPut struct {
	ID      int64 // of the task that is now in the queue
	Outcome PutOutcome
	Err     error // why the task was refused; other tasks of the batch are in the queue
}

// ErrDraining reports that a type takes no new tasks.
var ErrDraining = errors.New("the queue of this type is drained and takes no new tasks")

// A TaskState says where a task is.
type TaskState string

// These are the states of a task.
const (
	TaskScheduled TaskState = "scheduled" // its time has not come
	TaskReady     TaskState = "ready"     // may be taken
	TaskWaiting   TaskState = "waiting"   // its key has the maximum number of taken tasks
	TaskStarting  TaskState = "starting"  // a worker holds it in its own queue
	TaskRunning   TaskState = "running"   // a worker runs it
	TaskCompleted TaskState = "completed"
	TaskFailed    TaskState = "failed" // for good: a dead letter
	TaskCancelled TaskState = "cancelled"
)

// A QueuedTask is a task in the queue. Of a task that has succeeded, only ID, Type, Key, Epoch,
// Worker and most times are kept, because the history is large and nobody repeats it.
type QueuedTask struct {
	ID       int64 // increases within the puts of one process, not across processes
	Type     string
	Key      string
	Unique   string
	Payload  json.RawMessage
	Priority int // [TaskMaintenance] may have raised it
	State    TaskState
	Slot     int // see [TaskSpec.Slot]

	Created  time.Time
	Due      time.Time // the earliest time to take it
	Deadline time.Time // Due plus its tolerance
	Begun    time.Time // when it was last taken; zero before
	Until    time.Time // its worker must report by then; zero if no worker has it
	Ended    time.Time // zero before

	Timeout  time.Duration // of one attempt; 0 leaves it to the worker
	Epoch    int           // changes each time that it is taken, see [NextTaskEpoch]; part of its [TaskRef]
	Failures int           // failed attempts
	Lost     int           // attempts whose worker stopped reporting
	Worker   string
	Error    string // of the last failed attempt

	Result json.RawMessage // what its worker has returned; only for a completed task
}

// Ref identifies the attempt of a worker.
func (t *QueuedTask) Ref() TaskRef { return TaskRef{t.ID, t.Epoch} }

// Attempt is the number of this attempt, from 1, or of the last one for a dead letter. Attempts of
// lost workers do not count, because they may not have failed.
func (t *QueuedTask) Attempt() int {
	if t.State == TaskFailed {
		return max(1, t.Failures)
	}
	return t.Failures + 1
}

// NextTaskEpoch returns a new epoch for a task that is taken, different from the one before. It is
// random, because a store that was set back may hand out the same task again. The previous worker
// must not hold it then.
func NextTaskEpoch(epoch int) int { return (epoch + 1 + rand.IntN(math.MaxInt32-1)) % math.MaxInt32 }

// A TaskRef identifies one attempt of a task. Only the latest ref holds the task. Reports with an
// earlier ref change nothing. So a worker that was stopped for a while cannot end the attempt of
// another one.
type TaskRef struct {
	ID    int64
	Epoch int // the [QueuedTask.Epoch] of the attempt
}

// A TaskWant says how many tasks of a type a worker takes.
type TaskWant struct {
	Type  string
	Limit int // 0 takes none

	// MaxTaken bounds how many tasks of the type are taken in the whole cluster. 0 means no bound.
	// All workers of the type must use the same bound, because tasks taken without a bound do not
	// count.
	MaxTaken int

	// MaxPerKey bounds how many tasks of one key are taken. 0 means no bound. All workers of the
	// type must use the same bound.
	MaxPerKey int
}

// A TaskClaim asks for tasks. It gets the most urgent tasks of all its types together, not of one
// type after the other.
type TaskClaim struct {
	Worker string // a name for people; the [TaskRef] identifies the attempt
	Types  []TaskWant
	Limit  int           // of all types together; 0 for no bound beyond those of the types
	Lease  time.Duration // the worker must report within this time

	// Prefetch says that the worker will begin later. The tasks are then starting, not running.
	Prefetch bool
}

// A TaskFailure reports a failed attempt.
type TaskFailure struct {
	TaskRef
	Error string        // for people; see [CutTaskText]
	Retry bool          // false: the task has failed for good
	Delay time.Duration // until the next attempt, if Retry
}

// maxTaskText is how many bytes stores keep of the error of an attempt and of other texts for
// people.
const maxTaskText = 2000

// CutTaskText makes a text that each store can keep. It shortens the text, makes it UTF-8 and
// removes U+0000, which PostgreSQL cannot store.
func CutTaskText(text string) string {
	if len(text) > maxTaskText {
		text = text[:maxTaskText]
	}
	return strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", ""), "")
}

// A TaskSnooze returns a task as if nobody had taken it.
type TaskSnooze struct {
	TaskRef
	Delay time.Duration // until it may be taken again
}

// A TaskReport is a worker's report about its tasks. An attempt occurs only once.
type TaskReport struct {
	Completed []TaskRef
	Results   map[TaskRef]json.RawMessage // of completed ones, for whoever waits for them; up to [MaxTaskPayload] bytes each
	Failed    []TaskFailure
	Snoozed   []TaskSnooze

	// Plain says that none of these tasks has a unique key, which saves looking for one.
	Plain bool
}

// Len returns the number of attempts in the report.
func (r *TaskReport) Len() int { return len(r.Completed) + len(r.Failed) + len(r.Snoozed) }

// A TaskBeat says that a worker still holds a task.
type TaskBeat struct {
	TaskRef
	Running bool          // the worker has begun the task
	Lease   time.Duration // the worker reports again within this time
}

// A TaskFilter chooses the tasks that match all of its fields. An empty field matches all.
type TaskFilter struct {
	IDs    []int64
	Type   string
	Key    string
	Unique string
	Error  string    // a part of the error's text
	State  TaskState // for a change: only tasks that no worker holds, or failed ones for a retry; else [ErrConflict]
	Limit  int       // 0 for no bound

	// MaxPayload bounds the size of each listed payload in bytes. Larger ones are left out. 0 means
	// no bound.
	MaxPayload int
}

// Trim removes the payload of a listed task if it is too large.
func (f *TaskFilter) Trim(t *QueuedTask) {
	if f.MaxPayload > 0 && len(t.Payload) > f.MaxPayload {
		t.Payload = nil
	}
}

// A TaskRetry is a failed task and the task that does its work again.
type TaskRetry struct {
	Task, As int64
	Blocked  bool // As has the unique key of Task, which therefore stays failed, with its payload
}

// Retried returns the tasks that were made ready again, and those that others block.
func Retried(all []TaskRetry) (done, blocked []TaskRetry) {
	for _, r := range all {
		if r.Blocked {
			blocked = append(blocked, r)
		} else {
			done = append(done, r)
		}
	}
	return done, blocked
}

// RetryTasksInParts retries the failed tasks of a filter in parts of at most atOnce, in the order of their numbers. do
// retries those with a number over after. The limit of the filter is for tasks that were retried. Tasks that others
// block are passed over, so they never hold up those behind them.
func RetryTasksInParts(
	f TaskFilter, atOnce int, do func(part TaskFilter, after int64) ([]TaskRetry, error),
) (all []TaskRetry, err error) {
	left := f.Limit
	if left <= 0 {
		left = 1 << 30
	}
	for after := int64(0); left > 0; {
		part := f
		part.Limit = min(left, atOnce)
		some, err := do(part, after)
		all = append(all, some...)
		if err != nil || len(some) < part.Limit {
			return all, err
		}
		done, _ := Retried(some)
		left -= len(done)
		after = some[len(some)-1].Task
	}
	return all, nil
}

// A TaskTypeStats counts the tasks of a type.
type TaskTypeStats struct {
	Type   string
	Mode   TaskMode
	Reason string // for the mode

	// These are the numbers of tasks per state. SQLite counts tasks that wait for others of their
	// key as ready, because it skips them instead of setting them aside.
	Ready, Waiting, Starting, Running, Scheduled, Failed int64

	// Estimated lists the states that were counted by a sample, because the table is large. Their
	// numbers are approximate, and 0 may stand for a few. It is empty if all numbers are exact.
	Estimated []TaskState

	// Raised is how many tasks [TaskMaintenance] has raised after they had waited too long.
	// RaisedLast is when it last did, or zero.
	Raised     int64
	RaisedLast time.Time

	// Asked is when a worker last asked for tasks of the type, to the minute, and AskedBy is its
	// name. Asked is zero if none has within [TaskFactsKept]. Then waiting tasks probably have a
	// mistyped type.
	Asked   time.Time
	AskedBy string

	// Oldest is when the oldest ready task was due. Zero if there is none.
	Oldest time.Time

	// Lag is how long the most urgent ready task has waited beyond its tolerance.
	Lag time.Duration
}

// IsEstimated reports whether the number of tasks in a state is an estimate.
func (t TaskTypeStats) IsEstimated(state TaskState) bool { return slices.Contains(t.Estimated, state) }

// These bound how stores remember which worker asks for which tasks. An idle worker asks all the
// time, so not every request is written down. A type that no worker has asked for in a month counts
// as never asked for.
const (
	TaskAskedPause = time.Minute
	TaskFactsKept  = 30 * 24 * time.Hour
)

// A TaskMode says what the queue does with a type.
type TaskMode string

// These are the modes of a type.
const (
	TasksOpen     TaskMode = "open"
	TasksPaused   TaskMode = "paused"   // accepts tasks, but hands none out
	TasksDraining TaskMode = "draining" // hands tasks out, but accepts none
)

// A TaskStore stores tasks. Every method is safe for concurrent use, and every change is atomic and
// durable before it returns. Only operators' changes of many tasks and maintenance work in parts,
// and each part is atomic. After an error other than [ErrTask] or [ErrConflict], the change may
// have been made. Reports may be repeated, because a ref counts once. Puts may be repeated if they
// have a unique key.
type TaskStore struct {
	Queue       TaskQueue
	Work        TaskWork
	Maintenance TaskMaintenance
	Admin       TaskAdmin
	Eraser      TaskEraser

	// Enqueued is nil if programs cannot enqueue tasks in transactions of their own.
	Enqueued TaskEnqueued
}

// EnqueuedHint is the type of which [TaskWork.WatchTasks] hears when a program has enqueued a task. No task has it.
const EnqueuedHint = "procaas enqueued"

// A ReadyTask completes a task that a program has enqueued. refused says why the task can only become a dead letter, and is empty
// if it need not.
// An error is for all tasks.
type ReadyTask func(t *TaskSpec) (refused string, err error)

// A TaskEnqueued has the tasks that programs have enqueued in transactions of their own.
type TaskEnqueued interface {
	// TakeEnqueued puts up to limit of these tasks into the queue, in their order, in the transaction that removes them. It returns
	// how many it has removed. That is 0 if another process does so now. ready may be called again for a task.
	TakeEnqueued(ctx context.Context, limit int, ready ReadyTask) (int, error)
}

// A TaskQueue takes tasks in.
type TaskQueue interface {
	// PutTasks stores tasks, and returns a result for each, in order. A task with [TaskPut.Err] is
	// refused. The error is for all tasks.
	PutTasks(ctx context.Context, tasks []TaskSpec) ([]TaskPut, error)

	// CancelTasks ends scheduled, ready and waiting tasks, together with tasks that should follow them. It does not end
	// tasks that a worker holds.
	CancelTasks(ctx context.Context, f TaskFilter) (int, error)
}

// A TaskWork assigns tasks to workers.
type TaskWork interface {
	// ClaimTasks takes ready tasks in the order of priority, deadline and id. It never waits for other claims.
	ClaimTasks(ctx context.Context, c TaskClaim) ([]QueuedTask, error)

	// ReportTasks records the outcomes of tasks. It returns the refs that no longer hold their
	// tasks. These changed nothing.
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
	// PromoteTasks makes up to limit due tasks ready. It returns their number, and the time until
	// the next one is due, 0 for none.
	PromoteTasks(ctx context.Context, limit int) (n int, next time.Duration, err error)

	// RaiseTasks raises the priority of up to limit tasks of a type that have waited longer than
	// wait beyond their tolerance. They get the greatest priority of such tasks, so they go before
	// all tasks that are less late. It returns their number. It includes tasks that wait for others
	// of their key, because urgent tasks of a key could otherwise delay its other tasks forever.
	RaiseTasks(ctx context.Context, taskType string, wait time.Duration, limit int) (int, error)

	// ReclaimTasks takes up to limit tasks back from workers that did not report in time. A task that was lost more than
	// maxLost times fails for good. A task that was lost before waits for a while, see package guard.
	ReclaimTasks(ctx context.Context, limit, maxLost int) (int, error)

	// ExpireTasks deletes tasks that ended longer ago than ended, and failed tasks after failed.
	// With 0 it keeps failed tasks.
	ExpireTasks(ctx context.Context, ended, failed time.Duration) (int, error)

	// VacuumTasks cleans up after deleted tasks.
	VacuumTasks(ctx context.Context) error
}

// A TaskTable describes a table of the queue. A claim reads past dead rows until they are vacuumed.
type TaskTable struct {
	Name       string
	Bytes      int64 // with its indexes
	Live, Dead int64 // rows, as the server's statistics have them
}

// VacuumAt is how many dead rows a table has at least before people look at it. The server vacuums
// smaller tables by itself, and a claim reads that many within milliseconds.
const VacuumAt = 100_000

// Vacuum returns the statement that a table needs: more of its rows are dead than in use. Otherwise
// it returns nothing.
func (t TaskTable) Vacuum() string {
	if t.Dead <= max(t.Live, VacuumAt) {
		return ""
	}
	return "vacuum (analyze, verbose) " + t.Name
}

// A TaskAdmin has the operations for operators.
type TaskAdmin interface {
	// TaskStats counts the tasks of each type, in the order of their names.
	TaskStats(ctx context.Context) ([]TaskTypeStats, error)

	// TaskTables describes the tables of the queue. Stores without dead rows return none.
	TaskTables(ctx context.Context) ([]TaskTable, error)

	// PeekTasks lists tasks in the order in which workers will take them, and ended tasks newest
	// first. The order may still change.
	PeekTasks(ctx context.Context, f TaskFilter) ([]QueuedTask, error)

	// RetryTasks makes failed tasks ready again, as new tasks. It returns what it has done also with an error. A task
	// whose unique key another task has by now stays as it is, and does not count for the limit.
	RetryTasks(ctx context.Context, f TaskFilter) ([]TaskRetry, error)

	// MoveTasks changes the type of tasks that no worker holds.
	MoveTasks(ctx context.Context, f TaskFilter, to string) (int, error)

	// KnownTaskTypes lists the types that a worker has asked for within [TaskFactsKept], and those whose mode was ever
	// set. It returns up to ten thousand, in no order.
	KnownTaskTypes(ctx context.Context) ([]string, error)

	// SetTaskMode sets the mode of a type.
	SetTaskMode(ctx context.Context, taskType string, mode TaskMode, reason string) error
}
