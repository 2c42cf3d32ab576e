// Package remote has the JSON messages of the calls of the queue, and calls them on a server. The tags of a field are its
// only declaration: requests are read, checked and described by them.
package remote

import (
	"encoding/json"
	"time"

	"procaas/engine/api/wire"
)

// A Task is work for a queue.
type Task struct {
	Payload        any           `json:"payload,omitempty" doc:"The content: any JSON value."`
	Priority       int           `json:"priority,omitempty" format:"int32" doc:"Higher goes first among tasks that are due."`
	DelayTolerance wire.Duration `json:"delay_tolerance,omitempty" doc:"How long the task may wait beyond its time without harm: text such as 90s, or seconds."`
	Delay          wire.Duration `json:"delay,omitempty" doc:"The delay until the task is due: text such as 90s, or seconds. Not together with at."`
	At             time.Time     `json:"at,omitzero" doc:"When the task is due. Not together with delay."`
	Key            string        `json:"key,omitempty" doc:"The entity that the task is about. Events of one key run one at a time, in order. For tasks, the queue section of their type or its workers decide."`
	Unique         string        `json:"unique,omitempty" doc:"For tasks only: its name among the unfinished tasks of its type."`
	OnDuplicate    string        `json:"on_duplicate,omitempty" enum:"keep,merge,replace,rerun" doc:"What happens to the task if another one has its unique name. The default is keep."`
	Timeout        wire.Duration `json:"timeout,omitempty" doc:"For tasks only: the longest time of one attempt."`
}

// A TaskReceipt is the result of putting a task.
type TaskReceipt struct {
	ID      string `json:"id,omitempty" doc:"The id of the task in the queue."`
	Outcome string `json:"outcome" enum:"added,kept,merged,replaced,follows,refused" doc:"added; or, if another task has its unique name: kept (the other one stays), merged, replaced or follows. For refused, error has the reason."`
	Error   string `json:"error,omitempty" doc:"The reason why the task was refused."`
	Warning string `json:"warning,omitempty" doc:"The task was accepted, but may wait for ever, because no worker asks for its type: check the spelling. For an array, the reply as a whole has the warning."`
}

// TaskReceipts are the results of an array, in order.
type TaskReceipts struct {
	Tasks   []TaskReceipt `json:"tasks" doc:"One for each task of the request."`
	Warning string        `json:"warning,omitempty" doc:"The tasks were accepted, but may wait for ever, because no worker asks for their type: check the spelling."`
}

// A QueuedTask is a task in the queue.
type QueuedTask struct {
	ID       string          `json:"id" doc:"Its 64-bit number, as text, because not every JSON parser keeps such numbers exact."`
	Type     string          `json:"type" doc:"The kind of work: the id of a pipeline with a queue section, or any other name."`
	State    string          `json:"state" enum:"scheduled,ready,waiting,starting,running,completed,failed,cancelled" doc:"scheduled: it is not due yet. ready: workers can take it. waiting: its key is at its limit. starting: a worker holds it and has not started. running: a worker works on it. failed: it is a dead letter."`
	Payload  json.RawMessage `json:"payload,omitempty" doc:"The content. Completed tasks no longer have it. A list omits payloads over 16 KiB: read the task by its id."`
	Key      string          `json:"key,omitempty" doc:"The entity that it is about; absent for none."`
	Unique   string          `json:"unique,omitempty" doc:"Its name among the unfinished tasks of its type; absent for none."`
	Priority int             `json:"priority" doc:"Higher goes first among due tasks. The default is 0."`
	Attempt  int             `json:"attempt" doc:"The number of this attempt, from 1. For a dead letter, that of the last one."`
	Due      time.Time       `json:"due" doc:"When it is due."`
	Deadline time.Time       `json:"deadline" doc:"The end of its tolerance."`
	Ended    *time.Time      `json:"ended,omitempty" doc:"When it was completed, cancelled or failed for good; absent before."`
	Worker   string          `json:"worker,omitempty" doc:"The name of the worker that took it, for people."`
	Error    string          `json:"error,omitempty" doc:"The error of the last failed attempt."`
	Timeout  float64         `json:"timeout,omitempty" doc:"The longest time of one attempt in seconds; absent if the worker decides."`
	Until    *time.Time      `json:"until,omitempty" doc:"The time by which its worker must report."`
	Receipt  string          `json:"receipt,omitempty" doc:"The receipt of this attempt, which the worker passes in later calls."`
}

// A QueueStats counts the tasks of a type.
type QueueStats struct {
	Type      string     `json:"type" doc:"The id of a pipeline with a queue section, or any other name."`
	Mode      string     `json:"mode" enum:"open,paused,draining" doc:"open; paused: workers get no tasks; draining: the queue refuses new tasks."`
	Reason    string     `json:"reason,omitempty" doc:"The reason for the mode."`
	Ready     int64      `json:"ready" doc:"Due tasks that workers can take."`
	Waiting   int64      `json:"waiting" doc:"Tasks that wait for others of their key."`
	Starting  int64      `json:"starting" doc:"Tasks that a worker holds and has not started."`
	Running   int64      `json:"running" doc:"Tasks that a worker works on."`
	Scheduled int64      `json:"scheduled" doc:"Tasks that are not due yet."`
	Failed    int64      `json:"failed" doc:"Tasks that failed for good: the dead letters."`
	Estimated []string   `json:"estimated,omitempty" doc:"The names of the fields that are estimates from a sample of a large table. An estimate of 0 may stand for a few tasks. All other numbers are exact."`
	Raised    int64      `json:"raised" doc:"The number of tasks that waited longer than max-wait beyond their tolerance, and went before others."`
	RaisedAt  *time.Time `json:"raised_at,omitempty" doc:"The last time."`
	Asked     *time.Time `json:"asked,omitempty" doc:"When a worker or a node last asked for tasks of this type, to the minute. If absent, none has within a month: check the spelling."`
	AskedBy   string     `json:"asked_by,omitempty" doc:"The worker or node."`
	Oldest    *time.Time `json:"oldest,omitempty" doc:"When the oldest ready task was due; absent if none is ready."`
	Lag       float64    `json:"lag_seconds" doc:"How many seconds the most urgent ready task has waited beyond its tolerance."`
}

// A QueueTable describes a table of the queue.
type QueueTable struct {
	Table  string `json:"table" doc:"The table in the store."`
	Bytes  int64  `json:"bytes" doc:"Its size with its indexes."`
	Live   int64  `json:"live_rows" doc:"The rows in use, as the server's statistics have them."`
	Dead   int64  `json:"dead_rows" doc:"The rows that wait for a vacuum."`
	Vacuum string `json:"vacuum,omitempty" doc:"The statement that the table needs now. Absent while the server keeps up by itself."`
}

// A ClaimTasks is the body of the call that claims tasks.
type ClaimTasks struct {
	Worker   string        `json:"worker" maxLength:"256" doc:"A name for people."`
	Types    []ClaimType   `json:"types" minItems:"1" maxItems:"10000" doc:"The types to take, and how many tasks of each."`
	Limit    int           `json:"limit,omitempty" minimum:"1" maximum:"1000" doc:"The most tasks of all types together. The default is 1000."`
	Lease    wire.Duration `json:"lease,omitempty" doc:"How long the worker holds the tasks without a heartbeat: text such as 30s, or seconds. The default is 30 s."`
	Wait     wire.Duration `json:"wait,omitempty" doc:"How long to wait if there is no task: text such as 20s, or seconds, up to 20 s. The default is not to wait."`
	Prefetch bool          `json:"prefetch,omitempty" doc:"The worker begins the tasks later. They are starting until a heartbeat says that it has begun."`
	Complete []string      `json:"complete,omitempty" maxItems:"1000" bytes:"768" doc:"Receipts of tasks to complete in the same transaction."`
}

// A ClaimType says how many tasks of a type to claim.
type ClaimType struct {
	Type       string `json:"type" bytes:"512" doc:"The id of a pipeline with a queue section, or any other name."`
	Limit      int    `json:"limit,omitempty" minimum:"1" maximum:"1000" doc:"The most tasks. The default is 1."`
	MaxRunning int    `json:"max_running,omitempty" minimum:"0" doc:"The most tasks of the type that all workers together may hold. The default, 0, is no limit. The queue section of a pipeline overrides it."`
	MaxPerKey  int    `json:"max_per_key,omitempty" minimum:"0" doc:"The most tasks of one key that all workers together may hold. The default, 0, is no limit. The queue section of a pipeline overrides it."`
}

// A Claimed has the claimed tasks.
type Claimed struct {
	Items []QueuedTask `json:"items" doc:"The tasks, each with the receipt of this attempt."`
	Lost  []string     `json:"lost,omitempty" doc:"Receipts among complete that no longer hold their tasks."`
}

// A TasksDone says which receipts no longer hold.
type TasksDone struct {
	Done int      `json:"done" doc:"The number of valid receipts."`
	Lost []string `json:"lost" doc:"Receipts that no longer hold their tasks: another worker has them, or they have ended. They changed nothing."`
}

// CompletedTasks is the body of the call that completes tasks.
type CompletedTasks struct {
	Receipts []string     `json:"receipts,omitempty" maxItems:"1000" bytes:"768" doc:"Receipts of completed tasks without results, from the claims."`
	Results  []TaskResult `json:"results,omitempty" maxItems:"1000" doc:"Completed tasks with results. If a receipt occurs twice, the first counts."`
}

// A TaskResult is a completed task with its result.
type TaskResult struct {
	Receipt string `json:"receipt" bytes:"any" doc:"The receipt of the attempt, from the claim."`
	Result  any    `json:"result,omitempty" doc:"What the run that waits for the task gets: any JSON value of up to 1 MiB."`
}

// A TaskHeartbeat is the body of the call that renews leases.
type TaskHeartbeat struct {
	Receipts []string      `json:"receipts" minItems:"1" maxItems:"1000" bytes:"768" want:"want the receipts that claims gave, have none" doc:"Receipts of tasks that the worker works on, from the claims."`
	Lease    wire.Duration `json:"lease,omitempty" doc:"The new lease, from now: text such as 30s, or seconds. The default is 30 s."`
	Starting bool          `json:"starting,omitempty" doc:"The worker holds the tasks and has not begun them: their states stay. The default is that it works on them: they become running."`
}

// FailedTasks is the body of the call that reports failed attempts.
type FailedTasks struct {
	Tasks []FailedTask `json:"tasks" minItems:"1" maxItems:"1000" doc:"The failed attempts. If a receipt occurs twice, the first counts."`
}

// A FailedTask is a failed attempt.
type FailedTask struct {
	Receipt string        `json:"receipt" bytes:"any" doc:"The receipt of the attempt, from the claim."`
	Error   string        `json:"error,omitempty" bytes:"any" doc:"The error, for people."`
	Final   bool          `json:"final,omitempty" doc:"true makes the task a dead letter at once. Otherwise the policy of its type decides."`
	Delay   wire.Duration `json:"delay,omitempty" doc:"The delay before the next attempt, instead of that of the policy: text such as 30s, or seconds."`
}

// SnoozedTasks is the body of the call that returns tasks.
type SnoozedTasks struct {
	Tasks []SnoozedTask `json:"tasks" minItems:"1" maxItems:"1000" doc:"The tasks. If a receipt occurs twice, the first counts."`
}

// A SnoozedTask is a returned task.
type SnoozedTask struct {
	Receipt string        `json:"receipt" bytes:"any" doc:"The receipt of the attempt, from the claim."`
	Delay   wire.Duration `json:"delay,omitempty" doc:"The delay until workers can take it again: text such as 30s, or seconds. The default is 0."`
}

// A QueueChange is the body of the call that sets the mode of a type.
type QueueChange struct {
	Mode   string `json:"mode" enum:"open,paused,draining" doc:"open; paused: workers get no tasks; draining: the queue refuses new tasks."`
	Reason string `json:"reason,omitempty" maxLength:"512" doc:"The error, for people."`
}

// A QueueChanged is the new mode of a type.
type QueueChanged struct {
	QueueChange
	Warning string `json:"warning,omitempty" doc:"The type is unknown: check its spelling."`
}

// A TaskChoice is the body of a call that changes tasks of a type.
type TaskChoice struct {
	IDs    []string `json:"ids,omitempty" maxItems:"1000" doc:"Only these tasks, by their numbers as text."`
	Key    string   `json:"key,omitempty" bytes:"512" doc:"Only tasks of this key."`
	Unique string   `json:"unique,omitempty" bytes:"512" doc:"Only the task with this unique name."`
	Error  string   `json:"error,omitempty" bytes:"512" doc:"Only tasks whose last error contains this text."`
	State  string   `json:"state,omitempty" enum:"ready,waiting,scheduled,failed" by:"engine" bytes:"any" doc:"Only tasks in this state. The default is all states that the call accepts."`
	Limit  int      `json:"limit,omitempty" minimum:"1" maximum:"100000" doc:"The most tasks. The default is 1000."`
	To     string   `json:"to,omitempty" bytes:"512" doc:"For a move: the other type."`
	Reason string   `json:"reason,omitempty" maxLength:"512" doc:"The error, for people."`

	Preview bool `json:"preview,omitempty" doc:"Changes nothing, and lists the tasks."`
}

// A TaskRetried is a dead letter that was retried.
type TaskRetried struct {
	Task string `json:"task" doc:"The number of the dead letter as text."`
	As   string `json:"as" doc:"The number of the task that does its work again."`
}

// A TaskBlocked is a dead letter that another task keeps from being retried.
type TaskBlocked struct {
	Task string `json:"task" doc:"The number of the dead letter as text. It stays with its payload."`
	By   string `json:"by" doc:"The number of the task that has its unique name."`
}

// TasksChanged says how many tasks were changed.
type TasksChanged struct {
	Changed int `json:"changed" doc:"The number of tasks that were cancelled, retried or moved. If it equals the limit, there may be more."`

	Retried []TaskRetried `json:"retried,omitempty" doc:"For a retry: the tasks, and those that do their work again."`
	Blocked []TaskBlocked `json:"blocked,omitempty" doc:"For a retry: the first thousand dead letters that stay, since another task has their unique name."`
	Preview []QueuedTask  `json:"preview,omitempty" doc:"For a preview: the tasks that the call would change, without their payloads."`

	Warning string `json:"warning,omitempty" doc:"The new type of the tasks is unknown: check its spelling."`
}
