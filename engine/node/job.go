package node

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"procaas/engine/budget"
	"procaas/engine/canary"
	"procaas/engine/clock"
	"procaas/engine/core"
	"procaas/engine/definitions"
	"procaas/engine/guard"
	"procaas/engine/model"
	"procaas/engine/store"
	"procaas/engine/tracing"
)

// A job is one run that this node drives. It gives the pure core time, calls and the store.
//
// One goroutine at a time drives a job: the one that has its turn. Only that one may use the fields
// of the job, except where they say otherwise. What others want of the run they put down where the
// driver looks, and call news.
type job struct {
	// What the node took.

	n       *node
	claimed *store.Claimed
	came    time.Time  // when the node took the run
	lane    model.Lane // as reported to the turns
	mem     *budget.Holder
	log     *slog.Logger
	trace   *tracing.Run // nil if the node does not trace

	// What begin adds. A job without it can only end.

	begun bool // the first round has been made
	def   *definitions.Definition
	run   *core.Run
	watch *canary.Watch // nil if no new version is on trial

	// What the store has of the run. Only a commit with this version is accepted, so a node that was
	// fenced without noticing changes nothing.

	version  int64
	complete int       // stages that are complete there
	unsaved  time.Time // since when the core has a change that only people would miss; zero: none

	// What the core is told. Time never goes back for a run, even if the clock does.

	rules core.Live       // without what changes between two uses
	seen  *guard.Controls // the controls that Ready has used last
	last  time.Time       // the latest time that the core has seen
	pass  guard.Pass
	held  map[string]bool // calls that the guard makes wait, by Attempt.Ref

	// Its turns and its calls in flight.

	turn       turn          // guards itself
	own        *core.Attempt // a call that the goroutine makes which has the turn
	again      bool          // ask Ready before waiting
	underway   int           // calls in flight whose end the run hears of
	cancelling bool          // no more calls start, and the run ends with those in flight
	calls      context.Context
	stopCalls  context.CancelFunc // ends calls

	// What others want of the run. They may be set at any time, by any goroutine.

	cancelled atomic.Bool            // an operator has cancelled the run
	moving    atomic.Pointer[string] // the definition that an operator moves it to; nil for none
	stopping  atomic.Pointer[string] // why an operator wants it undone; nil for none

	ends bool // only the commit of its end is missing, so it needs no room; guarded by n.mu
}

// newJob makes a job. The caller has its turn.
func newJob(n *node, c *store.Claimed) *job {
	j := &job{
		n: n, claimed: c, version: c.Version, came: time.Now(), turn: turn{taken: true},
		log:   slog.New(&lazyHandler{n.log.Handler(), (*runLog)(c)}),
		trace: tracing.New(n.d.Tracer, c),
	}
	j.calls, j.stopCalls = clock.WithCancel(n.calls)
	j.pass.Age = c.Accepted
	if c.Event.At.After(j.pass.Age) {
		j.pass.Age = c.Event.At
	}
	if reason, ok := model.UndoReason(c.Move); ok {
		j.stopping.Store(&reason)
	} else if c.Move != "" {
		j.moving.Store(&c.Move)
	}
	j.holdMemory()
	j.rules = j.liveRules()
	j.pass.Wake = j.news
	j.pass.Tokens = n.tokens
	return j
}

// at returns the log for a path: a handler's, or the pipeline if it is empty. All log records of a
// run have the keys path, run and key.
func (j *job) at(path string) *slog.Logger {
	if path == "" {
		path = j.claimed.Pipeline // only the run's own goroutine may read it, because a commit may change it
	}
	return j.log.With("path", path)
}

// A runLog has the attributes of log records of a run.
type runLog store.Claimed

func (c *runLog) attrs() []slog.Attr {
	return []slog.Attr{slog.String("run", c.ID), slog.String("key", c.Key)}
}

// cancel asks the run to end. It may be called several times.
func (j *job) cancel() {
	j.cancelled.Store(true)
	j.news()
}
