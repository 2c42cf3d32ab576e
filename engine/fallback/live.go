package fallback

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"procaas/engine/canary"
	"procaas/engine/model"
	"procaas/engine/planner"
	"procaas/engine/store"
)

// This file has what a node knows about handlers that are off, and what its runs ask.

// A Live is a node's part in the fallbacks of all nodes.
type Live struct {
	// Tried is called when the trial of a new version may have changed. It may be nil.
	Tried func(*canary.State)

	store   store.Degradation
	tallies tallyBook
	Known   atomic.Pointer[outages] // nil before they are known
	decided atomic.Int64            // when a node last decided, by the store's clock; Unix nanoseconds

	reading sync.Mutex // serializes reads of the state, so that the last one is the newest
	probes  sync.Map   // name of an outage → *atomic.Int64, when to ask for its next probe
}

// New makes the Live of a node that knows no outages yet.
func New(db store.Degradation) *Live { return &Live{store: db} }

// outages are the outages of one revision in a form that is fast to read. They never change. Nil
// means none.
type outages struct {
	revision int64
	state    State
	byPath   map[string]*Outage
}

// NewOutages decodes the state in the store. An empty state has none.
func NewOutages(state []byte, revision int64) (*outages, error) {
	out := &outages{revision: revision}
	if len(state) == 0 {
		return out, nil
	}
	if err := json.Unmarshal(state, &out.state); err != nil {
		return nil, fmt.Errorf("read outages of revision %d: %w", revision, err)
	}
	for _, o := range out.state.Outages {
		for _, path := range o.Members {
			if out.byPath == nil {
				out.byPath = map[string]*Outage{}
			}
			out.byPath[path] = o
		}
	}
	return out, nil
}

// Outages returns the outages that this node knows.
func (d *Live) Outages() *outages { return d.Known.Load() }

// Any reports whether any handler is off.
func (o *outages) Any() bool { return o != nil && len(o.byPath) > 0 }

// Of returns the outage of a handler, or nil.
func (o *outages) Of(s *planner.Step) *Outage {
	if o == nil || len(o.byPath) == 0 || s.Fallback() == nil {
		return nil
	}
	return o.byPath[s.Path]
}

// Off reports whether a handler is off until a time, and why. The guard handles a recovering one,
// because some of its calls are made.
func (o *outages) Off(s *planner.Step, now time.Time) (reason string, off bool) {
	out := o.Of(s)
	if out == nil || out.phase(now) != Out {
		return "", false
	}
	return out.Reason(now), true
}

// Refresh reads the outages from the store.
func (d *Live) Refresh(ctx context.Context) error {
	d.reading.Lock()
	defer d.reading.Unlock()
	state, revision, err := d.store.Outages(ctx)
	if err != nil {
		return err
	}
	out, err := NewOutages(state, revision)
	if err != nil {
		return err
	}
	d.Known.Store(out)
	if d.Tried != nil {
		d.Tried(out.state.Canary)
	}
	return nil
}

// Canary returns the last trial of a new version, or nil. It never changes.
func (d *Live) Canary() *canary.State {
	if known := d.Outages(); known != nil {
		return known.state.Canary
	}
	return nil
}

// Tally counts the outcome of a run for the trial of a new version.
func (d *Live) Tally(all ...model.Tally) {
	for _, t := range all {
		d.tallies.add(t.Path, t.Second, t.Bad == 0)
	}
}

// Heed takes the information of a beat. What cannot be read now is read with the next beat. Until
// then the outages advance by time, as on all nodes.
func (d *Live) Heed(ctx context.Context, b store.Beat) error {
	if !b.Decided.IsZero() {
		d.decided.Store(b.Decided.UnixNano())
	}
	if known := d.Outages(); known != nil && known.revision == b.Outages {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, degradeTimeout)
	defer cancel()
	return d.Refresh(ctx)
}

// TakeProbe takes the turn to test whether an outage is over. It asks the store only now and then,
// however many runs call it.
func (d *Live) TakeProbe(ctx context.Context, outage string) (taken bool, err error) {
	known, ok := d.probes.Load(outage)
	if !ok {
		known, _ = d.probes.LoadOrStore(outage, new(atomic.Int64))
	}
	next, now := known.(*atomic.Int64), time.Now()
	at := next.Load()
	if now.UnixNano() < at || !next.CompareAndSwap(at, now.Add(probeGap).UnixNano()) {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, degradeTimeout)
	defer cancel()
	taken, err = d.store.TakeProbe(ctx, outage, probeGap)
	if err == nil && !taken {
		next.Store(now.Add(probeRetry).UnixNano()) // another node has it; this one may get the next
	}
	return taken && err == nil, err
}

// Admits is admit for a call of a run.
func (o *Outage) Admits(now time.Time, run, path string) Admission {
	return o.admit(now, model.Chance(run, path))
}

// Reason describes for people why a call is skipped.
func (o *Outage) Reason(now time.Time) string {
	var b strings.Builder
	b.WriteString("fallback")
	if o.Service {
		b.WriteString(" with its service " + o.Name)
	}
	b.WriteString(" since " + o.Since.UTC().Format(time.RFC3339))
	switch until := o.Until.UTC().Format(time.RFC3339); o.phase(now) {
	case Out:
		b.WriteString(" until " + until)
	case Probing:
		b.WriteString(" until probes succeed")
	default:
		b.WriteString(", coming back until " + until)
	}
	fmt.Fprintf(&b, ", success ratio %.2f: %s", o.Ratio, o.Why)
	return b.String()
}
