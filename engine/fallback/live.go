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

// This file is what a node knows of handlers that are out of the flow, and what
// its runs ask of that.

// A Live is this node's part in the fallbacks of all nodes.
type Live struct {
	// Tried hears of the trial of a new version when it may have changed; nil when nobody wants to know.
	Tried func(*canary.State)

	store   store.Degradation
	tallies tallyBook
	Known   atomic.Pointer[outages] // nil before they are known
	decided atomic.Int64            // when a node decided last, by the store's clock; Unix nanoseconds

	reading sync.Mutex // makes reading the state one at a time, so that the last answer is the newest
	probes  sync.Map   // name of an outage → *atomic.Int64, when to ask for its next probe
}

// New makes that of a node that knows of no outages yet.
func New(db store.Degradation) *Live { return &Live{store: db} }

// outages are the outages of one revision, made ready to be asked often. They are
// never changed; nil is none.
type outages struct {
	revision int64
	state    State
	byPath   map[string]*Outage
}

// NewOutages reads the state that the store keeps; none when it is empty.
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

// Outages returns the outages as this node knows them.
func (d *Live) Outages() *outages { return d.Known.Load() }

// Any reports whether a handler is out of the flow.
func (o *outages) Any() bool { return o != nil && len(o.byPath) > 0 }

// Of returns the outage of a handler; nil when it is in the flow.
func (o *outages) Of(s *planner.Step) *Outage {
	if o == nil || len(o.byPath) == 0 || s.Fallback() == nil {
		return nil
	}
	return o.byPath[s.Path]
}

// Off reports whether a handler is out of the flow until a time. One that is coming
// back is for the guard, since only some of its calls are made.
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

// Canary returns the last trial of a new version; nil when there was none. It is never changed.
func (d *Live) Canary() *canary.State {
	if known := d.Outages(); known != nil {
		return known.state.Canary
	}
	return nil
}

// Tally counts what a run came to for the trial of a new version.
func (d *Live) Tally(all ...model.Tally) {
	for _, t := range all {
		d.tallies.add(t.Path, t.Second, t.Bad == 0)
	}
}

// Heed takes in what a beat tells. What cannot be read now is read with the next
// one: until then the outages go by the time, as the others see them, too.
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

// TakeProbe takes the turn to try whether an outage is over. It asks the store,
// once in a while, however many runs want to know.
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
		next.Store(now.Add(probeRetry).UnixNano()) // another node has it; the next second may be ours
	}
	return taken && err == nil, err
}

// Admits is admit for a call of a run.
func (o *Outage) Admits(now time.Time, run, path string) Admission {
	return o.admit(now, model.Chance(run, path))
}

// Reason tells people why a call is skipped.
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
