package core

import (
	"encoding/json"
	"fmt"
	"time"

	"procaas/dsl/datum"
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
//
// A called pipeline, and each element of a repeated stage, is a Run inside the run. It is reached
// through the record of its handler, and shares whole with the run around it.
type Run struct {
	// What the run was begun with. None of it changes.

	plan     *planner.Plan
	start    Start
	whole    *whole // shared with all runs inside this one
	caller   *Run   // the run around it; nil outside of calls
	calledBy unit   // the unit of caller whose call it is
	within   string // prefix of refs inside a call; empty outside

	// How far the run is. A checkpoint has all of this, so that another node can go on from it.

	began   time.Time
	stage   int      // index of the current stage; len(plan.Stages) when all are complete
	records []record // by Step.Position
	scope   scope    // values that expressions read, and the shared state

	clock      time.Time // start of the time of the pipeline's deadline; zero: not yet
	stageClock time.Time // and of the stage's deadline
	own        lengths   // of these deadlines; only this process knows it

	rawInputs json.RawMessage // of a call
	outputs   json.RawMessage // the result; nil before the end, and if the pipeline declares none

	// How it ends. Once failedPath or stopping is set, no handler begins any more, and neither is
	// taken back: only an operator's retry resets failedPath.

	status     model.Status // Running until the end
	failedPath string       // the critical handler that has given up
	failure    string       // what people read about it
	class      string       // of the error
	stopping   string       // why an operator ends it
	undoing    bool         // it is undoing what it has done
	closing    model.Status // how it ends once finally is done; empty before that begins
	makesUp    string       // the handler that it makes up for after its end; then it changes nothing for its key
	reason     string

	// undoable counts the handlers that have succeeded and can be undone. It gives each of them its
	// rank, because they are undone in the reverse of this order. It is restored from the records.
	undoable int

	// What only this process knows. It is right to begin with zero after a crash: calls in flight
	// are lost with their process.

	underway int    // tasks in flight, also inside calls
	settled  bool   // Ready has decided everything that it can: only news or time can change more
	saved    []byte // the last checkpoint
}

// A whole is the state that a run shares with the runs inside its calls. Only the checkpoint of the
// outermost run has it.
type whole struct {
	extent    extent    // how large the run has become
	redone    redone    // calls that were undone and are made again, so they need new keys
	recording recording // of calls, for replay

	// The clock of deadlines; see deadline.go.

	stood  time.Duration // how far it is behind the time of the store
	paused time.Time     // since when it stands still; zero if it runs
	holds  bool          // an operator holds a handler, as of the current Ready
	bound  bool          // an operator has set a deadline; only this process knows it

	// What has changed since the last [Run.Change]. must implies dirty, and so does costly.

	dirty   bool // something has changed
	must    bool // and the change must survive a crash
	costly  bool // outcomes of elements have changed: forgetting one in a crash repeats its call
	further bool // a handler or an element was decided, or a call ended

	refused string // why the last outcome of a call without an error has failed all the same; see [Run.Refused]

	// What the next change brings along.

	emits []model.Event            // events to accept in its transaction
	taken []model.Taken            // events that an await has taken; no other run may take them
	ended []checkpoint.HandlerView // for logs and metrics; may be lost in a crash
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

// Begin starts a run at its first stage.
func Begin(p *planner.Plan, s Start) *Run {
	r := newRun(p, s, nil)
	r.whole.dirty, r.whole.must = true, p.Contested
	return r
}

// newRun makes a run. in is the state of the run around it, or nil for the outermost run.
func newRun(p *planner.Plan, s Start, in *whole) *Run {
	r := &Run{plan: p, start: s, whole: in, status: model.Running, records: make([]record, len(p.Steps))}
	r.scope = scope{
		plan:    p,
		shared:  make(state, len(p.Shared)),
		sources: sources{},
		raw:     make(checkpoint.Values, 0, len(p.Shared)),
		size:    len("{}"),
		roots:   datum.Env{},
	}
	if in == nil {
		most := holdMost + 4*int(p.Pipeline.MaxState)
		if s.Most > 0 {
			most = min(most, s.Most)
		}
		event := datum.Size(s.Event.Payload)
		r.whole = &whole{extent: extent{run: r, most: most, event: event, weighed: event}}
		r.scope.root = "event"
	}
	r.scope.extent = &r.whole.extent
	for _, n := range p.Shared {
		r.scope.set(n.Name, n.Value, n.Raw)
		value, ok := s.Shared[n.Name]
		if !ok || !n.Kept {
			continue
		}
		raw, err := model.EncodeData(value)
		if err != nil {
			r.failure = fmt.Sprintf("shared state %s of %s %s: %v", n.Name, s.Flow, s.Key, err)
			r.end(model.Failed)
			continue
		}
		r.scope.set(n.Name, value, raw)
	}
	return r
}
