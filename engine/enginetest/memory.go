package enginetest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"procaas/engine"
)

// Memory is a store that forgets everything at the end of the process. It keeps
// the contract of the ports in the plainest way, so that tests of the engine need
// no database. Several engines may share one, as nodes share a database.
type Memory struct {
	mu       sync.Mutex // guards the following
	runs     map[string]*memoryRun
	order    []*memoryRun // by acceptance
	idle     map[string]*memoryRun
	entities map[entityKey]*memoryEntity
	events   map[eventKey]*memoryRun
	nodes    map[int64]*memoryNode
	bundles  map[string][]byte
	current  string // bundle
	configs  map[string]engine.Setting
	controls map[string]engine.Setting
	audits   []engine.Audited
	wakes    []chan struct{}
}

type (
	entityKey struct{ flow, key string }
	eventKey  struct{ source, id string }
)

// A memoryRun is one row.
type memoryRun struct {
	seq int
	engine.Intake
	row        []byte // the event, encoded
	status     engine.Status
	node       int64
	version    int64
	generation int
	pipeline   string
	bundle     string
	checkpoint []byte
	aside      bool // deferred
	cancel     *string
	due        time.Time
	cause      string // of a parked run
	accepted   time.Time
	started    time.Time
	ended      time.Time
	failedPath string
	failure    string
	class      string
	reason     string
}

// A memoryEntity is what is kept of a key.
type memoryEntity struct {
	engine.EntityState
	runs []*memoryRun // by acceptance
	live []*memoryRun // of them, those that have not ended, and failed ones that block
}

// A memoryNode is a member.
type memoryNode struct {
	engine.NodeInfo
	until time.Time
	gone  bool // may not write any more
	left  bool // of its own will
}

// NewMemory makes an empty store.
func NewMemory() *Memory {
	return &Memory{
		runs: map[string]*memoryRun{}, idle: map[string]*memoryRun{},
		entities: map[entityKey]*memoryEntity{}, events: map[eventKey]*memoryRun{},
		nodes: map[int64]*memoryNode{}, bundles: map[string][]byte{}, configs: map[string]engine.Setting{}, controls: map[string]engine.Setting{},
	}
}

var (
	_ engine.Store = (*Memory)(nil)
	_ engine.Waker = (*Memory)(nil)
)

// Close implements [engine.Store].
func (m *Memory) Close() error { return nil }

// Wake implements [engine.Waker].
func (m *Memory) Wake() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := make(chan struct{}, 1)
	c <- struct{}{} // for what has become ready before
	m.wakes = append(m.wakes, c)
	return c
}

func (m *Memory) hint() {
	for _, c := range m.wakes {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// Accept implements [engine.Inbox].
func (m *Memory) Accept(ctx context.Context, node int64, runs []engine.Intake) ([]engine.Accepted, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if n := m.nodes[node]; node != 0 && (n == nil || n.gone) {
		return nil, engine.ErrFenced
	}
	rows, err := encode(runs)
	if err != nil {
		return nil, err
	}
	out := make([]engine.Accepted, len(runs))
	waits := false
	for i, in := range runs {
		r, a := m.accept(in, rows[i])
		if out[i] = a; r == nil {
			continue
		}
		if in.Own && node != 0 && m.isReady(r, now()) {
			c := m.give(r, node, in.Bundle)
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

// encode makes rows of events, so that no memory is shared with the engine.
func encode(runs []engine.Intake) ([][]byte, error) {
	rows := make([][]byte, len(runs))
	for i, in := range runs {
		var err error
		if rows[i], err = engine.EncodeEvent(in.Event); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// event reads the event of a row.
func (r *memoryRun) event() engine.Event {
	ev, err := engine.DecodeEvent(r.row)
	if err != nil {
		panic("enginetest: a stored event cannot be read: " + err.Error())
	}
	return ev
}

// now is the store's clock, as fine as databases keep it.
func now() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }

// accept stores one event; the run is nil when nothing new was stored.
func (m *Memory) accept(in engine.Intake, row []byte) (*memoryRun, engine.Accepted) {
	event := eventKey{in.Event.Source, in.Event.ID}
	if old := m.events[event]; in.Dedup && old != nil {
		if old.Hash != in.Hash {
			return nil, engine.Accepted{Err: engine.ErrConflict}
		}
		return nil, engine.Accepted{Run: old.ID, Duplicate: true}
	}
	e := m.entities[entityKey{in.Flow, in.Key}]
	if in.Ordered {
		state := ""
		if e != nil {
			state = e.State
		}
		if (e == nil || len(e.live) == 0) && in.From != nil && !slices.Contains(in.From, state) {
			return nil, engine.Accepted{Err: engine.ErrRejected}
		}
	}
	r := &memoryRun{
		seq: len(m.order) + 1, Intake: in, row: row, status: engine.Waiting, pipeline: in.Pipeline,
		accepted: now(), due: in.Event.At,
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
	return r, engine.Accepted{Run: r.ID}
}

// isDue tells whether the time of a run has come.
func (r *memoryRun) isDue(now time.Time) bool { return !r.due.After(now) }

// isHeld tells whether a run waits in a handler until an operator decides.
func (r *memoryRun) isHeld() bool { return r.status == engine.Parked && r.due.IsZero() }

// isReady tells whether a run may be claimed.
func (m *Memory) isReady(r *memoryRun, now time.Time) bool {
	if r.node != 0 || r.status != engine.Waiting && r.status != engine.Parked || !r.isDue(now) || r.aside || r.isHeld() {
		return false
	}
	return !r.Ordered || m.head(r, now) == r
}

// head finds the run that is next, or under way, in the queue of a run's key.
func (m *Memory) head(r *memoryRun, now time.Time) *memoryRun {
	var begun, first *memoryRun
	for _, other := range m.entities[entityKey{r.Flow, r.Key}].live {
		switch {
		case other.status != engine.Waiting:
			return other
		case begun == nil && other.bundle != "":
			begun = other // is not overtaken
		case first == nil && other.isDue(now) && !other.aside:
			first = other
		}
	}
	return cmp.Or(begun, first)
}

// give makes a node the owner of a run.
func (m *Memory) give(r *memoryRun, node int64, bundle string) engine.Claimed {
	delete(m.idle, r.ID)
	r.node, r.status, r.due = node, engine.Running, time.Time{}
	if r.started.IsZero() {
		r.started = now()
	}
	r.bundle = cmp.Or(r.bundle, bundle)
	c := engine.Claimed{
		ID: r.ID, Version: r.version, Event: r.event(), Flow: r.Flow, Key: r.Key, Ordered: r.Ordered,
		Block: r.Block, Accepted: r.accepted, Bundle: r.bundle, Pipeline: r.pipeline,
		Generation: r.generation, Checkpoint: bytes.Clone(r.checkpoint),
	}
	if r.Ordered {
		c.Entity = m.entities[entityKey{r.Flow, r.Key}].EntityState
	}
	return c
}

// takeBack makes a run nobody's. One that an operator wants ended ends.
func (m *Memory) takeBack(r *memoryRun) {
	r.node, r.status, m.idle[r.ID] = 0, engine.Waiting, r
	if r.cancel != nil {
		r.reason = *r.cancel
		m.end(r, engine.Stopped)
	}
}

// end closes a run.
func (m *Memory) end(r *memoryRun, s engine.Status) {
	delete(m.idle, r.ID)
	r.status, r.node, r.due, r.aside, r.cancel, r.ended = s, 0, time.Time{}, false, nil, now()
	if r.Ordered && (s != engine.Failed || !r.Block) {
		e := m.entities[entityKey{r.Flow, r.Key}]
		e.live = slices.DeleteFunc(e.live, func(other *memoryRun) bool { return other == r })
	}
}

// Depth implements [engine.Inbox].
func (m *Memory) Depth(ctx context.Context) (waiting int, oldest time.Time, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := now()
	for _, r := range m.idle {
		if r.status != engine.Waiting {
			continue
		}
		waiting++
		since := r.accepted
		if r.due.After(since) {
			since = r.due
		}
		if !since.After(now) && (oldest.IsZero() || since.Before(oldest)) {
			oldest = since
		}
	}
	return waiting, oldest, ctx.Err()
}

// LastEvent implements [engine.Inbox].
func (m *Memory) LastEvent(ctx context.Context, source string) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	last := ""
	for k := range m.events {
		if k.source == source {
			last = max(last, k.id)
		}
	}
	return last, ctx.Err()
}

// Join implements [engine.Ledger].
func (m *Memory) Join(ctx context.Context, name string, lease time.Duration) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	now, node := now(), int64(len(m.nodes)+1)
	m.nodes[node] = &memoryNode{
		NodeInfo: engine.NodeInfo{Node: node, Name: name, Started: now, Seen: now}, until: now.Add(lease),
	}
	return node, nil
}

// Beat implements [engine.Ledger].
func (m *Memory) Beat(ctx context.Context, node int64, lease time.Duration) (engine.Beat, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return engine.Beat{}, err
	}
	n := m.nodes[node]
	if n == nil || n.gone {
		return engine.Beat{}, engine.ErrFenced
	}
	now := now()
	n.Seen, n.until = now, now.Add(lease)
	for _, other := range m.nodes {
		if !other.gone && other.until.Before(now) {
			other.gone = true
		}
	}
	b := engine.Beat{Now: now, Revision: m.revision(), Causes: m.causes()}
	for _, other := range m.nodes {
		if !other.gone {
			b.Nodes++
		}
	}
	for _, r := range m.order {
		if r.node == 0 {
			continue
		}
		if m.nodes[r.node].gone {
			m.takeBack(r)
		}
		if r.node == node {
			b.Owned++
			if r.cancel != nil {
				b.Cancelled = append(b.Cancelled, r.ID)
			}
		}
	}
	for _, r := range m.idle {
		if m.isReady(r, now) {
			b.Ready++
		}
		if left := r.due.Sub(now); left > 0 && (b.Next == 0 || left < b.Next) {
			b.Next = left
		}
	}
	return b, nil
}

// Claim implements [engine.Ledger].
func (m *Memory) Claim(ctx context.Context, node int64, limit int, bundle string) ([]engine.Claimed, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if n := m.nodes[node]; n == nil || n.gone {
		return nil, engine.ErrFenced
	}
	now := now()
	var ready []*memoryRun
	for _, r := range m.idle {
		if m.isReady(r, now) {
			ready = append(ready, r)
		}
	}
	slices.SortFunc(ready, func(a, b *memoryRun) int {
		return cmp.Or(cmp.Compare(b.Event.Priority, a.Event.Priority),
			a.deadline().Compare(b.deadline()), cmp.Compare(a.seq, b.seq))
	})
	var out []engine.Claimed
	for _, r := range ready[:min(limit, len(ready))] {
		out = append(out, m.give(r, node, bundle))
	}
	return out, nil
}

// deadline is when a run becomes late.
func (r *memoryRun) deadline() time.Time {
	due := r.accepted
	if r.Event.At.After(due) {
		due = r.Event.At
	}
	return due.Add(r.Event.DelayTolerance)
}

// Commit implements [engine.Ledger].
func (m *Memory) Commit(ctx context.Context, node int64, changes []engine.Change) ([]error, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if n := m.nodes[node]; n == nil || n.gone {
		return nil, engine.ErrFenced
	}
	rows := make([][][]byte, len(changes))
	seen := map[string]bool{}
	for i, c := range changes {
		var err error
		if rows[i], err = encode(c.Emit); err != nil {
			return nil, err
		}
		if seen[c.Run] {
			return nil, fmt.Errorf("run %s occurs twice in one commit", c.Run)
		}
		seen[c.Run] = true
	}
	errs := make([]error, len(changes))
	for i, c := range changes {
		r := m.runs[c.Run]
		switch {
		case r == nil || r.node != node || r.version != c.Version:
			errs[i] = engine.ErrStale
		case r.cancel != nil && c.Status != engine.Succeeded && c.Status != engine.Stopped && c.Status != engine.Ignored:
			errs[i] = engine.ErrCancelled
		default:
			m.apply(r, c, rows[i])
		}
	}
	return errs, nil
}

// apply writes one change.
func (m *Memory) apply(r *memoryRun, c engine.Change, emits [][]byte) {
	r.version++
	r.checkpoint, r.bundle, r.pipeline = bytes.Clone(c.Checkpoint), c.Bundle, c.Pipeline
	r.failedPath, r.failure, r.class, r.reason = c.FailedPath, c.Error, c.ErrorClass, c.Reason
	if c.Status == engine.Stopped && r.cancel != nil {
		r.reason = *r.cancel
	}
	switch {
	case c.Status.Ended():
		m.end(r, c.Status)
	case c.Status != engine.Running:
		r.node, r.status, r.aside, m.idle[r.ID] = 0, c.Status, c.Defer, r
		if c.Status == engine.Waiting && len(c.Checkpoint) == 0 {
			r.started = time.Time{}
		}
		if c.Status == engine.Parked {
			r.due, r.cause = c.Due.UTC().Truncate(time.Microsecond), c.Cause // zero stays zero
		}
	}
	if c.Status == engine.Succeeded && r.Ordered {
		m.moveEntity(r, c)
	}
	for i, in := range c.Emit {
		in.From = nil
		m.accept(in, emits[i])
	}
	if c.Status != engine.Running || len(c.Emit) > 0 {
		m.hint()
	}
}

// moveEntity writes what a run leaves to the later events of its key.
func (m *Memory) moveEntity(r *memoryRun, c engine.Change) {
	e := m.entities[entityKey{r.Flow, r.Key}]
	if c.State != "" && c.State != e.State {
		e.State = c.State
		for _, other := range e.live {
			other.aside = false
		}
	}
	if len(c.Shared) == 0 {
		return
	}
	names := map[string]json.RawMessage{}
	for _, part := range [][]byte{e.Shared, c.Shared} {
		if len(part) > 0 {
			if err := json.Unmarshal(part, &names); err != nil {
				panic("enginetest: shared state is no JSON object: " + err.Error())
			}
		}
	}
	e.Shared, _ = json.Marshal(names)
}

// Leave implements [engine.Ledger].
func (m *Memory) Leave(ctx context.Context, node int64, keep []string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	n := m.nodes[node]
	if n == nil || n.gone {
		return nil // what it held is given back already
	}
	n.gone, n.left = keep == nil, keep == nil
	for _, r := range m.order {
		if r.node == node && !slices.Contains(keep, r.ID) {
			m.takeBack(r)
		}
	}
	m.hint()
	return nil
}

// Nodes implements [engine.Ledger].
func (m *Memory) Nodes(ctx context.Context) ([]engine.NodeInfo, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []engine.NodeInfo
	for _, n := range slices.Sorted(maps.Keys(m.nodes)) {
		info := m.nodes[n].NodeInfo
		if m.nodes[n].left {
			continue
		}
		info.Alive = !m.nodes[n].gone && m.nodes[n].until.After(now())
		for _, r := range m.order {
			if r.node == n {
				info.Runs++
			}
		}
		out = append(out, info)
	}
	slices.SortStableFunc(out, func(a, b engine.NodeInfo) int {
		if a.Alive == b.Alive {
			return 0
		}
		if a.Alive {
			return -1
		}
		return 1
	})
	return out, ctx.Err()
}

// Run implements [engine.Runs].
func (m *Memory) Run(ctx context.Context, id string) (engine.RunRecord, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.runs[id]
	if r == nil {
		return engine.RunRecord{}, cmp.Or(ctx.Err(), engine.ErrNotFound)
	}
	return m.record(r), ctx.Err()
}

// record makes a row readable.
func (m *Memory) record(r *memoryRun) engine.RunRecord {
	now := now()
	due := r.due
	if r.status == engine.Waiting && r.isDue(now) {
		due = time.Time{}
	}
	return engine.RunRecord{
		ID: r.ID, Event: r.event(), Flow: r.Flow, Key: r.Key, Ordered: r.Ordered, Status: r.status,
		Pipeline: r.pipeline, Bundle: r.bundle, Checkpoint: bytes.Clone(r.checkpoint),
		Version: r.version, Generation: r.generation, Node: r.node, Accepted: r.accepted,
		Started: r.started, Ended: r.ended, Due: due, FailedPath: r.failedPath,
		Error: r.failure, ErrorClass: r.class, Reason: r.reason,
		Blocked: r.Ordered && r.status == engine.Waiting && r.isDue(now) && !r.aside && m.head(r, now) != r,
	}
}

// Entity implements [engine.Runs].
func (m *Memory) Entity(ctx context.Context, flow, key string) (engine.EntityRecord, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entities[entityKey{flow, key}]
	if e == nil {
		return engine.EntityRecord{}, cmp.Or(ctx.Err(), engine.ErrNotFound)
	}
	out := engine.EntityRecord{Flow: flow, Key: key, EntityState: e.EntityState}
	for _, r := range e.live {
		if r.status == engine.Failed || r.isHeld() {
			out.Blocked = r.ID
		}
		if r.status != engine.Failed {
			out.Waiting++
		}
	}
	for _, r := range slices.Backward(e.runs[max(0, len(e.runs)-50):]) {
		record := m.record(r)
		record.Checkpoint = nil
		out.Runs = append(out.Runs, record)
	}
	return out, ctx.Err()
}

// Retry implements [engine.Runs].
func (m *Memory) Retry(ctx context.Context, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.runs[id]
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case r == nil:
		return engine.ErrNotFound
	case r.status != engine.Failed && !r.isHeld():
		return engine.ErrConflict
	}
	passed := r.status == engine.Failed && !r.Block
	r.status, r.ended, r.failedPath, r.failure, r.class = engine.Waiting, time.Time{}, "", "", ""
	r.generation++
	m.idle[r.ID] = r
	if r.Ordered && passed { // the later runs of its key went on without it
		e := m.entities[entityKey{r.Flow, r.Key}]
		e.live = append(e.live, r)
		slices.SortFunc(e.live, func(a, b *memoryRun) int { return cmp.Compare(a.seq, b.seq) })
	}
	m.hint()
	return nil
}

// Cancel implements [engine.Runs].
func (m *Memory) Cancel(ctx context.Context, id, reason string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.runs[id]
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case r == nil:
		return engine.ErrNotFound
	case r.status.Ended() && r.status != engine.Failed:
		return engine.ErrConflict
	case r.node != 0:
		if r.cancel == nil {
			r.cancel = &reason
		}
		return nil
	}
	r.reason = reason
	m.end(r, engine.Stopped)
	m.hint()
	return nil
}
