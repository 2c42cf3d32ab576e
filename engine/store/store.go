package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"procaas/engine/model"
)

// What callers of a store test for.
var (
	// ErrNotFound says that what was asked for does not exist.
	ErrNotFound = errors.New("not found")

	// ErrFenced says that the node may not write any more: another one has
	// taken over. All that it holds in memory is stale.
	ErrFenced = errors.New("node is fenced: another node has taken over its runs")

	// ErrForgotten is the [ErrFenced] of a node that the store has never heard of, or
	// that was gone for longer than [NodesRemembered].
	ErrForgotten = fmt.Errorf("the store does not know the node's number: %w", ErrFenced)

	// ErrRefused says that a store cannot take something because of what is in it, such as
	// a text that it cannot keep, however often it is tried. Whatever else a store fails
	// with may pass: no room on its disk, a lock, a time-out.
	ErrRefused = errors.New("the store cannot keep the data")

	// ErrLost says that the store is not the one that this process has written to:
	// it was set back, removed or replaced. Nothing is written to it.
	ErrLost = errors.New("the store has lost what it acknowledged")

	// ErrCancelled says that an operator has asked for the run's end.
	ErrCancelled = errors.New("run is cancelled")

	// ErrUndoing says that a run is cancelled already, and undoes what it has done.
	ErrUndoing = errors.New("run is cancelled already, and undoes what it has done")

	// ErrConflict says that the present status does not allow the operation,
	// or that an event's id was used before with another body.
	ErrConflict = errors.New("conflict")

	// ErrStale says that the run has moved on since it was read.
	ErrStale = errors.New("run has moved on")

	// ErrRejected says that the automaton refuses an event in the present
	// state of its entity.
	ErrRejected = errors.New("the state does not allow the event")

	// ErrCursor says that a cursor is none that a listing gave.
	ErrCursor = errors.New("cursor is not one that a listing gave")
)

// A Store is where nodes keep what they have: a port for each of its concerns. Whoever
// needs one concern takes its port. To change what a store does, as tests do, put another
// port in the place of one.
type Store struct {
	Inbox       Inbox
	Ledger      Ledger
	Runs        Runs
	Bundles     Bundles
	Settings    Settings
	Tokens      Tokens
	Audits      Audits
	Degradation Degradation
	Documents   Documents

	// What a store may leave out. It is nil then.
	Waker     Waker      // without, nodes look for themselves
	Gauge     Gauge      // without, Inbox.Depth is asked
	Trimmer   Trimmer    // without, nothing is forgotten
	Scattered Scattered  // without, all is in one place
	Tasks     *TaskStore // without, it keeps no tasks

	// Close ends the work of the store, and waits for calls under way.
	Close func() error
}

// An Inbox takes events in.
type Inbox interface {
	// Accept stores each event with its run in one transaction, and returns a
	// result for each, in order. An event marked Dedup whose source and id were
	// accepted before, in this batch too, is not stored again: the same hash
	// gives a duplicate, another hash [ErrConflict] in the result. The error is
	// for the whole batch: nothing is stored when it is [ErrFenced] or says
	// what is wrong with the data; otherwise that is unknown, and accepting
	// again those marked Dedup tells. node 0 never owns; with another node, runs
	// marked Own that may start at once are given to it as if claimed. The
	// error is [ErrFenced] when that node may not own runs any more.
	//
	// A new event of an entity that has no run waiting, running, parked or
	// failed and blocking, the earlier events of the same batch included, is
	// refused with [ErrRejected] in its result when Intake.From is set and does
	// not hold the entity's state. Runs that are scheduled and not due do not count:
	// they come later. One that is itself to come later is refused only when
	// Intake.From is empty. Where From is set, Accepted.Undecided tells of those that
	// were not asked: runs before them, or the time until then, may change the state.
	Accept(ctx context.Context, node int64, runs []model.Intake) ([]Accepted, error)

	// Depth counts the runs that wait.
	Depth(ctx context.Context) (Depth, error)

	// Pending lists the events of a key that are due and wait for their turn, and are
	// of one of these types, in the order of acceptance: up to limit of those behind a
	// position.
	Pending(ctx context.Context, flow, key string, types []string, after int64, limit int) ([]model.Pending, error)

	// LastEvent returns the greatest id of the events marked Dedup accepted from a
	// source, in the order of bytes; empty when there is none. Triggers make ids
	// of their due times, so this is when one fired last.
	LastEvent(ctx context.Context, source string) (id string, err error)
}

// A Gauge is a store that counts what waits once for all processes that ask, when
// they ask often.
type Gauge interface {
	// GaugeDepth returns what Depth gave one of them lately: within a second when
	// counting is cheap, and the longer ago the longer it takes.
	GaugeDepth(ctx context.Context) (Depth, error)
}

// A Depth counts the runs that wait.
type Depth struct {
	Waiting int       // for their turn, their time or a node
	Oldest  time.Time // since when the oldest of them that is due does; zero when none is

	// Aside are the runs that wait for something else, those that have failed included, in the
	// order of pipelines, places and causes.
	Aside []AsideRuns
}

// AsideRuns are the runs of one pipeline that wait for the same thing.
type AsideRuns struct {
	Pipeline string     `json:"pipeline"`
	Place    AsidePlace `json:"place"`
	Cause    string     `json:"cause,omitempty"` // as in [model.Change]; only of [AsideParked]
	Runs     int        `json:"runs"`
	Since    time.Time  `json:"since"` // since when the first of them does: one that is parked again for the same cause has waited since the first time
}

// An AsidePlace says where runs wait.
type AsidePlace string

// The places.
const (
	AsideParked   AsidePlace = "parked"   // until a time, or a cause is gone
	AsideAwaits   AsidePlace = "awaits"   // for an event
	AsideOperator AsidePlace = "operator" // until an operator decides
	AsideState    AsidePlace = "state"    // until the state of the key is another
	AsideBlocking AsidePlace = "blocking" // failed, and the later runs of the key wait
	AsideFailed   AsidePlace = "failed"   // failed, and nobody waits
)

// AsideOf names the place of a run that is set aside as counts do. Awaits says that it waits
// for an event.
func AsideOf(p model.Place, awaits bool) AsidePlace {
	switch {
	case p == model.PlaceHeld:
		return AsideOperator
	case p == model.PlaceDeferred:
		return AsideState
	case p == model.PlaceBlocked:
		return AsideBlocking
	case p == model.PlaceFailed:
		return AsideFailed
	case awaits:
		return AsideAwaits
	}
	return AsideParked
}

// SortAside brings counts into the order of [Depth].Aside, and adds those up that are alike.
func SortAside(list []AsideRuns) []AsideRuns {
	slices.SortFunc(list, func(a, b AsideRuns) int {
		return cmp.Or(cmp.Compare(a.Pipeline, b.Pipeline), cmp.Compare(a.Place, b.Place), cmp.Compare(a.Cause, b.Cause),
			a.Since.Compare(b.Since))
	})
	var out []AsideRuns
	for _, r := range list {
		if n := len(out) - 1; n >= 0 && out[n].Pipeline == r.Pipeline && out[n].Place == r.Place && out[n].Cause == r.Cause {
			out[n].Runs += r.Runs
			continue
		}
		out = append(out, r)
	}
	return out
}

// Accepted is the result of one event.
type Accepted struct {
	Run       string
	Duplicate bool
	Undecided bool     // accepted, though nobody knows yet whether the automaton will allow it
	Err       error    // ErrConflict or ErrRejected; nil when accepted or duplicate
	Claimed   *Claimed // set when the node now owns the run
}

// A Ledger lends runs to nodes and writes down what became of them. A node's
// number is its fencing token: numbers only grow, each start of a process gets
// a new one, see [NodeNumber], and every Commit checks in its own transaction that
// the number is still valid.
type Ledger interface {
	// Join registers a node and returns its number. The lease must be renewed by
	// Beat before it ends.
	Join(ctx context.Context, name string, lease time.Duration) (node int64, err error)

	// Beat renews the lease, notes which definition the node serves, takes over
	// the runs of nodes whose lease has ended, makes parked and scheduled runs ready whose time has come, and
	// returns which of the node's runs an operator wants cancelled or moved. It gives
	// [ErrFenced] when the node's own lease has been taken, and [ErrForgotten] when the
	// store does not know the node at all. Each run of a node that died
	// has one more of [Claimed].Losses; one that is [Suspected] only when it was under trial.
	Beat(ctx context.Context, node int64, lease time.Duration, bundle string) (Beat, error)

	// Claim returns up to limit ready runs for the node: those whose time has come
	// (Beat finds out), at most one of each key, the head of its queue; highest
	// priority first, then by due time plus delay tolerance, then by acceptance.
	// The head is the run accepted first of those that are due and not set
	// aside, but a run that has begun is not overtaken. A run begins when it is
	// given out for the first time: from then on it keeps the bundle named here,
	// though it has no checkpoint yet; none begins with an empty one. The error
	// is [ErrFenced] as Beat's is.
	Claim(ctx context.Context, node int64, limit int, bundle string) ([]Claimed, error)

	// Commit writes all changes in one transaction; a run may occur once. The
	// errors are for each change: nil, ErrStale, ErrCancelled (nothing of that
	// change is written; only Succeeded, Stopped and Ignored are allowed then);
	// err is for all of them: ErrFenced, after which none is written, or a
	// failure of the store, after which that is unknown; [ErrRefused] when one of them
	// can never be written.
	Commit(ctx context.Context, node int64, changes []model.Change) (errs []error, err error)

	// Leave gives back all runs of the node but those in keep, at once, so that
	// nobody waits for its lease to end. With a nil keep the node stops: its
	// number is not valid any more. One that goes on names what it keeps, if
	// only an empty list, when the answer to a Claim or an Accept was lost: it
	// may own runs that it knows nothing of.
	Leave(ctx context.Context, node int64, keep []string) error

	// Nodes lists the nodes that are alive, and those that died lately.
	Nodes(ctx context.Context) ([]NodeInfo, error)
}

// A Beat is what a node learns when it renews its lease.
type Beat struct {
	Now       time.Time     // by the store's clock, which tells when runs are due
	Beats     int64         // of this node, this one included; fewer than were answered says that the store was set back
	Owned     int           // how many runs the node owns; -1 when nobody has counted
	Cancelled []string      // the node's runs that an operator wants ended
	Moves     []Move        // of the node's runs, that an operator wants
	Ready     int           // runs that may be claimed now; a lower bound, 0 when none
	Next      time.Duration // until the next parked or scheduled run is due, or a silent node's lease ends; 0 when none, small when more are due now
	Revision  int64         // of the settings; changes when any of them does
	Nodes     int           // that are alive, this one included
	Causes    []string      // what parked runs wait for, each once, in order; see [model.Change]; nil when nobody has looked
	Outages   int64         // the revision of the state that [Degradation] keeps
	Decided   time.Time     // when a node decided last about it; zero for never

	// Watched is closed when the store sees the node's process no more: others may find it dead
	// [Silence] after this beat then, and not only when its lease is over. It is nil when
	// only the lease counts, and told with an error too, for the beat may have been written.
	Watched <-chan struct{}
}

// Silence is for how long at least a node with this lease must be silent to be dead: for two
// beats. It must be seen to have ended as well, or else its lease counts.
func Silence(lease time.Duration) time.Duration { return min(2*BeatEvery, 2*lease/BeatsOfLease) }

// A Waker is a store that can tell its node at once that runs may have become
// ready, instead of waiting to be asked. It is a hint: it may come too often, and
// it may be lost.
type Waker interface {
	// Wake returns a channel on which hints come, while the store is open.
	Wake() <-chan struct{}
}

// A NodeInfo describes a node to people.
type NodeInfo struct {
	Node    int64
	Name    string
	Started time.Time
	Seen    time.Time
	Alive   bool
	Beats   int64  // as of [Beat]
	Runs    int    // that it holds
	Bundle  string // by which it serves new events; empty before its first beat
}

// A Claimed run is one that the node owns until it commits another status.
type Claimed struct {
	ID         string // of the run
	Version    int64  // of the checkpoint; each Commit of the run names it and adds one
	Event      model.Event
	Flow       string // as in Intake
	Key        string
	Ordered    bool
	Block      bool
	Accepted   time.Time
	Bundle     string // hash of the definition it began with; empty when it has not begun
	Move       string // the definition that an operator wants it to go on by, or an [model.UndoOrder]; empty for none
	Pipeline   string // that serves it; until it has begun, the one expected at its acceptance
	Generation int    // how often an operator has retried it
	Checkpoint []byte // empty before the first one
	Losses     int    // how many nodes in a row have died while they had it; see [Suspected]
	Entity     EntityState
}

// An EntityState is what is kept between the events of one key.
type EntityState struct {
	State  string // of the automaton; empty for an entity that no event has reached
	Shared []byte // JSON object; empty for an entity that no event has reached
}

// A Trimmer is a store that can forget what is old. Of several processes that trim at once,
// one does.
type Trimmer interface {
	// Trim removes a bounded part of the runs that ended, and of the ids of events
	// that were accepted, longer ago than keep; more tells that there may be more
	// of them. It removes no run that has not ended for good, nor the id of its
	// event, nor the last firing of a trigger.
	Trim(ctx context.Context, keep time.Duration) (more bool, err error)

	// TrimRuns removes a bounded part of the runs of a pipeline that have ended for good
	// before its last keep ones; more tells that there may be more of them. Events
	// stay known, apart from old firings of triggers.
	TrimRuns(ctx context.Context, pipeline string, keep int) (more bool, err error)
}

// Runs reads runs and lets operators steer them.
type Runs interface {
	// Run reads one run, ended ones included; [ErrNotFound] when there is none.
	Run(ctx context.Context, id string) (RunRecord, error)

	// List reads runs, the last accepted first unless the filter says Oldest, up
	// to filter.Limit, and the cursor of the next page, empty at the end;
	// [ErrCursor].
	List(ctx context.Context, filter RunFilter) ([]RunRecord, string, error)

	// Count counts the runs that a filter chooses, its page left aside, by
	// pipeline, failed handler and class of error; in this order.
	Count(ctx context.Context, filter RunFilter) ([]RunCount, error)

	// Entity reads what is known of a key; [ErrNotFound] when no event of it
	// was ever accepted.
	Entity(ctx context.Context, flow, key string) (EntityRecord, error)

	// Retry makes a run ready again, with the next generation, that has failed
	// or is parked without a due time, or was ignored: then it waits for its turn anew, at
	// its old place in its key. It writes the audit record; [ErrConflict] for any
	// other. Its losses are forgotten.
	Retry(ctx context.Context, id string, by Actor) error

	// MakeUp makes a run ready that has succeeded, with a checkpoint from which it does one
	// handler more, and with its audit record. It has no place in the order of its key then, and
	// its generation is the next one. [ErrConflict] when it has not succeeded, has another
	// version, or has not left the handler out.
	MakeUp(ctx context.Context, m MakeUp, by Actor) error

	// Undo is Cancel, but for a run that has begun and has neither ended nor failed: it
	// asks whoever owns it, or will, to undo what it has done first. It makes such a run
	// ready that no node owns, and forgets its losses. Until a change is [model.Change].Undoing, no other change may
	// park or fail the run: it is ready again then.
	Undo(ctx context.Context, id string, by Actor) error

	// Cancel ends a run that no node owns at once, a failed one too, and asks
	// the owner of a running one to end it; [ErrConflict] when it has ended as
	// anything but failed. When the owner dies first, the run is ended. The audit
	// record comes with it; the operator's reason is the run's.
	Cancel(ctx context.Context, id string, by Actor) error

	// Move lets a run that has begun, and has not ended for good, go on by another
	// definition, with its audit record. One that no node owns has it at once,
	// when its checkpoint still has the version; [ErrStale] for another. The owner
	// of a running one is asked, and so is whoever owns the run after it.
	// [ErrConflict] for any other run.
	Move(ctx context.Context, m Move, version int64, by Actor) (asked bool, err error)

	// Release makes up to limit runs ready that are parked with a cause, those
	// accepted first, and returns how many.
	Release(ctx context.Context, cause string, limit int) (int, error)
}

// A Move is a run's way to another definition, or an [model.UndoOrder].
type Move struct {
	Run    string
	Bundle string // hash of the other definition
}

// A RunRecord is a run as the store knows it.
type RunRecord struct {
	ID         string
	Event      model.Event
	Flow       string
	Key        string
	Ordered    bool
	Status     model.Status
	Pipeline   string
	Bundle     string
	Move       string // as in Claimed
	Checkpoint []byte
	Version    int64
	Generation int
	Node       int64 // that owns it; 0 for none
	Accepted   time.Time
	Started    time.Time // zero before, and for one that is given back without a checkpoint
	Ended      time.Time // zero before
	Due        time.Time // of a parked or scheduled run; zero for one that waits for an operator
	FailedPath string
	Error      string
	ErrorClass string
	Reason     string
	Blocked    bool // is due, but waits for another run of its key
}

// A RunFilter chooses runs. Empty fields choose all.
type RunFilter struct {
	Pipeline, Flow, Key string
	Status              model.Status

	Live  bool   // only those that may still go on: not ended, or failed
	Begun bool   // only those that have a definition
	Fresh bool   // only those that have none, since they have not begun
	Other string // only those that have another definition than this one

	LeftOut string // only those that succeeded and left this handler out, or one below this pipeline or pipeline/stage

	FailedPath string    // of the handler that failed the run, or a part of it: pipeline, pipeline/stage
	ErrorClass string    // as the language has it: timeout, 503, 5xx; status for all statuses
	Error      string    // a part of the error's text
	Since      time.Time // accepted then or later
	Until      time.Time // accepted before

	FailedSince time.Time // failed then or later, and not retried or cancelled since

	// Of a listing alone.
	Limit  int // 1 to 1000; another number stands for the nearest of these
	Cursor string
	Oldest bool // the first accepted first
	Brief  bool // without the payloads of the events

	// Bytes bounds a page by the sizes of the stored events and checkpoints of its runs;
	// one run is always on it. 0 for no bound.
	Bytes int64
}

// Page returns how many runs the page of a listing has, and whether there are more, from the
// sizes of those that could be on it and of the one behind these, in bytes.
func (f *RunFilter) Page(sizes []int64) (n int, more bool) {
	total := int64(0)
	for i, size := range sizes {
		total += size
		if i == min(max(f.Limit, 1), 1000) || i > 0 && f.Bytes > 0 && total > f.Bytes {
			return i, true
		}
	}
	return len(sizes), false
}

// OfErrors reports whether the filter asks for runs with an error: those that have
// succeeded have none.
func (f *RunFilter) OfErrors() bool { return f.FailedPath != "" || f.ErrorClass != "" || f.Error != "" }

// A RunCount is a number of runs that are alike.
type RunCount struct {
	Pipeline   string `json:"pipeline"`
	FailedPath string `json:"failed_handler"` // empty for runs that have not failed
	ErrorClass string `json:"error_class"`
	Runs       int    `json:"runs"`
}

// An EntityRecord is an entity as the store knows it.
type EntityRecord struct {
	Flow, Key string
	EntityState
	Waiting int         // runs that have not ended
	Blocked string      // the id of the run that blocks the later ones until an operator steers it; empty for none
	Runs    []RunRecord // the latest, newest first, at most 50, without checkpoints
}

// A MakeUp lets a run that has succeeded do one handler that it had left out.
type MakeUp struct {
	Run        string
	Path       string
	Version    int64  // of the run, which the checkpoint builds on
	Checkpoint []byte // from which it goes on
	Priority   int    // of its event
}

// BeatEvery is how often a node beats at least: what is changed elsewhere is known within a second.
const BeatEvery = 800 * time.Millisecond

// BeatsOfLease is how many beats a lease holds at least.
const BeatsOfLease = 3

// IsMovable reports whether the run has begun, and may still go on.
func (r *RunRecord) IsMovable() bool {
	return r.Bundle != "" && (!r.Status.Ended() || r.Status == model.Failed)
}
