package engine

import "time"

// A Run is one event's way through a pipeline. It does no I/O, starts no
// goroutine and reads no clock: tell it what happened, ask it what to do.
//
// The caller's duties: save [Run.Change] durably BEFORE starting the tasks that
// [Run.Ready] gave with it; tell each task's end with [Run.Finish]; never start
// a task twice in one process. A run is not safe for concurrent use.
type Run struct {
	plan *Plan
}

// A Start is what a run begins with.
type Start struct {
	ID         string
	Event      Event
	Flow, Key  string
	State      string         // of the automaton
	Shared     map[string]any // of the entity
	Generation int
}

// Live is what may change while a run goes on; it is passed in at every step.
type Live struct {
	Now     time.Time
	Configs map[string]any

	// Guard says whether a handler may run now; nil lets all run.
	Guard func(*Step) Verdict
}

// A Verdict of the guard. The zero Verdict lets the handler run.
type Verdict struct {
	Skip   bool      // leave the handler out
	Hold   time.Time // ask again at this time, the run parked meanwhile; zero: do not hold
	Reason string    // why, for people
}

// A Task is one attempt of a handler that may start now.
type Task struct {
	Step           *Step
	Attempt        int
	Body           any // evaluated; may hold [dsl.Secret] values
	IdempotencyKey string
	Timeout        time.Duration // 0: the type decides
}

// An Outcome is how a task ended.
type Outcome struct {
	Result Result
	Err    error
}

// Begin starts a run at its first stage.
func Begin(p *Plan, s Start) *Run { panic("engine: Begin is not written yet") }

// Resume continues a run from its checkpoint. When s.Generation is higher than
// the checkpoint's, an operator has retried the run: what had failed starts
// afresh. The error says why the checkpoint does not fit the plan.
func Resume(p *Plan, s Start, checkpoint []byte) (*Run, error) {
	panic("engine: Resume is not written yet")
}

// Ready gives the tasks that may start now, in parallel. It decides about
// handlers that are skipped, so the run may have ended afterwards: look at
// [Run.Status]. Each task is given once.
func (r *Run) Ready(live Live) []Task { panic("engine: Run.Ready is not written yet") }

// Finish tells how a task ended.
func (r *Run) Finish(path string, o Outcome, live Live) {
	panic("engine: Run.Finish is not written yet")
}

// Cancel ends the run; tasks that are still going on are forgotten.
func (r *Run) Cancel(reason string, now time.Time) { panic("engine: Run.Cancel is not written yet") }

// Status tells where the run is: Running while tasks are going on or ready,
// Parked while it only waits for a time, or an end.
func (r *Run) Status() Status { panic("engine: Run.Status is not written yet") }

// Next tells when Ready will have something new without a Finish: the earliest
// retry, wait or hold. Zero when there is none.
func (r *Run) Next() time.Time { panic("engine: Run.Next is not written yet") }

// Dirty tells whether anything has changed since the last Change.
func (r *Run) Dirty() bool { panic("engine: Run.Dirty is not written yet") }

// Change gives what must be saved BEFORE the tasks that Ready gave start: the
// checkpoint, the status, and what ends with it. Emitted events come out once.
// Run, Version and Emit are left to the driver to complete: see [Run.TakeEmits].
func (r *Run) Change() Change { panic("engine: Run.Change is not written yet") }

// TakeEmits gives the events to accept with the next change, once. Their ids
// are derived from the run and the handler's path, so a repetition is found.
func (r *Run) TakeEmits() []Event { panic("engine: Run.TakeEmits is not written yet") }
