package core

import (
	"encoding/json"
	"time"

	"procaas/dsl/tree"
	"procaas/engine/checkpoint"
	"procaas/engine/model"
	"procaas/engine/planner"
)

// A Run is one event's way through a pipeline. It does no I/O, starts no goroutine and reads no clock. Tell it what
// happened, and ask it what to do.
//
// The caller's loop is
//
//	tasks := run.Ready(live)   // what may start now
//	save(run.Change())         // durably, BEFORE the tasks start
//	start(tasks)               // and for each that ends:
//	run.Finish(path, o, live)  // then from the top
//
// The caller must save [Run.Change] and [Run.TakeEmits] in one transaction BEFORE it starts the tasks from [Run.Ready].
// It may save later if [Run.MustSave] is false. It must report the end of each task with [Run.Finish], and never start
// a task twice in one process. Then a crash may repeat a call, but never skip one. If a save fails for good, drop the
// run, because it is ahead of the store. A run is not safe for concurrent use.
type Run struct {
	// Room is for the records of the next checkpoint. The caller may lend it to another run between two.
	Room []checkpoint.Record

	decisions

	underway int // tasks
	settled  bool
}

// decisions are the rules for handlers: whether they run, and what follows from results and errors. They start nothing,
// and do not know the calls in flight.
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
	stage   int      // that is under way; len(plan.Stages) when all are complete
	records []record // by Step.position
	scope   scope

	clock      time.Time // since when the deadline of the pipeline counts; zero: not yet
	stageClock time.Time // and that of the stage

	caller    *progress       // that the run is inside of; nil outside
	calledBy  unit            // of caller
	outputs   json.RawMessage // the result; nil before the end, and when the pipeline declares none
	within    string          // what refs begin with inside of a call; empty outside
	rawInputs json.RawMessage // of a call

	status     model.Status // Running until the end
	failedPath string       // of the critical handler that has given up; no new starts
	failure    string
	class      string // of the error
	makesUp    string // the handler that it does after it had ended; it leaves nothing to its key then
	stopping   string // why an operator wants it to end; no new starts
	undoing    bool   // it undoes what it has done
	reason     string
}

// A whole is the state that a run shares with the runs inside its calls.
type whole struct {
	news
	extent extent
	redone map[string]int // how often what a ref names was undone, to be done again

	recording *checkpoint.RunRecording // nil for a run that is not recorded
	launched  map[string]time.Time     // when the calls in flight began, by ref; of a run that is recorded

	stood  time.Duration // how far the clock of deadlines is behind
	paused time.Time     // since when it stands
	holds  bool          // an operator holds a handler; of the present Ready
}

// A Start has the values that a run begins with.
type Start struct {
	ID         string // of the run; keys of calls and ids of emitted events follow from it
	Event      model.Event
	Flow, Key  string
	State      string         // of the automaton; empty for an entity that no event has reached
	Shared     map[string]any // of the entity; names that the flow no longer declares are left alone
	Record     bool           // keep what is needed to replay the run; see [checkpoint.RunRecording]
	Generation int            // how often an operator has retried the run; a higher one than the checkpoint's lets it go on
}

// Live has the values that may change during a run. The caller passes it at every step.
type Live struct {
	Now     time.Time      // by the store's clock, which also tells when a parked run is due
	Configs map[string]any // what expressions read as configs

	// Off reports whether a handler is switched off now, and why. nil switches none off. The run calls it often and early,
	// so it must be cheap and must not use up a limit. A handler that is off is skipped at once, and other handlers do not
	// wait for it, unless it has a fallback result.
	Off func(*planner.Step) (reason string, off bool)

	// Share returns the percentage of runs that include a handler. ok is false, or Share is nil, if all runs include it.
	Share func(*planner.Step) (percent float64, ok bool)

	// Guard decides whether a call may start now. [Attempt.Ref] names the handler or one item of its for-each. nil allows
	// all calls. The run asks Guard last, so Guard may take a token of a limit. It asks again at each Ready, so Guard must
	// remember its grants. Due is when a retry became due, and zero for a first attempt. Guard skips a critical handler
	// only if an operator has forced it.
	Guard func(s *planner.Step, ref string, due time.Time) Verdict
}

// A Verdict of the guard. The zero Verdict lets the handler run.
type Verdict struct {
	Skip   bool      // leave the handler out
	Hold   time.Time // park the run and ask again at this time; zero: do not hold
	Cause  string    // what it waits for, in addition to the time; see [model.Change]
	People bool      // an operator holds or limits it; deadlines stand still meanwhile
	Turn   bool      // it only waits for its turn; deadlines stand still meanwhile if an operator has held the run before
	Reason string    // why, for people
	Beside bool      // with Skip: give the call all the same, as an [Attempt] beside the run

	// Patience is how long a handler that is not critical is held before it is left out. 0 is forever.
	Patience time.Duration
}

// A Attempt is one attempt of a handler that may start now, or the call that asks
// what became of one.
type Attempt struct {
	Step           *planner.Step // the handler, or its compensation
	Item           int           // that it is for, from 1, when the handler has a for-each; otherwise 0
	within         string        // the calls that it is inside of
	Type           tree.Type     // of Body
	Verify         bool          // it asks what became of the attempt
	Attempt        int           // from 1; of a verification, the attempt that it asks about
	Body           any           // evaluated; may hold [datum.Secret] values; the handler's to change
	IdempotencyKey string        // the same for all attempts, on any node; another one once the call was undone and is made anew
	Timeout        time.Duration // 0: the type decides

	// Beside says that the run does not wait for the call, and may have ended. The handler is left out already. The
	// caller does not report how the call ends.
	Beside bool

	// Deadline is when the attempt must have ended, by the clock that Ready goes by; zero for
	// none. It may not begin later.
	Deadline time.Time

	run  *progress // that it is of
	unit unit
}

// Ref names the task among those of the run that are under way: the path of its
// handler, with the index of the item when it is for one, and before that the calls of
// pipelines that it is inside of.
func (t *Attempt) Ref() string { return t.within + model.RefOf(t.Step.Path, t.Item) }

// An Outcome is how a task ended.
type Outcome struct {
	Result model.Result // when Err is nil
	Err    error        // without the handler's path, which the run adds

	// Probe says that the call was made to find out whether its service is back.
	// Its failure does not count against the attempts of a critical handler.
	Probe bool

	// Ended is when it ended by the clock that Ready goes by; zero for [Live].Now, which may be a later bound of it.
	Ended time.Time
}
