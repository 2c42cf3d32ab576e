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

// The errors that callers of a store test for.
var (
	// ErrNotFound reports that something does not exist.
	ErrNotFound = errors.New("not found")

	// ErrOutdated begins the error about a schema that a migration would update.
	ErrOutdated = errors.New("schema has version")

	// ErrFenced reports that the node may no longer write, because another node has taken over.
	// Everything that it has in memory is stale.
	ErrFenced = errors.New("node is fenced: another node has taken over its runs")

	// ErrForgotten is the [ErrFenced] of a node that the store does not know, or that was silent
	// for longer than [NodesRemembered].
	ErrForgotten = fmt.Errorf("the store does not know the node's number: %w", ErrFenced)

	// ErrRefused reports that the store can never accept the data, such as a text that it cannot
	// store. Every other error of a store may pass: a full disk, a lock, a timeout.
	ErrRefused = errors.New("the store cannot keep the data")

	// ErrLost reports that the store lost data that it acknowledged to this process: it was set
	// back, removed or replaced. The process writes nothing to it.
	ErrLost = errors.New("the store has lost what it acknowledged")

	// ErrDamaged reports that the store cannot read data that it has kept, because somebody or a disk
	// has changed it. Other data may be sound.
	ErrDamaged = errors.New("the store cannot read what it has kept")

	// ErrNoRoom reports that the disk of the store has no room for a change.
	ErrNoRoom = errors.New("the disk of the store is full")

	// ErrSealed reports that a search looks into texts that the store has only in an encrypted form.
	ErrSealed = errors.New("the store is encrypted, so it cannot search in payloads and errors")

	// ErrCancelled reports that an operator has cancelled the run.
	ErrCancelled = errors.New("run is cancelled")

	// ErrUndoing reports that the run is already cancelled and compensates.
	ErrUndoing = errors.New("run is cancelled already, and undoes what it has done")

	// ErrConflict reports that the present status does not allow the operation, or that the id of
	// an event was used before with another body.
	ErrConflict = errors.New("conflict")

	// ErrStale reports that the run changed after it was read.
	ErrStale = errors.New("run has moved on")

	// ErrRejected reports that the automaton refuses an event in the present state of its entity.
	ErrRejected = errors.New("the state does not allow the event")

	// ErrFull reports that an event would be kept, and that its key has no room for it.
	ErrFull = errors.New("the key keeps as many events as it may")

	// ErrCursor reports that a cursor is not from this listing.
	ErrCursor = errors.New("cursor is not one that a listing gave")
)

// diskFull is the SQLSTATE of a database server without room.
const diskFull = "53100"

// IsOutOfRoom reports whether an error means that the disk of the store has no room.
func IsOutOfRoom(err error) bool {
	server, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err)
	return errors.Is(err, ErrNoRoom) || ok && server.SQLState() == diskFull
}

// A Store holds all data of nodes. It has one port for each concern, and callers take only the ports that they need.
// Tests replace a port to change what a store does.
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
	Usage       Usage
	Limits      Limits

	// Optional ports may be nil.
	Waker     Waker      // without it, nodes poll
	Gauge     Gauge      // without it, nodes use Inbox.Depth
	Trimmer   Trimmer    // without it, nothing is deleted
	Eraser    Eraser     // without it, keys cannot be erased
	Scattered Scattered  // without it, all data is in one database
	Tasks     *TaskStore // without it, there are no tasks

	// Close ends the work of the store, and waits for calls in flight.
	Close func() error
}

// An Inbox accepts events.
type Inbox interface {
	// Accept stores every event and its run in one transaction. It returns one result per event, in
	// order. It does not store an event marked Dedup again if its source and id were accepted
	// before, also in this batch. With the same hash the result is a duplicate, with another one
	// [ErrConflict]. Both have the first run. The error is for the whole batch. Nothing is stored if it is [ErrFenced] or
	// reports invalid data. After any other error the outcome is unknown: accept events marked
	// Dedup again to find out. With a node other than 0, the node owns runs marked Own that may
	// start at once, as if it had claimed them. Of these, a run with an Intake.End is stored as ended instead. The error is
	// [ErrFenced] if that node may no longer own runs. An event with a Rerun is stored with its audit record, see [Rerun].
	//
	// If Intake.From is set and does not contain the state of the entity, the result is
	// [ErrRejected]. This applies only if the entity has no run that waits, runs, is parked or
	// blocks, including earlier events of the batch. Scheduled runs that are not due do not count.
	// An event that is due later is refused only if Intake.From is empty. Accepted.Undecided marks
	// events that were not checked, because the state may still change before their turn.
	//
	// If Intake.Keep is set, no run of the key is in flight and the key keeps too much, the result is [ErrFull].
	Accept(ctx context.Context, node int64, runs []model.Intake) ([]Accepted, error)

	// Depth counts the waiting runs.
	Depth(ctx context.Context) (Depth, error)

	// Pending lists events of a key and of these types that are due and wait for their turn, or are kept, in the order
	// of acceptance. It returns up to limit events after a position.
	Pending(ctx context.Context, flow, key string, types []string, after int64, limit int) ([]model.Pending, error)

	// Kept counts the events that a key keeps. Only the run of the key in flight adds to them.
	Kept(ctx context.Context, flow, key string) (Kept, error)

	// LastEvent returns the greatest id, in byte order, of accepted events of a source marked
	// Dedup. It is empty if there is none. The ids of triggers are their due times, so this is when
	// a trigger last fired.
	LastEvent(ctx context.Context, source string) (id string, err error)

	// EventRun returns the id of the run of an accepted event marked Dedup. It is empty if there was none, or if the
	// store has forgotten it.
	EventRun(ctx context.Context, source, id string) (run string, err error)
}

// Kept is what a key keeps for runs that have not begun.
type Kept struct {
	Events int
	Bytes  int64 // of the events as they are stored
}

// These bound what a key keeps.
const (
	KeptEvents = 100
	KeptBytes  = 4 << 20
)

// IsFull reports whether the key has no room for another event.
func (k Kept) IsFull() bool { return k.Events >= KeptEvents || k.Bytes >= KeptBytes }

// A Gauge is a store that counts waiting runs once for all processes that ask often.
type Gauge interface {
	// GaugeDepth returns a recent result of Depth, from any process. It is up to a second old if counting is cheap, and
	// older if counting takes longer.
	GaugeDepth(ctx context.Context) (Depth, error)
}

// A Depth counts the waiting runs.
type Depth struct {
	Waiting int       // for their turn, their time or a node
	Oldest  time.Time // since when the oldest due run waits; zero if none waits

	// Aside are the runs that wait for something else, including failed runs, ordered by pipeline,
	// place and cause.
	Aside []AsideRuns
}

// AsideRuns are the runs of one pipeline that wait for the same thing.
type AsideRuns struct {
	Pipeline string     `json:"pipeline"`
	Place    AsidePlace `json:"place"`
	Cause    string     `json:"cause,omitempty"` // as in [model.Change]; only for [AsideParked]
	Runs     int        `json:"runs"`
	// Since is when the first of them began to wait. A run that is parked again for the same cause
	// counts from the first time.
	Since time.Time `json:"since"`
}

// An AsidePlace says what runs wait for.
type AsidePlace string

// The places.
const (
	AsideParked   AsidePlace = "parked"   // until a time, or until a cause ends
	AsideAwaits   AsidePlace = "awaits"   // for an event
	AsideOperator AsidePlace = "operator" // until an operator decides
	AsideState    AsidePlace = "state"    // until the key has another state
	AsideKept     AsidePlace = "kept"     // until a run of the key takes the event; the pipeline is the flow
	AsideBlocking AsidePlace = "blocking" // failed, and the later runs of the key wait
	AsideFailed   AsidePlace = "failed"   // failed, and no run waits
)

// AsideOf returns the place under which counts show a run that is set aside. awaits says that it
// waits for an event.
func AsideOf(p model.Place, awaits bool) AsidePlace {
	switch {
	case p == model.PlaceScheduled:
		return AsideKept
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

// SortAside sorts counts as in [Depth].Aside, and sums up equal ones.
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
	Run       string // of a duplicate and a conflict: the first run
	Duplicate bool
	Undecided bool     // accepted, but the automaton may still refuse it
	Err       error    // ErrConflict or ErrRejected; nil if accepted or duplicate
	Claimed   *Claimed // set when the node now owns the run
	Ended     bool     // the run is stored with its [model.Intake].End
}

// A Ledger lends runs to nodes and records their progress. The number of a node is its fencing token. Numbers only
// grow, and each start of a process gets a new one, see [NodeNumber]. Every Commit checks in its transaction that the
// number is still valid.
type Ledger interface {
	// Join registers a node and returns its number. Call Beat before the lease ends to renew it.
	Join(ctx context.Context, name string, lease time.Duration) (node int64, err error)

	// Beat renews the lease and records the definition that the node serves. It takes over the runs
	// of nodes whose lease has ended. It makes due parked and scheduled runs ready. It returns the
	// node's runs that an operator wants cancelled or moved. The error is [ErrFenced] if another
	// node has taken over, and [ErrForgotten] if the store does not know the node. With ErrFenced,
	// the Beats of the result are those that the store knows of. The error is [ErrLost], and
	// nothing is written, if the store knows that it was set back. Each run of a dead node gets one
	// more of [Claimed].Losses, and a run that has lost nodes before only if it was under trial.
	Beat(ctx context.Context, node int64, lease time.Duration, bundle string) (Beat, error)

	// Claim returns up to limit ready runs for the node. Beat makes runs ready. It returns at most
	// one run per key, the head of the key's queue. Runs are ordered by priority, then by due time
	// plus delay tolerance, then by acceptance. The head is the first accepted run that is due and
	// not set aside, but no run overtakes one that has begun. A run begins with its first claim,
	// with the definition that the store serves then: see [Conclusion.Serve] and Bundles. With a
	// [model.Split], the key chooses the definition. The run keeps that definition from then on,
	// even without a checkpoint. If the store serves none yet, the run gets the node's definition.
	// The error is [ErrFenced] as for Beat. A row that cannot be read stops no other run: it comes
	// with a [Claimed].Damage. The node must fail the run, unless it is Aside, which it learns once.
	Claim(ctx context.Context, node int64, limit int, bundle string) ([]Claimed, error)

	// Commit writes all changes in one transaction. A run may occur only once. errs has an error for each change: nil,
	// ErrStale or ErrCancelled. A change with an error is not written. After ErrCancelled only Succeeded, Stopped and
	// Ignored are allowed. err is for all changes. After [ErrFenced] nothing is written. [ErrRefused] reports a change
	// that can never be written. After any other err the outcome is unknown.
	Commit(ctx context.Context, node int64, changes []model.Change) (errs []error, err error)

	// Leave returns all runs of the node except those in keep at once, so that nobody waits for its lease to end. With a
	// nil keep the node stops, and its number becomes invalid. A node that continues passes its runs, or an empty list,
	// after it lost the answer to a Claim or an Accept: it may own runs that it does not know.
	Leave(ctx context.Context, node int64, keep []string) error

	// Nodes lists live nodes, and nodes that died recently.
	Nodes(ctx context.Context) ([]NodeInfo, error)
}

// A Beat is the information that a node gets when it renews its lease.
type Beat struct {
	Now       time.Time // by the store's clock, which decides when runs are due
	Beats     int64     // of this node, including this one; fewer than were answered means that the store was set back
	Owned     int       // how many runs the node owns; -1 if not counted
	Running   int       // how many runs all nodes own; used only if Owned is counted
	Cancelled []string  // the node's runs that an operator has cancelled
	Moves     []Move    // of the node's runs, ordered by an operator
	Ready     int       // runs that may be claimed now; a lower bound, 0 if there are none
	// Next is the time until the next parked or scheduled run is due, or until a silent node's
	// lease ends. It is 0 if there is none, and small if more are due now.
	Next     time.Duration
	Revision int64     // of the settings; every change of a setting changes it
	Nodes    int       // live nodes, including this one
	Causes   []string  // what parked runs wait for, each once, sorted; see [model.Change]; nil if not looked up
	Outages  int64     // revision of the state of [Degradation]
	Decided  time.Time // time of the last decision of a node about it; zero for never

	// Watched is closed when the store loses the connection to the node's process. From then on,
	// other nodes may consider it dead [Silence] after this beat, before its lease ends. Watched is
	// nil if only the lease counts. It may be set together with an error, because the beat may have
	// been written.
	Watched <-chan struct{}

	// Suspects gets a signal when the process of another node has ended, as far as the store can watch it. The node should beat again
	// soon: the beat finds out which nodes are dead. Nil if the store cannot tell.
	Suspects <-chan struct{}
}

// Silence is how long a node with this lease must be silent, at least, to be considered dead: two
// beats. This needs evidence that the node has ended. Otherwise its lease counts.
func Silence(lease time.Duration) time.Duration { return min(2*BeatEvery, 2*lease/BeatsOfLease) }

// A Waker is a store that notifies its node when runs may be ready. A notification is only a hint: there may be too
// many, and some may get lost.
type Waker interface {
	// Wake returns a channel that receives hints while the store is open.
	Wake() <-chan struct{}
}

// A NodeInfo describes a node to people.
type NodeInfo struct {
	Node    int64
	Name    string
	Started time.Time
	Seen    time.Time
	Alive   bool
	Beats   int64  // as in [Beat]
	Runs    int    // runs that it owns
	Bundle  string // definition by which it serves new events; empty before its first beat
}

// A Claimed is a run owned by the node until it commits another status.
type Claimed struct {
	ID         string // of the run
	Version    int64  // of the checkpoint; each Commit of the run passes it and adds one
	Event      model.Event
	Flow       string // as in Intake
	Key        string
	Ordered    bool
	Block      bool
	Accepted   time.Time
	Turn       time.Time // its place in the queue, without its tolerance; zero if it was never in the queue
	Bundle     string    // hash of the definition it began with; empty if it has not begun
	Move       string    // the definition that an operator moves it to, or a [model.UndoOrder]; empty for none
	Pipeline   string    // the pipeline that serves it; before it begins, the one expected at acceptance
	Generation int       // how often an operator has retried it
	Checkpoint []byte    // empty before the first one
	Losses     int       // how many nodes in a row have died while they owned it
	Kept       bool      // its event was kept until its time, and no run has taken it
	Cancelled  bool      // an operator has cancelled it, and its owner died or left before it ended the run
	Entity     EntityState

	// Damage is an [ErrDamaged] that says what cannot be read of the run's row; nil for a sound row.
	// Other fields are set as far as they can be read.
	Damage error
	// Aside says that the node does not own the damaged run. The store has set it aside: it has
	// failed, or stays where it is if its row cannot be written either. Then ID may be empty.
	Aside bool

	// Stored is the stored form of a large event, which is not decoded: Event has neither its payload nor
	// its start. Nil for others.
	Stored []byte
}

// ClaimBytes bounds what one Claim returns, by the bytes of events and checkpoints. It returns fewer runs
// than asked for when they have as many.
const ClaimBytes = 8 << 20

// Bytes returns the size of the run as it is stored, without the state of its key.
func (c *Claimed) Bytes() int { return len(c.Checkpoint) + len(c.Stored) }

// Unfold decodes an event that is not decoded yet.
func (c *Claimed) Unfold() (err error) {
	if c.Stored == nil {
		return nil
	}
	if c.Event, err = DecodeEvent(c.Stored); err == nil {
		c.Stored = nil
	}
	return err
}

// An EntityState is the state of a key between its events.
type EntityState struct {
	State  string // of the automaton; empty for an entity that no event has reached
	Shared []byte // JSON object; empty for an entity that no event has reached
}

// A Trimmer is a store that can delete old data. If several processes trim at once, only one of them works.
type Trimmer interface {
	// Trim deletes a limited number of runs that ended longer ago than r says, at the latest a day
	// after that. It also deletes ids of events that were accepted longer ago than r.Keep, and than r
	// keeps the run. more reports that there may be others. It keeps unfinished and failed runs with
	// the ids of their events, and the last firing of each trigger.
	Trim(ctx context.Context, r Retention) (more bool, err error)

	// TrimRuns deletes a limited number of ended runs of a pipeline, except the last keep of them.
	// more reports that there may be others. The ids of their events stay known as long as others,
	// except old firings of triggers.
	TrimRuns(ctx context.Context, pipeline string, keep int) (more bool, err error)

	// Past reads a page of the runs that Trim and TrimRuns would delete by r, with their checkpoints. It has up to limit runs, and no
	// more bytes of events and checkpoints than given, but at least one run if there is any. It changes nothing.
	Past(ctx context.Context, r Retention, limit int, bytes int64) ([]RunRecord, error)

	// Forget deletes runs that Past has returned. A run that is gone or has another version now stays as it is. The ids of their
	// events stay as long as Trim keeps them.
	Forget(ctx context.Context, runs []RunRecord) error
}

// A Retention says how long ended runs, and the ids of events, stay in a store.
type Retention struct {
	Keep      time.Duration            // for which both are kept; 0 is for ever
	Pipelines map[string]time.Duration // for which ended runs of pipelines with a retention of their own are kept
	Last      map[string]int           // how many ended runs of pipelines stay at most; only for Past

	// Archived says that runs leave by Forget alone. Trim deletes only the rest.
	Archived bool
}

// Of returns how long ended runs of a pipeline are kept. 0 is for ever.
func (r Retention) Of(pipeline string) time.Duration {
	if own, ok := r.Pipelines[pipeline]; ok {
		return own
	}
	return r.Keep
}

// IsPast reports whether runs of a pipeline that ended so long ago may leave.
func (r Retention) IsPast(pipeline string, ago time.Duration) bool {
	keep := r.Of(pipeline)
	return keep > 0 && ago >= keep
}

// Runs reads runs and lets operators steer them.
type Runs interface {
	// Run reads one run, also an ended one. The error is [ErrNotFound] if there is none.
	Run(ctx context.Context, id string) (RunRecord, error)

	// Newer reads those of several runs that have ended or failed, or whose version differs from
	// the one seen, in any order. It leaves out runs that do not exist, and may leave out runs that
	// it cannot read now.
	Newer(ctx context.Context, of []Seen) ([]RunRecord, error)

	// List reads up to filter.Limit runs, newest first unless the filter says Oldest. It also
	// returns the cursor of the next page, which is empty at the end. The error is [ErrCursor] for
	// a cursor of another listing.
	List(ctx context.Context, filter RunFilter) ([]RunRecord, string, error)

	// Count counts the runs that a filter chooses, ignoring its page. The counts are grouped and
	// ordered by pipeline, failed handler and class of error.
	Count(ctx context.Context, filter RunFilter) ([]RunCount, error)

	// CountBundles counts, for each definition, the runs that have begun and may still continue,
	// including failed ones.
	CountBundles(ctx context.Context) (map[string]int, error)

	// Entity reads what is known about a key. The error is [ErrNotFound] if no event of it was ever
	// accepted.
	Entity(ctx context.Context, flow, key string) (EntityRecord, error)

	// Retry makes a run ready again, with the next generation. The run must have failed, be parked
	// without a due time, or be ignored, else the error is [ErrConflict]. An ignored run waits for
	// its turn again at its old place in its key. Retry writes the audit record and resets the
	// losses.
	Retry(ctx context.Context, id string, by Actor) error

	// MakeUp makes a run that has succeeded ready with the next generation. It has a checkpoint
	// from which it runs one more handler, and no place in the order of its key. MakeUp writes the
	// audit record. The error is [ErrConflict] if the run has not succeeded, has another version,
	// or has not left the handler out.
	MakeUp(ctx context.Context, m MakeUp, by Actor) error

	// Undo is like Cancel, but asks the present or next owner of an unfinished run to compensate
	// first. If no node owns the run, it becomes ready and its losses are reset. Until a change is
	// [model.Change].Undoing, a change that parks or fails the run makes it ready again.
	Undo(ctx context.Context, id string, by Actor, tell Tell) error

	// Cancel ends a run at once if no node owns it, also a failed one, and accepts the events of tell in
	// the same transaction. Otherwise it asks the owner to end the run. If the owner dies first, the next
	// one ends it, see [Claimed].Cancelled. The error is [ErrConflict] if the run has ended and not failed,
	// and [ErrStale] if it has another generation than tell. Cancel writes the audit record, and the run
	// keeps the reason.
	Cancel(ctx context.Context, id string, by Actor, tell Tell) error

	// Move gives a run that has begun and has not ended for good another definition, and writes the
	// audit record. A run that no node owns moves at once if its checkpoint has the version, else
	// the error is [ErrStale]. Otherwise Move asks the present owner, and later owners, to do it.
	// For other runs the error is [ErrConflict].
	Move(ctx context.Context, m Move, version int64, by Actor) (asked bool, err error)

	// Release makes up to limit runs ready that are parked with a cause, oldest first. It returns their number.
	Release(ctx context.Context, cause string, limit int) (int, error)

	// WakeRun makes a parked run ready before its time, so that its handlers look at what they wait for. It does nothing to other runs. It
	// is a hint: a run that is parked a moment later misses it.
	WakeRun(ctx context.Context, run string) error
}

// A Tell has the events that tell of the end of a run, for an end that the store makes itself. The zero value tells nobody.
type Tell struct {
	Generation int // of the run for which the events were made; ignored if there are none
	Events     []model.Intake
}

// Fits returns [ErrStale] if the events are of another end than that of a run with this generation.
func (t Tell) Fits(generation int) error {
	if len(t.Events) > 0 && t.Generation != generation {
		return ErrStale
	}
	return nil
}

// A Seen is the version of a run that somebody knows.
type Seen struct {
	Run     string
	Version int64 // -1: only the end of the run is news
	Left    bool  // a node has released the run, so there probably is news; saves a look at its version
}

// IsNews reports whether a run with this status and version is news for a caller with this Seen.
func (s Seen) IsNews(status model.Status, version int64) bool {
	return status.Ended() || s.Version >= 0 && s.Version != version
}

// A Move is an order to give a run another definition, or an [model.UndoOrder].
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
	Move       string // as in [Claimed]
	Checkpoint []byte
	Version    int64
	Generation int
	Node       int64 // owner; 0 for none
	Accepted   time.Time
	Started    time.Time // zero before, and for a run that was released without a checkpoint
	Ended      time.Time // zero before
	Due        time.Time // of a parked or scheduled run; zero if it waits for an operator
	FailedPath string
	Error      string
	ErrorClass string
	Reason     string
	Blocked    bool // due, but waits for another run of its key
	Blocks     bool // the later runs of its key wait until an operator retries or cancels it
	// the result, for callers that wait for the end; set in place of the checkpoint when a node has
	// just saved it
	Outputs []byte
	Damage  error // why the event cannot be read; nil for a sound one

	// Place is the cursor of the runs after this one. Only listings set it. It may be empty for the last run of all.
	Place string
}

// A RunFilter chooses runs. An empty field chooses all runs.
type RunFilter struct {
	Pipeline, Flow, Key string
	Status              model.Status

	Live   bool   // only unfinished and failed runs
	Begun  bool   // only runs with a definition
	Fresh  bool   // only runs that have not begun, and so have no definition
	Bundle string // only runs with this definition; during a canary, without those that have begun and saved nothing yet
	Other  string // only runs with another definition than this one

	Awaits bool // only runs that wait for an event
	// Text is a part of the event as the store writes it: JSON without spaces. No index helps, so
	// also bound the time. A store that seals payloads returns [ErrSealed].
	Text string
	// Labels chooses runs with all of these labels, as [model.CheckLabelFilter] allows:
	// city=berlin, or a name for any value.
	Labels string

	LeftOut string // only succeeded runs that left out this handler, or one below this pipeline or pipeline/stage
	LeftBy  string // only runs that left out the handler LeftOut for this reason, as in [model.LeftOut]

	NotUndone bool // only failed runs with a compensation that has failed for good

	FailedPath string    // handler that failed the run, or a part of its path: pipeline, pipeline/stage
	ErrorClass string    // as in the language: timeout, 503, 5xx; status for all statuses
	Error      string    // a part of the error's text; like Text, not in a store that seals it
	Since      time.Time // accepted at this time or later
	Until      time.Time // accepted before this time

	FailedSince time.Time // failed at this time or later, and not retried or cancelled since

	// Only for listings.
	Limit  int // from 1 to 1000; other numbers are clamped
	Cursor string
	Oldest bool // oldest first
	Brief  bool // without the payloads of the events

	// Bytes limits a page by the sizes of the events and checkpoints of its runs. A page always has
	// at least one run. 0 is no limit.
	Bytes int64
}

// Page returns how many runs a page of a listing has, and whether there are more. sizes are the sizes in bytes of the
// next runs, one more than fit on a page.
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

// OfErrors reports whether the filter chooses runs by their error. Succeeded runs have none.
func (f *RunFilter) OfErrors() bool { return f.FailedPath != "" || f.ErrorClass != "" || f.Error != "" }

// A RunCount is the number of runs with the same pipeline, failed handler and class of error.
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

// A MakeUp lets a succeeded run call one handler that it left out.
type MakeUp struct {
	Run        string
	Path       string
	Version    int64  // of the run that the checkpoint is based on
	Checkpoint []byte // to resume from
	Priority   int    // of its event
}

// BeatEvery is the longest time between two beats of a node, so that it learns of changes within a second.
const BeatEvery = 800 * time.Millisecond

// BeatsOfLease is the least number of beats in a lease.
const BeatsOfLease = 3

// IsMovable reports whether the run has begun and may still continue.
func (r *RunRecord) IsMovable() bool {
	return r.Bundle != "" && (!r.Status.Ended() || r.Status == model.Failed)
}
