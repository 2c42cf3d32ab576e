package wire

import (
	"encoding/json"
	"time"
)

// A Task is work for a queue.
type Task struct {
	Payload        any       `json:"payload,omitempty" doc:"What to do: any JSON value."`
	Priority       int       `json:"priority,omitempty" format:"int32" doc:"Higher goes first among tasks that are due."`
	DelayTolerance Duration  `json:"delay_tolerance,omitempty" doc:"How long the task may wait beyond its time without harm: text such as 90s, or a number of seconds."`
	Delay          Duration  `json:"delay,omitempty" doc:"How long from now the task is due: text such as 90s, or a number of seconds. Not together with at."`
	At             time.Time `json:"at,omitzero" doc:"When the task is due. Not together with delay."`
	Key            string    `json:"key,omitempty" doc:"What the task is about. Events of one key run one at a time, in order; tasks as their type's queue section or its workers say."`
	Unique         string    `json:"unique,omitempty" doc:"Of a task, not of an event: a name among those of its type that have not ended."`
	OnDuplicate    string    `json:"on_duplicate,omitempty" enum:"keep,merge,replace,rerun" doc:"What becomes of the task when another one has its unique name; keep when left out."`
	Timeout        Duration  `json:"timeout,omitempty" doc:"Of a task, not of an event: how long one attempt may take."`
}

// A TaskReceipt says what became of a task that was put.
type TaskReceipt struct {
	ID      string `json:"id,omitempty" doc:"The task that is in the queue now."`
	Outcome string `json:"outcome" enum:"added,kept,merged,replaced,follows,refused" doc:"added; or, when another task has its unique key: kept as that one is, merged into it, replaced it, follows it. refused says why in error."`
	Error   string `json:"error,omitempty" doc:"Why the task was refused."`
	Warning string `json:"warning,omitempty" doc:"The task was taken in, and may wait for ever: nobody asks for tasks of its type, which may be mistyped. Of an array, the reply as a whole has it."`
}

// TaskReceipts are those of an array, in its order.
type TaskReceipts struct {
	Tasks   []TaskReceipt `json:"tasks" doc:"One for each task of the request."`
	Warning string        `json:"warning,omitempty" doc:"The tasks were taken in, and may wait for ever: nobody asks for tasks of their type, which may be mistyped."`
}

// A QueuedTask is a task as the queue has it.
type QueuedTask struct {
	ID       string          `json:"id" doc:"Its number, as text: it has 64 bits, which not every JSON reader keeps exact."`
	Type     string          `json:"type" doc:"What kind of work it is: the id of a pipeline with a queue section, or any other name."`
	State    string          `json:"state" enum:"scheduled,ready,waiting,starting,running,completed,failed,cancelled" doc:"scheduled: its time has not come. ready: it may be taken. waiting: as many of its key are taken as may be. starting: a worker holds it and has not begun. running: a worker is at it. failed: for good, a dead letter."`
	Payload  json.RawMessage `json:"payload,omitempty" doc:"What to do. Tasks that have ended well have none any more. A list leaves those out that are larger than 16 KiB: ask for the task by its id."`
	Key      string          `json:"key,omitempty" doc:"What it is about; absent for none."`
	Unique   string          `json:"unique,omitempty" doc:"Its name among the tasks of its type that have not ended; absent for none."`
	Priority int             `json:"priority" doc:"Higher goes first among tasks that are due; 0 unless somebody said otherwise."`
	Attempt  int             `json:"attempt" doc:"The number of this attempt, from 1."`
	Due      time.Time       `json:"due" doc:"From when on it may be taken."`
	Deadline time.Time       `json:"deadline" doc:"Until when it may wait without harm."`
	Ended    *time.Time      `json:"ended,omitempty" doc:"When it was completed, cancelled or failed for good; absent until then."`
	Worker   string          `json:"worker,omitempty" doc:"Who took it, by the name that the worker gave; for people."`
	Error    string          `json:"error,omitempty" doc:"Of the last attempt that failed."`
	Timeout  float64         `json:"timeout,omitempty" doc:"Seconds that one attempt may take; absent when that is left to the worker."`
	Until    *time.Time      `json:"until,omitempty" doc:"By then its worker has to be heard of."`
	Receipt  string          `json:"receipt,omitempty" doc:"Of this attempt, for its worker: what the calls about it take."`
}

// A QueueStats counts the tasks of a type.
type QueueStats struct {
	Type      string     `json:"type" doc:"The id of a pipeline with a queue section, or any other name."`
	Mode      string     `json:"mode" enum:"open,paused,draining" doc:"open; paused: tasks are put, and none is taken; draining: tasks are taken, and none is put."`
	Reason    string     `json:"reason,omitempty" doc:"Why it is in that mode."`
	Ready     int64      `json:"ready" doc:"Due, and free to be taken."`
	Waiting   int64      `json:"waiting" doc:"For others of their key."`
	Starting  int64      `json:"starting" doc:"Held by a worker that has not begun with them."`
	Running   int64      `json:"running" doc:"Held by a worker that is at them."`
	Scheduled int64      `json:"scheduled" doc:"Their time has not come."`
	Failed    int64      `json:"failed" doc:"For good: the dead letters."`
	Estimated []string   `json:"estimated,omitempty" doc:"Which of these numbers are estimates, by the names of their members: a sample of a large table was counted, and 0 may stand for a few. All others are exact."`
	Raised    int64      `json:"raised" doc:"How many tasks waited for longer than max-wait beyond what they tolerate, and were let go before others."`
	RaisedAt  *time.Time `json:"raised_at,omitempty" doc:"The last time."`
	Asked     *time.Time `json:"asked,omitempty" doc:"When a worker, or a node, asked for tasks of this type last, to the minute. Without it nobody has in a month: the type may be mistyped."`
	AskedBy   string     `json:"asked_by,omitempty" doc:"Who that was."`
	Oldest    *time.Time `json:"oldest,omitempty" doc:"When the first ready one was due; absent when none is ready."`
	Lag       float64    `json:"lag_seconds" doc:"By how many seconds the most urgent ready task waits beyond what it tolerates."`
}

// A ClaimTasks is the body that takes tasks.
type ClaimTasks struct {
	Worker   string      `json:"worker" maxLength:"256" doc:"A name for people."`
	Types    []ClaimType `json:"types" minItems:"1" maxItems:"100" doc:"Which types, and how many of each."`
	Limit    int         `json:"limit,omitempty" minimum:"1" maximum:"1000" doc:"How many of all types together; 1000 when left out."`
	Lease    Duration    `json:"lease,omitempty" doc:"For how long the worker holds them without a heartbeat: text such as 30s, or seconds; 30 s when left out."`
	Wait     Duration    `json:"wait,omitempty" doc:"How long to wait when there is none: text such as 20s, or seconds, up to 20 s; nobody waits when left out."`
	Complete []string    `json:"complete,omitempty" maxItems:"1000" bytes:"768" doc:"Receipts of tasks that are done: they are completed in the same transaction."`
}

// A ClaimType says how many tasks of a type are taken.
type ClaimType struct {
	Type       string `json:"type" bytes:"512" doc:"The id of a pipeline with a queue section, or any other name."`
	Limit      int    `json:"limit,omitempty" minimum:"1" maximum:"1000" doc:"How many at most; 1 when left out."`
	MaxRunning int    `json:"max_running,omitempty" minimum:"0" doc:"How many of the type all workers together may hold; no bound when it is 0 or left out. The queue section of a pipeline goes first."`
	MaxPerKey  int    `json:"max_per_key,omitempty" minimum:"0" doc:"How many of one key all workers together may hold; no bound when it is 0 or left out. The queue section of a pipeline goes first."`
}

// A Claimed is what was taken.
type Claimed struct {
	Items []QueuedTask `json:"items" doc:"The tasks, each with the receipt of this attempt."`
	Lost  []string     `json:"lost,omitempty" doc:"Receipts among complete that hold their tasks no more."`
}

// A TasksDone says which receipts hold no more.
type TasksDone struct {
	Done int      `json:"done" doc:"How many receipts were good."`
	Lost []string `json:"lost" doc:"Receipts that hold their tasks no more: another worker has them, or they have ended. Nothing was changed by these."`
}

// TaskReceiptList is the body that completes tasks.
type TaskReceiptList struct {
	Receipts []string `json:"receipts" minItems:"1" maxItems:"1000" bytes:"768" want:"want the receipts that claims gave, have none" doc:"Of tasks that are done, as the claims gave them."`
}

// A TaskHeartbeat is the body that keeps tasks.
type TaskHeartbeat struct {
	Receipts []string `json:"receipts" minItems:"1" maxItems:"1000" bytes:"768" want:"want the receipts that claims gave, have none" doc:"Of tasks that the worker is at, as the claims gave them."`
	Lease    Duration `json:"lease,omitempty" doc:"For how long from now: text such as 30s, or seconds; 30 s when left out."`
}

// FailedTasks is the body that says that tasks have failed.
type FailedTasks struct {
	Tasks []FailedTask `json:"tasks" minItems:"1" maxItems:"1000" doc:"The attempts. Of a receipt that is given twice, the first counts."`
}

// A FailedTask is an attempt that has failed.
type FailedTask struct {
	Receipt string   `json:"receipt" bytes:"any" doc:"Of the attempt, as the claim gave it."`
	Error   string   `json:"error,omitempty" bytes:"any" doc:"Why, for people."`
	Final   bool     `json:"final,omitempty" doc:"No further attempt: the task becomes a dead letter. Otherwise the policy of its type decides."`
	Delay   Duration `json:"delay,omitempty" doc:"To the next attempt, instead of what the policy says: text such as 30s, or seconds."`
}

// SnoozedTasks is the body that gives tasks back.
type SnoozedTasks struct {
	Tasks []SnoozedTask `json:"tasks" minItems:"1" maxItems:"1000" doc:"The tasks. Of a receipt that is given twice, the first counts."`
}

// A SnoozedTask is a task that is given back.
type SnoozedTask struct {
	Receipt string   `json:"receipt" bytes:"any" doc:"Of the attempt, as the claim gave it."`
	Delay   Duration `json:"delay,omitempty" doc:"Until it may be taken again: text such as 30s, or seconds; 0 when left out."`
}

// A QueueChange is the body that says what a type does from now on.
type QueueChange struct {
	Mode   string `json:"mode" enum:"open,paused,draining" doc:"open; paused: tasks are put, and none is taken; draining: tasks are taken, and none is put."`
	Reason string `json:"reason,omitempty" maxLength:"512" doc:"Why, for people."`
}

// A QueueChanged says what a type does from now on.
type QueueChanged struct {
	QueueChange
	Warning string `json:"warning,omitempty" doc:"Nothing is known of the type, which may be mistyped."`
}

// A TaskChoice is the body that does something to tasks of a type.
type TaskChoice struct {
	IDs    []string `json:"ids,omitempty" maxItems:"1000" doc:"Only these, by their numbers as text."`
	Key    string   `json:"key,omitempty" bytes:"512" doc:"Only tasks of this key."`
	Unique string   `json:"unique,omitempty" bytes:"512" doc:"Only the task with this unique name."`
	State  string   `json:"state,omitempty" enum:"ready,waiting,scheduled,failed" by:"engine" bytes:"any" doc:"Only tasks in this state; all states that the call takes when left out."`
	Limit  int      `json:"limit,omitempty" minimum:"1" maximum:"100000" doc:"At most as many; 1000 when left out."`
	To     string   `json:"to,omitempty" bytes:"512" doc:"Of a move: the other type."`
	Reason string   `json:"reason,omitempty" maxLength:"512" doc:"Why, for people."`
}

// TasksChanged says how many tasks were changed.
type TasksChanged struct {
	Changed int    `json:"changed" doc:"How many tasks were cancelled, retried or moved; as many as the limit when there may be more."`
	Warning string `json:"warning,omitempty" doc:"Nothing is known of the type that the tasks have now, which may be mistyped."`
}
