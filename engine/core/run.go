package core

import (
	"encoding/json"
	"time"

	"procaas/dsl/tree"
	"procaas/engine/checkpoint"
	"procaas/engine/model"
	"procaas/engine/planner"
)

// A Run is one event's way through a pipeline. It does no I/O, starts no goroutine and reads no
// clock. Tell it what happened, and ask it what to do.
//
// The caller's loop is
//
//	tasks := run.Ready(live)   // what may start now
//	save(run.Change())         // durably, BEFORE the tasks start
//	start(tasks)               // and for each that ends:
//	run.Finish(path, o, live)  // then from the top
//
// The caller must save [Run.Change] and [Run.TakeEmits] in one transaction BEFORE it starts the
// tasks from [Run.Ready]. It may save later if [Run.MustSave] is false. It must report the end of
// each task with [Run.Finish], and never start a task twice in one process. Then a crash may repeat
// a call, but never skip one. If a save fails for good, drop the run, because it is ahead of the
// store. A run is not safe for concurrent use.
type Run struct {
	// Room is memory for the records of the next checkpoint. Between two checkpoints, the caller
	// may lend it to another run.
	Room []checkpoint.Record

	decisions

	underway int // tasks in flight
	settled  bool
}

// decisions are the rules for handlers: whether they run, and what follows from results and errors.
// They start nothing, and do not know the calls in flight.
type decisions struct {
	progress

	undoable int // handlers that have succeeded and can be undone
}

// A progress is the state of a run that its checkpoint stores. It answers questions, and decides nothing.
type progress struct {
	plan  *planner.Plan
	start Start
	*whole

	began   time.Time
	stage   int      // index of the current stage; len(plan.Stages) when all are complete
	records []record // by Step.Position
	scope   scope

	clock      time.Time // start of the time of the pipeline's deadline; zero: not yet
	stageClock time.Time // and of the stage's deadline

	caller    *progress       // the run around it; nil outside of calls
	calledBy  unit            // the unit of caller
	outputs   json.RawMessage // the result; nil before the end, and if the pipeline declares none
	within    string          // prefix of refs inside a call; empty outside
	rawInputs json.RawMessage // of a call

	status     model.Status // Running until the end
	failedPath string       // the critical handler that has given up; no new starts
	failure    string
	class      string // of the error
	makesUp    string // the handler that it makes up for after its end; then it changes nothing for its key
	stopping   string // why an operator ends it; no new starts
	undoing    bool   // it is undoing what it has done
	reason     string
}

// A whole is the state that a run shares with the runs inside its calls.
type whole struct {
	news
	extent    extent
	redone    redone
	recording recording

	stood  time.Duration // how far the clock of deadlines is behind
	paused time.Time     // since when the clock stands still
	holds  bool          // an operator holds a handler, as of the current Ready
}

// A Start has the values that a run begins with.
type Start struct {
	ID         string // of the run; keys of calls and ids of emitted events are derived from it
	Event      model.Event
	Flow, Key  string
	State      string         // of the automaton; empty for an entity that no event has reached
	Shared     map[string]any // of the entity; names that the flow no longer declares are ignored
	Record     bool           // keep what is needed to replay the run; see [checkpoint.RunRecording]
	Most       int            // bytes of memory that the run may keep; 0 for the bound of all runs
	Generation int            // how often an operator has retried the run; a number above the checkpoint's restarts it
}

// Live has the values that may change during a run. The caller passes it at every step.
type Live struct {
	Now     time.Time      // by the store's clock, which also tells when a parked run is due
	Configs map[string]any // what expressions read as configs

	// Off reports whether a handler is switched off now, and why. nil switches none off. The run
	// calls it often and early, so it must be cheap and must not use up a limit. A handler that is
	// off is skipped at once, and other handlers do not wait for it, unless it has a fallback
	// result.
	Off func(*planner.Step) (reason string, off bool)

	// Share returns the percentage of runs that include a handler. ok is false, or Share is nil, if all runs include it.
	Share func(*planner.Step) (percent float64, ok bool)

	// Guard decides whether a call may start now. [Attempt.Ref] names the handler or one item of
	// its for-each. nil allows all calls. The run asks Guard last, so Guard may take a token of a
	// limit. It asks again at each Ready, so Guard must remember its grants. Due is when a retry
	// became due, and zero for a first attempt. Guard skips a critical handler only if an operator
	// has forced it.
	Guard func(s *planner.Step, ref string, due time.Time) Verdict

	// Memory decides whether the run may grow now, by the bytes that it keeps. nil always lets it
	// grow. Hold parks the run, so it leaves the memory of its node.
	Memory func(held int) Verdict
}

// A Verdict of the guard. The zero Verdict lets the handler run.
type Verdict struct {
	Skip   bool      // leave the handler out
	Hold   time.Time // park the run and ask again at this time; zero: do not hold
	Cause  string    // what it waits for, in addition to the time; see [model.Change]
	People bool      // an operator holds or limits it; deadlines stand still meanwhile
	// Turn says that it only waits for its turn. Deadlines stand still meanwhile if an operator has
	// held the run before.
	Turn   bool
	Reason string // why, for people
	Beside bool   // with Skip: give the call all the same, as an [Attempt] beside the run

	// Patience is how long a handler that is not critical is held before it is left out. 0 is forever.
	Patience time.Duration
}

// An Attempt is one attempt of a handler that may start now, or the call that verifies one.
type Attempt struct {
	Step    *planner.Step // the handler, or its compensation
	Item    int           // from 1, if the handler has a for-each; otherwise 0
	within  string        // the calls around it
	Type    tree.Type     // of Body
	Verify  bool          // it asks the service for the outcome of the attempt
	Attempt int           // from 1; a verification has the number of the attempt that it verifies
	Body    any           // evaluated; may hold [datum.Secret] values; the handler may change it
	// IdempotencyKey is the same for all attempts on all nodes. A call that was undone and is made
	// again has a new one.
	IdempotencyKey string
	Timeout        time.Duration // 0: the type decides

	// Beside says that the run does not wait for the call, and may have ended. The handler is
	// already skipped, and the caller does not report the outcome.
	Beside bool

	// Deadline is when the attempt must have ended, by the clock of Ready. Zero means none. The
	// attempt must not begin later.
	Deadline time.Time

	// Begun is when Ready returned the attempt, by its clock. A wait that the attempt asks for must
	// not count from an earlier time: the run has seen Begun already, and would end it early.
	Begun time.Time

	run  *progress // the run of the attempt
	unit unit
}

// Ref names the task among the run's tasks in flight. It is the path of the handler, with the index
// of the item if there is one. The calls around it come first.
func (t *Attempt) Ref() string { return t.within + model.RefOf(t.Step.Path, t.Item) }

// An Outcome is how a task ended.
type Outcome struct {
	Result model.Result // when Err is nil
	Err    error        // without the handler's path, which the run adds

	// Probe says that the call tested whether its service is back. Its failure does not count
	// against the attempts of a critical handler.
	Probe bool

	// Ended is when the task ended, by the clock of Ready. Zero means [Live].Now, which may be
	// later.
	Ended time.Time
}
