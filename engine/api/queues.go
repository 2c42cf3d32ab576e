package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"procaas/engine"
)

// This file serves the queue of tasks to workers that are other programs.

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
	Lease    any         `json:"lease,omitempty" doc:"For how long the worker holds them without a heartbeat: text such as 30s, or seconds; 30 s when left out."`
	Wait     any         `json:"wait,omitempty" doc:"How long to wait when there is none: text such as 20s, or seconds, up to 20 s; nobody waits when left out."`
	Complete []string    `json:"complete,omitempty" maxItems:"1000" doc:"Receipts of tasks that are done: they are completed in the same transaction."`
}

// A ClaimType says how many tasks of a type are taken.
type ClaimType struct {
	Type       string `json:"type" doc:"The id of a pipeline with a queue section, or any other name."`
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
	Receipts []string `json:"receipts" minItems:"1" maxItems:"1000" doc:"Of tasks that are done, as the claims gave them."`
}

// A TaskHeartbeat is the body that keeps tasks.
type TaskHeartbeat struct {
	Receipts []string `json:"receipts" minItems:"1" maxItems:"1000" doc:"Of tasks that the worker is at, as the claims gave them."`
	Lease    any      `json:"lease,omitempty" doc:"For how long from now: text such as 30s, or seconds; 30 s when left out."`
}

// FailedTasks is the body that says that tasks have failed.
type FailedTasks struct {
	Tasks []FailedTask `json:"tasks" minItems:"1" maxItems:"1000" doc:"The attempts. Of a receipt that is given twice, the first counts."`
}

// A FailedTask is an attempt that has failed.
type FailedTask struct {
	Receipt string `json:"receipt" doc:"Of the attempt, as the claim gave it."`
	Error   string `json:"error,omitempty" doc:"Why, for people."`
	Final   bool   `json:"final,omitempty" doc:"No further attempt: the task becomes a dead letter. Otherwise the policy of its type decides."`
	Delay   any    `json:"delay,omitempty" doc:"To the next attempt, instead of what the policy says: text such as 30s, or seconds."`
}

// SnoozedTasks is the body that gives tasks back.
type SnoozedTasks struct {
	Tasks []SnoozedTask `json:"tasks" minItems:"1" maxItems:"1000" doc:"The tasks. Of a receipt that is given twice, the first counts."`
}

// A SnoozedTask is a task that is given back.
type SnoozedTask struct {
	Receipt string `json:"receipt" doc:"Of the attempt, as the claim gave it."`
	Delay   any    `json:"delay,omitempty" doc:"Until it may be taken again: text such as 30s, or seconds; 0 when left out."`
}

// The bounds of what workers ask for.
const (
	defaultLease  = 30 * time.Second
	maxTaskLease  = 24 * time.Hour
	maxClaimWait  = 20 * time.Second
	maxTasks      = 1000 // in one call
	pollAtLeast   = 50 * time.Millisecond
	pollAtMost    = time.Second
	claimPath     = "/v1/queues/claim"
	noTasksDetail = "this server keeps no tasks: its store has no tables for them"
)

func (s *server) queueOperations() []operation {
	refusals := []string{codeNoTasks, codeStoreUnavailable}
	done := []reply{{status: 200, about: "What holds no more.", body: TasksDone{}, example: TasksDone{Done: 1, Lost: []string{}}}}
	receipts := []string{exampleReceipt}
	post := func(verb, summary, about string, body any, example any, replies []reply, serve func(http.ResponseWriter, *http.Request) error) operation {
		return operation{
			method: http.MethodPost, path: "/v1/queues/" + verb, id: verb + "-tasks", tag: "queues", summary: summary, about: about,
			body: jsonBody(s.schema(body), example), replies: replies, refusals: refusals, serve: serve,
		}
	}
	return []operation{
		post("claim", "Take tasks", "Takes the most urgent ready tasks of several types in one go, and waits for one when there is none. "+
			"A task belongs to the caller until its lease is over; whoever is longer at it sends heartbeats.",
			ClaimTasks{}, ClaimTasks{Worker: "worker-1", Types: []ClaimType{{Type: "thumbnails", Limit: 10}}, Lease: "30s", Wait: "20s"},
			[]reply{{status: 200, about: "The tasks, the most urgent first; none when there is none.", body: Claimed{}}}, s.postClaim),
		post("heartbeat", "Keep tasks for longer", "", TaskHeartbeat{}, TaskHeartbeat{Receipts: receipts, Lease: "30s"}, done, s.postHeartbeat),
		post("complete", "Say that tasks are done", "", TaskReceiptList{}, TaskReceiptList{Receipts: receipts}, done, s.postComplete),
		post("fail", "Say that attempts have failed", "The task is tried again by the retry policy of its type, and becomes a dead letter when that is exhausted.",
			FailedTasks{}, FailedTasks{Tasks: []FailedTask{{Receipt: exampleReceipt, Error: "no space left"}}}, done, s.postFail),
		post("snooze", "Give tasks back as if nobody had taken them", "", SnoozedTasks{}, SnoozedTasks{Tasks: []SnoozedTask{{Receipt: exampleReceipt, Delay: "1m"}}}, done, s.postSnooze),
		{
			method: http.MethodGet, path: "/v1/queues", id: "list-queues", tag: "queues",
			summary: "Count the tasks of each type",
			replies: []reply{{status: 200, about: "All types that have tasks or were paused or drained.", body: Page[QueueStats]{}}}, refusals: refusals, serve: s.listQueues,
		},
		{
			method: http.MethodGet, path: "/v1/queues/{pipeline}/tasks", id: "list-tasks", tag: "queues",
			summary: "Look at the tasks of a type, without taking them",
			about:   "In the order in which they would be taken; those that have ended, the last first. Without a state, all that have not ended.",
			params: []*huma.Param{
				inPath("pipeline", "The type: a pipeline's id, or any other."),
				inQuery("state", "Only tasks in this state.", &huma.Schema{Type: huma.TypeString, Enum: anys(taskStates)}),
				inQuery("key", "Only tasks of this key.", nil), inQuery("unique", "Only the task with this unique key.", nil),
				inQuery("id", "Only this task.", nil), inQuery("limit", "The most tasks.", limitSchema()),
			},
			replies:  []reply{{status: 200, about: "The tasks.", body: Page[QueuedTask]{}}},
			refusals: append([]string{codeInvalidParameter}, refusals...), serve: s.listTasks,
		},
	}
}

const exampleReceipt = "1001.1.1.thumbnails"

var taskStates = []engine.TaskState{
	engine.TaskScheduled, engine.TaskReady, engine.TaskWaiting, engine.TaskStarting, engine.TaskRunning, engine.TaskCompleted,
	engine.TaskFailed, engine.TaskCancelled,
}

// A receipt names an attempt to its worker. What is in it besides the ref saves a
// look at the task.
type receipt struct {
	engine.TaskRef
	attempt  int
	taskType string
}

// receiptOf makes the receipt of an attempt. The type comes last: it may hold dots.
func receiptOf(t *engine.QueuedTask) string {
	return fmt.Sprintf("%d.%d.%d.%s", t.ID, t.Epoch, t.Attempt(), t.Type)
}

// parseReceipt is the reverse of receiptOf. It shows only that the text is well-formed: whether
// the attempt still holds is for the store to say.
func parseReceipt(text string) (r receipt, ok bool) {
	parts := strings.SplitN(text, ".", 4)
	if len(parts) != 4 || parts[3] == "" {
		return r, false
	}
	var err error
	if r.ID, err = strconv.ParseInt(parts[0], 10, 64); err != nil || r.ID <= 0 {
		return r, false
	}
	for i, into := range []*int{&r.Epoch, &r.attempt} {
		n, err := strconv.ParseInt(parts[i+1], 10, 32)
		if err != nil || n <= 0 {
			return r, false
		}
		*into = int(n)
	}
	r.taskType = parts[3]
	return r, true
}

// viewOfTask writes a task as replies have it, without a receipt: whoever only looks gets none.
func viewOfTask(t *engine.QueuedTask) QueuedTask {
	v := QueuedTask{
		ID: strconv.FormatInt(t.ID, 10), Type: t.Type, State: string(t.State), Payload: t.Payload, Key: t.Key, Unique: t.Unique,
		Priority: t.Priority, Attempt: t.Attempt(), Due: t.Due, Deadline: t.Deadline, Worker: t.Worker, Error: t.Error,
		Timeout: t.Timeout.Seconds(), Until: given(t.Until), Ended: given(t.Ended),
	}
	return v
}

// given is a time that replies leave out when it is zero.
func given(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// needTasks refuses a call of a server that keeps no tasks.
func (s *server) needTasks() error {
	if s.tasks == nil {
		return refuse(codeNoTasks, noTasksDetail)
	}
	return nil
}

// object reads the body of a call for the queue of tasks.
func (s *server) object(w http.ResponseWriter, r *http.Request) (*fields, error) {
	if err := s.needTasks(); err != nil {
		return nil, err
	}
	return s.readObject(w, r)
}

// objects gives the members of a list of objects.
func (f *fields) objects(name string, most int) []*fields {
	v := f.get(name)
	list, ok := v.([]any)
	if !ok || len(list) == 0 || len(list) > most {
		f.fault(name, "want an array of 1 to %d objects, have %s", most, kindOf(v))
		return nil
	}
	var out []*fields
	for i, item := range list {
		one, fault := objectAt(f.prefix+escapePointer(name)+"/"+strconv.Itoa(i), item)
		if fault != nil {
			f.faults = append(f.faults, *fault)
			continue
		}
		out = append(out, one)
	}
	return out
}

// receipt reads the receipt of a task that the caller may work at.
func (f *fields) receipt(name string, text string) receipt {
	r, ok := parseReceipt(text)
	if !ok {
		f.fault(name, "want a receipt that a claim gave, have %s", shown(text))
	}
	return r
}

// receipts reads a list of receipts, which may be empty.
func (f *fields) receipts(name string) []receipt {
	var out []receipt
	list := f.labels(name, maxName+engine.MaxTaskName)
	if len(list) > maxTasks {
		f.fault(name, "want at most %d, have %d", maxTasks, len(list))
		return nil
	}
	for _, text := range list {
		out = append(out, f.receipt(name, text))
	}
	return out
}

// someReceipts are receipts of which there must be one.
func (f *fields) someReceipts(name string) []receipt {
	list, isList := f.get(name).([]any)
	if isList && len(list) == 0 || f.values[name] == nil {
		f.fault(name, "want the receipts that claims gave, have none")
		return nil
	}
	return f.receipts(name)
}

// lease reads for how long a task is held.
func (f *fields) lease() time.Duration {
	d := f.duration("lease")
	if d == 0 {
		d = defaultLease
	}
	if d < time.Second || d > maxTaskLease {
		f.fault("lease", "want a lease between 1s and %v, have %v", maxTaskLease, d)
	}
	return d
}

// between reads a number that may be left out.
func (f *fields) between(name string, low, high, otherwise int) int {
	if f.values[name] == nil {
		f.get(name)
		return otherwise
	}
	n := f.integer(name)
	if n < low || n > high {
		f.fault(name, "want a number between %d and %d, have %d", low, high, n)
	}
	return n
}

// mayWork refuses a caller whose grant does not cover the types. A receipt is what
// the caller says, so the tasks themselves are asked when the grant is bound to paths.
func (s *server) mayWork(r *http.Request, receipts []receipt) error {
	if len(granted(r).Paths) == 0 {
		return nil
	}
	f := engine.TaskFilter{Limit: maxTasks, MaxPayload: 1} // none is looked at
	for _, one := range receipts {
		if err := mayAt(r, one.taskType); err != nil {
			return err
		}
		f.IDs = append(f.IDs, one.ID)
	}
	if len(f.IDs) == 0 {
		return nil
	}
	tasks, err := s.tasks.PeekTasks(r.Context(), f)
	for _, t := range tasks {
		if err := mayAt(r, t.Type); err != nil {
			return err
		}
	}
	return err
}

func (s *server) postClaim(w http.ResponseWriter, r *http.Request) error {
	f, err := s.object(w, r)
	if err != nil {
		return err
	}
	c := engine.TaskClaim{Worker: f.required("worker"), Limit: f.between("limit", 1, maxTasks, maxTasks), Lease: f.lease()}
	f.label("worker", maxName)
	wait := f.duration("wait")
	if wait > maxClaimWait {
		f.fault("wait", "want at most %v, have %v", maxClaimWait, wait)
	}
	done := f.receipts("complete")
	for _, one := range f.objects("types", 100) {
		c.Types = append(c.Types, s.wanted(one))
		one.refuseUnknown()
		f.faults = append(f.faults, one.faults...)
	}
	f.refuseUnknown()
	if err := faulty(f.faults); err != nil {
		return err
	}
	for _, want := range c.Types {
		if err := mayAt(r, want.Type); len(granted(r).Paths) > 0 && err != nil {
			return err
		}
	}
	if err := s.mayWork(r, done); err != nil {
		return err
	}
	var report engine.TaskReport
	for _, one := range distinct(done) {
		report.Completed = append(report.Completed, one.TaskRef)
	}
	tasks, lost, err := s.claimUntil(w, r, report, c, wait)
	if err != nil {
		return err
	}
	out := Claimed{Items: []QueuedTask{}, Lost: lostReceipts(done, lost)}
	for i := range tasks {
		v := viewOfTask(&tasks[i])
		v.Receipt = receiptOf(&tasks[i])
		out.Items = append(out.Items, v)
	}
	return writeJSON(w, http.StatusOK, out)
}

// wanted reads how many tasks of a type are to be taken.
func (s *server) wanted(f *fields) engine.TaskWant {
	w := engine.TaskWant{
		Type: f.required("type"), Limit: f.between("limit", 1, maxTasks, 1), MaxTaken: f.between("max_running", 0, 1<<30, 0),
		MaxPerKey: f.between("max_per_key", 0, 1<<30, 0),
	}
	f.label("type", engine.MaxTaskName)
	return engine.TaskWantOf(s.engine.Bundle().Pipeline(w.Type), w)
}

// claimUntil takes tasks, and waits for some until a time. Nobody polls for whom
// somebody would be woken.
func (s *server) claimUntil(w http.ResponseWriter, r *http.Request, report engine.TaskReport, c engine.TaskClaim, wait time.Duration) ([]engine.QueuedTask, []engine.TaskRef, error) {
	types := make([]string, len(c.Types))
	for i, want := range c.Types {
		types[i] = want.Type
	}
	woken, stop := s.tasks.WatchTasks(types)
	defer stop()
	if wait > 0 {
		extend(w, wait+requestTime)
	}
	ctx, cancel := context.WithTimeout(r.Context(), wait)
	defer cancel()
	var lost []engine.TaskRef
	for pause := pollAtLeast; ; pause = min(2*pause, pollAtMost) {
		tasks, gone, err := s.tasks.ExchangeTasks(r.Context(), report, c)
		lost = append(lost, gone...)
		if err != nil || len(tasks) > 0 || wait == 0 {
			return tasks, lost, err
		}
		report = engine.TaskReport{} // said once; what follows only asks for tasks
		t := time.NewTimer(pause)
		select {
		case <-woken:
			pause = pollAtLeast
		case <-t.C:
		case <-s.closing:
			wait = 0
		case <-ctx.Done():
			wait = 0
		}
		t.Stop()
		if wait == 0 {
			return nil, lost, r.Context().Err()
		}
	}
}

// extend lets a reply come later than the server's limits allow others.
func extend(w http.ResponseWriter, d time.Duration) {
	c := http.NewResponseController(w)
	// A recorder of tests has no deadlines to move.
	_ = c.SetReadDeadline(time.Now().Add(d))
	_ = c.SetWriteDeadline(time.Now().Add(d))
}

// distinct leaves out what is given twice.
func distinct(receipts []receipt) []receipt {
	seen := map[int64]bool{}
	return slices.DeleteFunc(slices.Clone(receipts), func(r receipt) bool {
		twice := seen[r.ID]
		seen[r.ID] = true
		return twice
	})
}

// lostReceipts gives those of the receipts whose attempts hold no more, in their order and as
// they were sent.
func lostReceipts(receipts []receipt, lost []engine.TaskRef) []string {
	out := []string{}
	for _, r := range receipts {
		if slices.Contains(lost, r.TaskRef) {
			out = append(out, fmt.Sprintf("%d.%d.%d.%s", r.ID, r.Epoch, r.attempt, r.taskType))
		}
	}
	return out
}

func (s *server) postHeartbeat(w http.ResponseWriter, r *http.Request) error {
	f, err := s.object(w, r)
	if err != nil {
		return err
	}
	receipts, lease := f.someReceipts("receipts"), f.lease()
	f.refuseUnknown()
	if err := errors.Join(faulty(f.faults), s.mayWork(r, receipts)); err != nil {
		return err
	}
	var beats []engine.TaskBeat
	for _, one := range distinct(receipts) {
		beats = append(beats, engine.TaskBeat{TaskRef: one.TaskRef, Running: true, Lease: lease})
	}
	lost, err := s.tasks.BeatTasks(r.Context(), beats)
	return replyDone(w, receipts, lost, err)
}

func (s *server) postComplete(w http.ResponseWriter, r *http.Request) error {
	f, err := s.object(w, r)
	if err != nil {
		return err
	}
	receipts := f.someReceipts("receipts")
	f.refuseUnknown()
	var report engine.TaskReport
	for _, one := range distinct(receipts) {
		report.Completed = append(report.Completed, one.TaskRef)
	}
	return s.report(w, r, f, receipts, report)
}

func (s *server) postFail(w http.ResponseWriter, r *http.Request) error {
	return s.postTaskList(w, r, func(f *fields, one receipt, report *engine.TaskReport) {
		failure := engine.TaskFailure{TaskRef: one.TaskRef, Error: f.str("error")}
		final, delay := f.boolean("final"), f.duration("delay")
		if delay > engine.MaxTaskAhead {
			f.fault("delay", "want at most ten years")
		}
		if !final && one.attempt > 0 {
			var unsaid error
			if failure.Delay, failure.Retry, unsaid = s.taskPolicy(one.taskType).Next(one.ID, one.attempt); unsaid != nil {
				failure.Error = strings.TrimPrefix(fmt.Sprintf("%s; %s", failure.Error, unsaid), "; ")
				s.log.Warn("the policy of retries does not say when to try a task again", "type", one.taskType, "task", one.ID, "error", unsaid)
			}
		}
		if failure.Retry && delay > 0 {
			failure.Delay = delay
		}
		report.Failed = append(report.Failed, failure)
	})
}

func (s *server) postSnooze(w http.ResponseWriter, r *http.Request) error {
	return s.postTaskList(w, r, func(f *fields, one receipt, report *engine.TaskReport) {
		snooze := engine.TaskSnooze{TaskRef: one.TaskRef, Delay: f.duration("delay")}
		if snooze.Delay > engine.MaxTaskAhead {
			f.fault("delay", "want at most ten years")
		}
		report.Snoozed = append(report.Snoozed, snooze)
	})
}

// postTaskList reports each of a list of tasks in its own way. Of one that is given
// twice the first counts.
func (s *server) postTaskList(w http.ResponseWriter, r *http.Request, add func(*fields, receipt, *engine.TaskReport)) error {
	f, err := s.object(w, r)
	if err != nil {
		return err
	}
	var (
		report   engine.TaskReport
		receipts []receipt
		seen     = map[int64]bool{}
	)
	for _, one := range f.objects("tasks", maxTasks) {
		got := one.receipt("receipt", one.required("receipt"))
		var part engine.TaskReport
		add(one, got, &part)
		if receipts = append(receipts, got); !seen[got.ID] {
			report.Failed, report.Snoozed = append(report.Failed, part.Failed...), append(report.Snoozed, part.Snoozed...)
		}
		seen[got.ID] = true
		one.refuseUnknown()
		f.faults = append(f.faults, one.faults...)
	}
	f.refuseUnknown()
	return s.report(w, r, f, receipts, report)
}

func (s *server) report(w http.ResponseWriter, r *http.Request, f *fields, receipts []receipt, report engine.TaskReport) error {
	if err := faulty(f.faults); err != nil {
		return err
	}
	if err := s.mayWork(r, receipts); err != nil {
		return err
	}
	lost, err := s.tasks.ReportTasks(r.Context(), report)
	return replyDone(w, receipts, lost, err)
}

// replyDone tells which receipts were good. One that was given twice counts twice.
func replyDone(w http.ResponseWriter, receipts []receipt, lost []engine.TaskRef, err error) error {
	if err != nil {
		return err
	}
	gone := lostReceipts(receipts, lost)
	return writeJSON(w, http.StatusOK, TasksDone{Done: len(receipts) - len(gone), Lost: gone})
}

// taskPolicy gives how failed tasks of a type are repeated.
func (s *server) taskPolicy(taskType string) engine.TaskPolicy {
	return engine.TaskPolicyOf(s.engine.Bundle().Pipeline(taskType))
}

func (s *server) listQueues(w http.ResponseWriter, r *http.Request) error {
	if err := s.needTasks(); err != nil {
		return err
	}
	all, err := s.tasks.TaskStats(r.Context())
	if err != nil {
		return err
	}
	items := []QueueStats{}
	for i := range all {
		items = append(items, viewOfStats(&all[i]))
	}
	return writeJSON(w, http.StatusOK, pageOf(items, ""))
}

// viewOfStats writes the counts of a type as replies have them.
func viewOfStats(t *engine.TaskTypeStats) QueueStats {
	q := QueueStats{
		Type: t.Type, Mode: string(t.Mode), Reason: t.Reason, Ready: t.Ready, Waiting: t.Waiting, Starting: t.Starting,
		Running: t.Running, Scheduled: t.Scheduled, Failed: t.Failed, Oldest: given(t.Oldest), Lag: t.Lag.Seconds(),
		Raised: t.Raised, RaisedAt: given(t.RaisedLast), Asked: given(t.Asked), AskedBy: t.AskedBy,
	}
	for _, state := range t.Estimated {
		q.Estimated = append(q.Estimated, string(state))
	}
	return q
}

// maxListedPayload bounds the payloads of a list of tasks, each in bytes: a page may have a
// thousand of them.
const maxListedPayload = 16 << 10

func (s *server) listTasks(w http.ResponseWriter, r *http.Request) error {
	if err := s.needTasks(); err != nil {
		return err
	}
	kind, err := pathValue(r, "pipeline")
	if err != nil {
		return err
	}
	q := queryFields(r.URL.Query())
	f := engine.TaskFilter{
		Type: kind, State: engine.TaskState(q.str("state")), Key: q.label("key", engine.MaxTaskName), Unique: q.label("unique", engine.MaxTaskName),
		Limit: q.between("limit", 1, maxLimit, defaultLimit), MaxPayload: maxListedPayload,
	}
	if text := q.str("id"); text != "" {
		f.MaxPayload = 0
		id, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			q.fault("id", "want the number of a task, have %s", shown(text))
		}
		f.IDs = []int64{id}
	}
	if f.State != "" && !slices.Contains(taskStates, f.State) {
		q.fault("state", "want one of %s, have %s", joined(taskStates), shown(string(f.State)))
	}
	if err := badParameter(q.faults); err != nil {
		return err
	}
	tasks, err := s.tasks.PeekTasks(r.Context(), f)
	if err != nil {
		return err
	}
	items := []QueuedTask{}
	for i := range tasks {
		items = append(items, viewOfTask(&tasks[i]))
	}
	return writeJSON(w, http.StatusOK, pageOf(items, ""))
}
