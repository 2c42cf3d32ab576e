package core

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"procaas/dsl"
	"procaas/engine/checkpoint"
	"procaas/engine/model"
	"procaas/engine/planner"
)

// A Run is one event's way through a pipeline. It does no I/O, starts no
// goroutine and reads no clock: tell it what happened, ask it what to do.
//
// The caller's loop is
//
//	tasks := run.Ready(live)   // what may start now
//	save(run.Change())         // durably, BEFORE the tasks start
//	start(tasks)               // and for each that ends:
//	run.Finish(path, o, live)  // then from the top
//
// The duties that follow: save [Run.Change] and [Run.TakeEmits] in one
// transaction BEFORE starting the tasks that [Run.Ready] gave with it, which may
// be put off while [Run.MustSave] is false; tell each task's end with
// [Run.Finish]; never start a task twice in one process. A crash then may repeat
// a call, never skip one. When a save fails for good, drop the run: what it
// holds is ahead of the store. A run is not safe for concurrent use.
type Run struct {
	plan  *planner.Plan
	start Start

	began   time.Time
	stage   int      // that is under way; len(plan.Stages) when all are complete
	records []record // by Step.position
	scope   scope
	*whole

	within    string          // what refs begin with inside of a call; empty outside
	rawInputs json.RawMessage // of a call

	status     model.Status // Running until the end
	failedPath string       // of the critical handler that has given up; no new starts
	failure    string
	class      string // of the error
	makesUp    string // the handler that it does after it had ended; it leaves nothing to its key then
	stopping   string // why an operator wants it to end; no new starts
	undoing    bool   // it undoes what it has done
	undoable   int    // handlers that have succeeded and can be undone
	reason     string

	underway int // tasks
	settled  bool
	saved    []checkpoint.Record // room for the next checkpoint
}

// A whole is what a run shares with the runs inside of its calls.
type whole struct {
	news
	extent extent
	redone map[string]int // how often what a ref names was undone, to be done again
}

// A Start is what a run begins with.
type Start struct {
	ID         string // of the run; keys of calls and ids of emitted events follow from it
	Event      model.Event
	Flow, Key  string
	State      string         // of the automaton; empty for an entity that no event has reached
	Shared     map[string]any // of the entity; names that the flow no longer declares are left alone
	Generation int            // how often an operator has retried the run; a higher one than the checkpoint's lets it go on
}

// Live is what may change while a run goes on; it is passed in at every step.
type Live struct {
	Now     time.Time      // by the store's clock, which also tells when a parked run is due
	Configs map[string]any // what expressions read as configs

	// Off says whether a handler is switched off at present, and why; nil
	// switches none off. It is asked often and early, so it must be cheap and
	// take nothing. A handler that is off drops out of the proof: it is skipped
	// at once, and the handlers that would wait for it need not, unless it has a
	// fallback result that stands in for it at its place.
	Off func(*planner.Step) (reason string, off bool)

	// Share gives the percentage of runs in which a handler runs, when it is not
	// to run in all; nil lets it run in all.
	Share func(*planner.Step) (percent float64, ok bool)

	// Guard says whether a call of a handler may start now, that for one item of a
	// for-each being told by its [Attempt.Ref]; nil lets all start. It is asked
	// when nothing else keeps an attempt from starting, so it may take a token
	// of a limit, and again whenever Ready is, so it must remember what it has
	// given. Due is since when a repetition might start; zero for what is none.
	// It never skips a critical handler unless an operator has forced it to.
	Guard func(s *planner.Step, ref string, due time.Time) Verdict
}

// A Verdict of the guard. The zero Verdict lets the handler run.
type Verdict struct {
	Skip   bool      // leave the handler out
	Hold   time.Time // ask again at this time, the run parked meanwhile; zero: do not hold
	Cause  string    // what it waits for besides the time; see [model.Change]
	Reason string    // why, for people

	// Patience is for how long a handler that is not critical is held for this.
	// Then it is left out. 0 for ever.
	Patience time.Duration
}

// A Attempt is one attempt of a handler that may start now, or the call that asks
// what became of one.
type Attempt struct {
	Step           *planner.Step // the handler, or its compensation
	Item           int           // that it is for, from 1, when the handler has a for-each; otherwise 0
	within         string        // the calls that it is inside of
	Type           dsl.Type      // of Body
	Verify         bool          // it asks what became of the attempt
	Attempt        int           // from 1; of a verification, the attempt that it asks about
	Body           any           // evaluated; may hold [datum.Secret] values; the handler's to change
	IdempotencyKey string        // the same for all attempts, on any node; another one once the call was undone and is made anew
	Timeout        time.Duration // 0: the type decides
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
}

// Begin starts a run at its first stage.
func Begin(p *planner.Plan, s Start) *Run {
	r := newRun(p, s, nil)
	r.dirty, r.must = true, p.Contested
	return r
}

// newRun makes a run; in is the one that it is inside of, or nil.
func newRun(p *planner.Plan, s Start, in *whole) *Run {
	r := &Run{
		plan: p, start: s, status: model.Running, whole: in,
		records: make([]record, len(p.Steps)),
		scope: scope{
			plan:    p,
			shared:  make(map[string]any, len(p.Shared)),
			sources: make(map[string]any, len(p.Steps)),
			raw:     make(map[string]json.RawMessage, len(p.Shared)),
			wrote:   map[string]bool{},
		},
	}
	if in == nil {
		r.whole = &whole{redone: map[string]int{}, extent: extent{all: r, most: holdMost + 4*int(p.Pipeline.MaxState)}}
		r.scope.root, r.scope.origin = "event", model.EventData(s.Event)
		r.scope.flow = map[string]any{"id": s.Flow, "key": s.Key, "state": planner.StateOf(p.Flow, s.State)}
	}
	r.scope.extent = &r.extent
	for _, n := range p.Shared {
		r.scope.shared[n.Name], r.scope.raw[n.Name] = n.Value, n.Raw
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
		r.scope.shared[n.Name], r.scope.raw[n.Name] = value, raw
	}
	return r
}

// Ready gives the tasks that may start now, in parallel: those of the present
// stage whose edges are satisfied. It decides about handlers that are skipped
// and about waits that are over, so the run may have ended afterwards: look at
// [Run.Status]. Each task is given once.
//
// The body of a handler is evaluated at its first attempt and stays the same
// for the attempts of this process. After a resume it is evaluated again, which
// gives the same: all it reads has been decided before, only configs may have
// changed meanwhile. The same holds for enabled, which is not asked again once
// an attempt has been made.
func (r *Run) Ready(live Live) []Attempt {
	r.beginsAt(live.Now)
	if r.within == "" {
		r.extent.flying = r.underway
	}
	var tasks []Attempt
	// A stage whose handlers are all decided without a call, such as skipped ones, leads on
	// to the next at once.
	for moved := true; moved; {
		r.advance()
		if r.status.Ended() {
			break
		}
		r.enter(live)
		for _, s := range r.plan.Stages[r.stage].Steps {
			if r.givesUp() && !r.lost(s) {
				continue // what has not begun does not begin any more
			}
			tasks = r.begin(tasks, s, live)
		}
		moved = r.advance()
	}
	if r.undoing && !r.status.Ended() {
		tasks = r.undo(tasks, live)
	}
	r.settled = true
	return tasks
}

// advance goes on to the first stage that is not complete, and ends the run
// when there is none, or when it has failed and no task is under way. It tells
// whether there is a new stage to look at.
func (r *Run) advance() (moved bool) {
	if r.status.Ended() {
		return false
	}
	if r.givesUp() {
		if r.underway == 0 && (r.undoing || r.firstLost() == nil) {
			r.surrender()
		}
		return false
	}
	for r.stage < len(r.plan.Stages) {
		for _, s := range r.plan.Stages[r.stage].Steps {
			if !r.records[s.Position].decided() {
				return moved
			}
		}
		r.stage++
		r.touch()
		moved = true
	}
	r.end(model.Succeeded)
	return false
}

func (r *Run) end(s model.Status) {
	r.status = s
	r.touch()
}

// beginsAt notes when the run begins, once.
func (r *Run) beginsAt(now time.Time) {
	if r.began.IsZero() {
		r.begins(model.Stamp(now))
	}
}

func (r *Run) begins(at time.Time) {
	r.began = at
	if r.within == "" {
		r.extent.began = at
	}
	r.scope.begins(r.start.ID, at)
}

// Finish tells how the task with a [Attempt.Ref] ended. One that is not under way is
// ignored: the run may have been cancelled meanwhile.
func (r *Run) Finish(ref string, o Outcome, live Live) {
	u, rest, inside, ok := r.called(ref)
	if ok && inside && !r.status.Ended() {
		r.finishIn(u, rest, o, live)
		return
	}
	if !ok || !u.rec.underway || r.status.Ended() {
		return
	}
	rec := u.rec
	rec.underway = false
	r.underway--
	r.extent.flying--
	r.further = true
	r.settled = false
	r.touch() // an end that is forgotten in a crash would be a call made again
	if u.Undoes {
		r.undone(u, o, live)
	} else if rec.asking {
		r.answered(u, o, live)
	} else {
		r.attempted(u, o, live)
	}
	if u.item > 0 {
		r.finishItems(u.Step, live)
	}
	r.advance()
}

// attempted takes how an attempt ended.
func (r *Run) attempted(u unit, o Outcome, live Live) {
	events, err := r.take(u, o, live)
	switch {
	case err != nil:
		r.failed(u, err, o.Probe, live)
	case u.rec.outcome != model.OutcomeWaiting:
		r.succeeded(u, live)
	}
	if u.rec.outcome != model.OutcomeFailed { // its result may not have been computable: then nothing of it counts
		r.emit(u.rec, events)
	}
}

// Cancel ends the run; tasks that are still going on are forgotten. A run that
// has ended stays as it is.
func (r *Run) Cancel(reason string, now time.Time) {
	if r.status.Ended() {
		return
	}
	r.beginsAt(now)
	r.reason = reason
	r.end(model.Cancelled)
}

// Status tells where the run is: Running while tasks are going on or Ready must
// be asked, Parked while it only waits for a time or for an operator, or an end.
func (r *Run) Status() model.Status {
	if r.status == model.Running && r.settled && r.underway == 0 {
		return model.Parked
	}
	return r.status
}

// Withdraw tells that a task that Ready gave does not start after all, so that
// Ready decides about it anew.
func (r *Run) Withdraw(ref string, now time.Time) {
	u, rest, inside, ok := r.called(ref)
	if ok && inside {
		r.withdrawIn(u, rest, now)
		return
	}
	if !ok || !u.rec.underway {
		return
	}
	rec := u.rec
	if !rec.asking {
		rec.attempts-- // it was counted when it was given; a verification has the number of what it asks about
	}
	rec.underway, rec.asking = false, false
	if rec.attempts > 0 && !rec.blind {
		rec.due = model.Stamp(now) // or it would look like an attempt whose end is not known
	}
	r.underway--
	r.extent.flying--
	r.settled = false
	r.touch()
}

// Cause names what the run waits for besides a time. Without it, nobody calls the run
// up when that is over.
func (r *Run) Cause() string {
	if r.undoing {
		return r.undoCause()
	}
	if r.stage == len(r.plan.Stages) {
		return ""
	}
	var causes []string
	var last time.Time
	var retry string
	for _, s := range r.plan.Stages[r.stage].Steps {
		r.visit(s, func(u unit) {
			if c := u.rec.cause; c != "" && !u.rec.decided() && !slices.Contains(causes, c) {
				causes = append(causes, c)
			}
			if u.rec.sub != nil && !u.rec.decided() {
				for c := range strings.SplitSeq(u.rec.sub.Cause(), ",") {
					if c != "" && !slices.Contains(causes, c) {
						causes = append(causes, c)
					}
				}
			}
			if u.rec.repeats() && u.rec.due.After(last) {
				last, retry = u.rec.due, s.Path+CauseRetry
			}
		})
	}
	if retry != "" && len(causes) == 0 {
		causes = append(causes, retry) // one is enough: runs must not name each set of handlers that there is
	}
	return strings.Join(causes, ",")
}

// Next tells when Ready will have something new without a Finish: the earliest
// retry, wait or hold. Zero when there is none, and when the run stands still
// until an operator has decided about a handler with [model.OutcomeUnknown].
func (r *Run) Next() time.Time {
	var next time.Time
	if r.undoing && !r.status.Ended() {
		return r.nextUndo()
	}
	if r.status.Ended() || r.stage == len(r.plan.Stages) {
		return next
	}
	if r.givesUp() {
		if s := r.firstLost(); s != nil {
			return r.records[s.Position].next()
		}
		return next
	}
	unknown := false
	for _, s := range r.plan.Stages[r.stage].Steps {
		r.visit(s, func(u unit) {
			unknown = unknown || u.rec.outcome == model.OutcomeUnknown
			if sub := u.rec.sub; sub != nil && !u.rec.decided() && !r.cutOff(u) {
				path, _ := sub.Stuck()
				unknown = unknown || path != ""
				if due := sub.Next(); !due.IsZero() && (next.IsZero() || due.Before(next)) {
					next = due
				}
			}
			if due := u.rec.next(); !due.IsZero() && (next.IsZero() || due.Before(next)) && !r.cutOff(u) {
				next = due
			}
		})
	}
	if unknown {
		return time.Time{} // only an operator can tell; the others of the stage go on with that
	}
	return next
}

// StageTimes tells when the first handler of a stage began and the last one was
// decided; false when none has been.
func (r *Run) StageTimes(stage int) (from, to time.Time, ok bool) {
	for _, s := range r.plan.Stages[stage].Steps {
		rec := &r.records[s.Position]
		if !rec.decided() {
			continue
		}
		began := rec.started
		if began.IsZero() {
			began = rec.finished
		}
		if !ok || began.Before(from) {
			from = began
		}
		if rec.finished.After(to) {
			to = rec.finished
		}
		ok = true
	}
	return from, to, ok
}

// Stuck tells at which handler the run stands still until an operator decides,
// and why.
func (r *Run) Stuck() (path, why string) {
	for i, s := range r.plan.Steps {
		if !r.records[i].reached() {
			continue
		}
		r.visit(s, func(u unit) {
			if u.rec.outcome == model.OutcomeUnknown && path == "" {
				path, why = u.ref(), u.rec.reason
			}
			if u.rec.sub != nil && path == "" {
				path, why = u.rec.sub.Stuck()
			}
		})
	}
	return path, why
}

// Plan gives the plan that the run goes by.
func (r *Run) Plan() *planner.Plan { return r.plan }

// Began tells when the run began; zero before its first [Run.Ready].
func (r *Run) Began() time.Time { return r.began }

// Stage gives the index of the stage that is under way in [planner.Plan.Stages], or their number when
// all are complete.
func (r *Run) Stage() int { return r.stage }

// IsStopping tells whether an operator wants the run undone and ended.
func (r *Run) IsStopping() bool { return r.stopping != "" }

// Multiplies tells whether the run has started others in the loop that its pipeline is part of.
func (r *Run) Multiplies() bool { return r.extent.looped > 0 }

// Change gives what must be saved BEFORE the tasks that Ready gave start: the
// checkpoint, the status, and what ends with it. Version and Emit are left to
// the driver to complete: see [Run.TakeEmits].
func (r *Run) Change() model.Change {
	r.dirty, r.must = false, false
	c := model.Change{
		Run: r.start.ID, Pipeline: r.plan.Pipeline.ID, Bundle: r.plan.Bundle.Hash,
		Status: r.Status(), Checkpoint: r.Checkpoint(), Reason: r.reason,
	}
	c.Progress, r.further = r.further, false
	c.Take, r.taken = r.taken, nil
	switch c.Status {
	case model.Parked:
		if a, ok := r.Awaits(); ok {
			c.Awaits, c.Heard = a.Types, a.Heard
		}
		c.Due, c.Cause = r.Next(), r.Cause()
	case model.Failed, model.Cancelled:
		c.FailedPath, c.Error, c.ErrorClass = r.gaveUp()
	case model.Succeeded:
		if c.LeftOut = r.leftOut(); r.makesUp != "" {
			break // the later events of the key have gone on from what it left
		}
		c.State, _ = planner.Transition(r.plan.Flow, r.start.State, r.start.Event.Type)
		c.Shared = r.scope.kept()
	}
	return c
}

// CauseRetry ends the cause of a run that waits to repeat the call of a handler,
// whose path comes before. It goes on without the handler when that is taken out.
const CauseRetry = " retry"
