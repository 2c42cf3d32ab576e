// Package memory keeps runs in memory. It is the store for tests of the engine and of pipelines.
package memory

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"procaas/engine/model"
	"procaas/engine/store"
)

// A Store forgets everything when the process ends. It implements the ports in the simplest way, so
// that tests need no database. Several engines may share one, like nodes that share a database.
type Store struct {
	*data
	bundlePort
	documentPort
	fallbackPort
	settingPort
}

// These ports need nothing from each other. The methods of Store are the others, which are about
// runs.
type (
	bundlePort   struct{ *data }
	documentPort struct{ *data }
	fallbackPort struct{ *data }
	settingPort  struct{ *data } // also for tokens and audits
)

// data is shared by all ports.
type data struct {
	clock func() time.Time

	mu       sync.Mutex // guards the following
	runs     map[string]*memoryRun
	order    []*memoryRun // in the order of acceptance
	accepts  int          // the number of the last accepted run
	idle     map[string]*memoryRun
	entities map[entityKey]*memoryEntity
	events   map[eventKey]*memoryRun
	nodes    map[int64]*memoryNode
	bundles  map[string][]byte
	stored   []store.StoredBundle // oldest first
	current  string               // hash of the current definition
	serving  string               // versions of new runs; empty before there is a current one
	configs  map[string]store.Setting
	controls map[string]store.Setting
	tokens   map[string]store.Setting
	audits   []store.Audited

	auditBase store.AuditLink // the last removed record
	settings  int64           // revision of the settings
	fallback  memoryFallback
	wakes     []chan struct{}

	documents map[documentKey]store.Document
	changed   store.Broadcast

	used []store.Use // by day and path

	limits map[string]*memoryLimit // by path
}

type (
	entityKey struct{ flow, key string }
	eventKey  struct{ source, id string }
)

// A memoryRun is one row.
type memoryRun struct {
	seq int
	model.Intake
	row        []byte // the encoded event
	status     model.Status
	node       int64
	version    int64
	generation int
	pipeline   string
	bundle     string
	checkpoint []byte
	aside      bool // deferred
	passed     bool // has begun, but another run of the key has the turn
	losses     int
	tried      bool
	cancel     *string
	move       string // the requested definition
	due        time.Time
	cause      string    // of a parked run, like the following
	waits      string    // the cause of its last park
	since      time.Time // since when it waits for that
	awaits     []string
	heard      int64
	accepted   time.Time
	started    time.Time
	ended      time.Time
	leftOut    string
	failedPath string
	failure    string
	class      string
	reason     string
}

// A memoryEntity is the stored data of a key.
type memoryEntity struct {
	store.EntityState
	runs []*memoryRun // in the order of acceptance
	live []*memoryRun // those of them that are unfinished, or failed and blocking
}

// A memoryNode is a member.
type memoryNode struct {
	store.NodeInfo
	until time.Time
	gone  bool // may no longer write
	left  bool // voluntarily
}

// New makes an empty store that uses the given clock. Nil means the machine's clock.
func New(clock func() time.Time) *Store {
	if clock == nil {
		clock = time.Now
	}
	d := &data{
		clock: clock,
		runs:  map[string]*memoryRun{}, idle: map[string]*memoryRun{},
		entities: map[entityKey]*memoryEntity{}, events: map[eventKey]*memoryRun{},
		nodes: map[int64]*memoryNode{}, bundles: map[string][]byte{}, configs: map[string]store.Setting{},
		controls: map[string]store.Setting{}, tokens: map[string]store.Setting{},
		documents: map[documentKey]store.Document{}, limits: map[string]*memoryLimit{},
	}
	return &Store{d, bundlePort{d}, documentPort{d}, fallbackPort{d}, settingPort{d}}
}

// Ports returns the ports of the store. It has no Tasks.
func (m *Store) Ports() store.Store {
	return store.Store{
		Inbox: m, Ledger: m, Runs: m, Bundles: m, Settings: m, Tokens: m, Audits: m, Degradation: m, Documents: m, Usage: m, Limits: m,
		Waker: m, Trimmer: m, Eraser: m, Close: func() error { return nil },
	}
}

// Wake implements [store.Waker].
func (m *Store) Wake() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := make(chan struct{}, 1)
	c <- struct{}{} // for runs that became ready before
	m.wakes = append(m.wakes, c)
	return c
}

func (m *data) hint() {
	for _, c := range m.wakes {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// Accept implements [store.Inbox].
func (m *Store) Accept(ctx context.Context, node int64, runs []model.Intake) ([]store.Accepted, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if n := m.nodes[node]; node != 0 && (n == nil || n.gone) {
		return nil, store.ErrFenced
	}
	rows, err := encode(runs)
	if err != nil {
		return nil, err
	}
	out := make([]store.Accepted, len(runs))
	waits := false
	for i, in := range runs {
		r, a := m.accept(in, rows[i])
		out[i] = a
		if r == nil {
			continue
		}
		if record, is := store.Rerun(in); is {
			m.audit(record)
		}
		if in.Own && node != 0 && m.isReady(r, m.now()) {
			c := m.give(r, node, in.Bundle)
			if in.EndsWith(c.Bundle) {
				m.apply(r, in.End.Change, nil)
				r.inOrder(in.End.Began)
				out[i].Ended = true
				continue
			}
			out[i].Claimed = &c
			continue
		}
		waits = true
	}
	if waits {
		m.hint()
	}
	return out, nil
}

// inOrder corrects the times of an ended run, which began by the clock of its node.
func (r *memoryRun) inOrder(began time.Time) {
	if began.Before(r.accepted) {
		r.accepted = began
	}
	r.started = r.accepted
	if r.ended.Before(began) {
		r.ended = began
	}
}

// encode encodes events, so that no memory is shared with the engine.
func encode(runs []model.Intake) ([][]byte, error) {
	rows := make([][]byte, len(runs))
	for i, in := range runs {
		var err error
		if rows[i], err = store.EncodeEvent(in.Event); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// isInFlight reports whether a run has the turn of its key.
func (m *Store) isInFlight(r *memoryRun) bool {
	return !r.isScheduled(m.now()) && !r.aside && m.head(r, m.now()) == r
}

// event decodes the event of a row.
func (r *memoryRun) event() model.Event {
	ev, err := store.DecodeEvent(r.row)
	if err != nil {
		panic("memory: a stored event cannot be read: " + err.Error())
	}
	return ev
}

// now returns the store's time, with the precision of databases.
func (m *data) now() time.Time { return m.clock().UTC().Truncate(time.Microsecond) }

// accept stores one event. The run is nil if nothing new was stored.
func (m *Store) accept(in model.Intake, row []byte) (*memoryRun, store.Accepted) {
	event := eventKey{in.Event.Namespace(), in.Event.ID}
	if old := m.events[event]; in.Dedup && old != nil {
		if old.Hash != in.Hash {
			return nil, store.Accepted{Run: old.ID, Err: store.ErrConflict}
		}
		return nil, store.Accepted{Run: old.ID, Duplicate: true}
	}
	e := m.entities[entityKey{in.Flow, in.Key}]
	undecided := false
	if in.Ordered && in.From != nil {
		state, now := "", m.now()
		undecided = in.Event.At.After(now)
		if e != nil {
			state, undecided = e.State, undecided || slices.ContainsFunc(e.live, func(r *memoryRun) bool { return !r.isScheduled(now) })
		}
		if !undecided && !slices.Contains(in.From, state) || len(in.From) == 0 && in.Event.At.After(now) {
			return nil, store.Accepted{Err: store.ErrRejected}
		}
	}
	if in.Keep && !in.Event.At.After(m.now()) && m.kept(in.Flow, in.Key).IsFull() && !slices.ContainsFunc(e.live, m.isInFlight) {
		return nil, store.Accepted{Err: store.ErrFull}
	}
	m.accepts++
	r := &memoryRun{
		seq: m.accepts, Intake: in, row: row, status: model.Waiting, pipeline: in.Pipeline,
		accepted: m.now(), due: in.Event.At,
	}
	r.Event.Payload = nil
	m.runs[r.ID], m.idle[r.ID] = r, r
	m.order = append(m.order, r)
	if in.Dedup {
		m.events[event] = r
	}
	if in.Ordered {
		if e == nil {
			e = &memoryEntity{}
			m.entities[entityKey{in.Flow, in.Key}] = e
		}
		e.runs, e.live = append(e.runs, r), append(e.live, r)
	}
	return r, store.Accepted{Run: r.ID, Undecided: undecided}
}

// isScheduled reports whether the run's event is not due yet.
func (r *memoryRun) isScheduled(now time.Time) bool {
	return r.status == model.Waiting && r.node == 0 && (r.Event.At.After(now) || r.isKept(now))
}

// isKept reports whether the run's event is kept for another run.
func (r *memoryRun) isKept(now time.Time) bool {
	return r.status == model.Waiting && r.class == model.ClassKept && !r.isDue(now)
}

// isDue reports whether the time of a run has come.
func (r *memoryRun) isDue(now time.Time) bool { return !r.due.After(now) }

// isHeld reports whether a run waits in a handler until an operator decides.
func (r *memoryRun) isHeld() bool { return r.status == model.Parked && r.due.IsZero() }

// isReady reports whether a run may be claimed.
func (m *Store) isReady(r *memoryRun, now time.Time) bool {
	if r.node != 0 || r.status != model.Waiting && r.status != model.Parked || r.aside {
		return false
	}
	if (!r.isDue(now) || r.isHeld()) && !m.hears(r, now) {
		return false
	}
	return !r.Ordered || m.head(r, now) == r
}

// hears reports whether an event that a parked run waits for is pending.
func (m *Store) hears(r *memoryRun, now time.Time) bool {
	return r.status == model.Parked && len(r.awaits) > 0 && len(m.pending(r.Flow, r.Key, r.awaits, r.heard, now)) > 0
}

// pending lists the runs of a key that wait for their turn and have one of the types.
func (m *Store) pending(flow, key string, types []string, after int64, now time.Time) (out []*memoryRun) {
	e := m.entities[entityKey{flow, key}]
	if e == nil {
		return nil
	}
	for _, r := range e.live {
		queued := r.status == model.Waiting && !r.aside && r.isDue(now) && m.head(r, now) != r
		if (queued || r.isKept(now)) && r.bundle == "" && int64(r.seq) > after && slices.Contains(types, r.Event.Type) {
			out = append(out, r)
		}
	}
	return out
}

// Pending implements [store.Inbox].
func (m *Store) Pending(ctx context.Context, flow, key string, types []string, after int64, limit int) ([]model.Pending, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []model.Pending
	for _, r := range m.pending(flow, key, types, after, m.now()) {
		if len(out) < limit {
			out = append(out, model.Pending{Run: r.ID, Position: int64(r.seq), Event: r.event(), Kept: r.class == model.ClassKept})
		}
	}
	return out, ctx.Err()
}

// Kept implements [store.Inbox].
func (m *Store) Kept(ctx context.Context, flow, key string) (store.Kept, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.kept(flow, key), ctx.Err()
}

// kept counts the events that a key keeps.
func (m *Store) kept(flow, key string) (k store.Kept) {
	e := m.entities[entityKey{flow, key}]
	if e == nil {
		return k
	}
	for _, r := range e.live {
		if r.isKept(m.now()) {
			k.Events++
			k.Bytes += int64(len(r.row))
		}
	}
	return k
}

// head returns the run that is next, or in flight, in the queue of a run's key.
func (m *Store) head(r *memoryRun, now time.Time) *memoryRun {
	var begun, first *memoryRun
	for _, other := range m.entities[entityKey{r.Flow, r.Key}].live {
		switch {
		case other.status != model.Waiting:
			return other
		case begun == nil && other.bundle != "" && !other.passed:
			begun = other // it cannot be overtaken
		case first == nil && other.isDue(now) && !other.aside:
			first = other
		}
	}
	if begun == nil && first != nil {
		first.passed = false // it has the turn from now on
	}
	return cmp.Or(begun, first)
}

// give makes a node the owner of a run.
func (m *Store) give(r *memoryRun, node int64, bundle string) store.Claimed {
	delete(m.idle, r.ID)
	r.node, r.status, r.due = node, model.Running, time.Time{}
	if r.started.IsZero() {
		r.started = m.now()
	}
	r.bundle = cmp.Or(r.bundle, model.VersionFor(cmp.Or(m.serving, bundle), r.Flow, r.Key))
	c := store.Claimed{
		ID: r.ID, Version: r.version, Event: r.event(), Flow: r.Flow, Key: r.Key, Ordered: r.Ordered,
		Block: r.Block, Accepted: r.accepted, Bundle: r.bundle, Move: r.move, Pipeline: r.pipeline,
		Generation: r.generation, Checkpoint: bytes.Clone(r.checkpoint), Losses: r.losses, Kept: r.class == model.ClassKept,
		Cancelled: r.cancel != nil,
	}
	if r.Ordered {
		c.Entity = m.entities[entityKey{r.Flow, r.Key}].EntityState
	}
	return c
}

// takeBack releases a run whose node has died or left. The next node ends a cancelled run.
func (m *Store) takeBack(r *memoryRun, died bool) {
	if died && (r.tried || !model.Suspected(r.losses)) {
		r.losses++
	}
	r.tried = false
	r.node, r.status, m.idle[r.ID] = 0, model.Waiting, r
}

// end closes a run.
func (m *Store) end(r *memoryRun, s model.Status) {
	delete(m.idle, r.ID)
	r.status = s
	r.node = 0
	r.due = time.Time{}
	r.aside = false
	r.cancel = nil
	r.ended = m.now()
	if r.Ordered && (s != model.Failed || !r.Block) {
		e := m.entities[entityKey{r.Flow, r.Key}]
		e.live = slices.DeleteFunc(e.live, func(other *memoryRun) bool { return other == r })
	}
}

// Depth implements [store.Inbox].
func (m *Store) Depth(ctx context.Context) (d store.Depth, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	for _, r := range m.order {
		if at := r.asideAt(now); at == store.AsideParked {
			d.Aside = append(d.Aside, store.AsideRuns{Pipeline: r.pipeline, Place: at, Cause: r.cause, Runs: 1, Since: r.since})
		} else if at == store.AsideKept {
			d.Aside = append(d.Aside, store.AsideRuns{Pipeline: r.Flow, Place: at, Runs: 1, Since: r.since})
		} else if at != "" {
			d.Aside = append(d.Aside, store.AsideRuns{Pipeline: r.pipeline, Place: at, Runs: 1, Since: r.since})
		}
	}
	d.Aside = store.SortAside(d.Aside)
	for _, r := range m.idle {
		if r.status != model.Waiting {
			continue
		}
		d.Waiting++
		since := r.accepted
		if r.due.After(since) {
			since = r.due
		}
		if !since.After(now) && (d.Oldest.IsZero() || since.Before(d.Oldest)) {
			d.Oldest = since
		}
	}
	return d, ctx.Err()
}

// asideAt returns where a run is set aside, or empty.
func (r *memoryRun) asideAt(now time.Time) store.AsidePlace {
	switch {
	case r.node != 0:
		return ""
	case r.isKept(now):
		return store.AsideKept
	case r.status == model.Waiting && r.aside:
		return store.AsideState
	case r.status == model.Failed && r.Block && r.Ordered:
		return store.AsideBlocking
	case r.status == model.Failed:
		return store.AsideFailed
	case r.status == model.Parked && r.isHeld():
		return store.AsideOperator
	case r.status == model.Parked && len(r.awaits) > 0:
		return store.AsideAwaits
	case r.status == model.Parked && !r.isDue(now):
		return store.AsideParked
	}
	return ""
}

// LastEvent implements [store.Inbox].
func (m *Store) LastEvent(ctx context.Context, source string) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lastEvent(source), ctx.Err()
}

func (m *Store) lastEvent(source string) (last string) {
	for k := range m.events {
		if k.source == source {
			last = max(last, k.id)
		}
	}
	return last
}

// EventRun implements [store.Inbox].
func (m *Store) EventRun(ctx context.Context, source, id string) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.events[eventKey{source, id}]; r != nil {
		return r.ID, ctx.Err()
	}
	return "", ctx.Err()
}
