package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"procaas/engine/core"
	"procaas/engine/guard"
	"procaas/engine/planner"
	"procaas/engine/store"
)

// This file is what a node knows of handlers that are out of the flow, and what
// its runs ask of that.

// A degrader is this node's part in the fallbacks of all nodes.
type degrader struct {
	store   store.Degradation
	tallies tallyBook
	live    atomic.Pointer[outages] // nil before they are known
	decided atomic.Int64            // when a node decided last, by the store's clock; Unix nanoseconds

	reading sync.Mutex // makes reading the state one at a time, so that the last answer is the newest
	probes  sync.Map   // name of an outage → *atomic.Int64, when to ask for its next probe
}

// outages are the outages of one revision, made ready to be asked often. They are
// never changed; nil is none.
type outages struct {
	revision int64
	state    FallbackState
	byPath   map[string]*Outage
}

func newOutages(state []byte, revision int64) (*outages, error) {
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

// outages gives the outages as this node knows them.
func (d *degrader) outages() *outages { return d.live.Load() }

// of gives the outage of a handler; nil when it is in the flow.
func (o *outages) of(s *planner.Step) *Outage {
	if o == nil || len(o.byPath) == 0 || s.Fallback() == nil {
		return nil
	}
	return o.byPath[s.Path]
}

// off tells whether a handler is out of the flow until a time. One that is coming
// back is for the guard, since only some of its calls are made.
func (o *outages) off(s *planner.Step, now time.Time) (reason string, off bool) {
	out := o.of(s)
	if out == nil || out.phase(now) != FallbackOut {
		return "", false
	}
	return out.reason(now), true
}

// refresh reads the outages from the store.
func (d *degrader) refresh(ctx context.Context) error {
	d.reading.Lock()
	defer d.reading.Unlock()
	state, revision, err := d.store.Outages(ctx)
	if err != nil {
		return err
	}
	out, err := newOutages(state, revision)
	if err != nil {
		return err
	}
	d.live.Store(out)
	return nil
}

// heed takes in what a beat tells. What cannot be read now is read with the next
// one: until then the outages go by the time, as the others see them, too.
func (d *degrader) heed(ctx context.Context, b store.Beat) error {
	if !b.Decided.IsZero() {
		d.decided.Store(b.Decided.UnixNano())
	}
	if known := d.outages(); known != nil && known.revision == b.Outages {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, degradeTimeout)
	defer cancel()
	return d.refresh(ctx)
}

// off tells whether a handler of the run is left out at present, and why. What
// operators say comes first: a handler that they hold waits.
func (j *job) off(s *planner.Step, c *guard.Controls, now time.Time) (reason string, off bool) {
	if reason, off = c.Off(s, now); !off {
		if reason, off = j.n.e.degrader.outages().off(s, now); !off || c.Overrides(s, now) {
			return "", false
		}
	}
	j.pass.LeaveAll(s.Path, now)
	return reason, off
}

// verdict asks the guard about a handler, and whether its outage lets this call
// through. While the handler is coming back, the run does not wait for it. Ref and
// due are those of [core.Live].Guard.
func (j *job) verdict(s *planner.Step, ref string, due time.Time, c *guard.Controls, now time.Time) core.Verdict {
	e := j.n.e
	o := e.degrader.outages().of(s)
	if o == nil || c.Overrides(s, now) {
		return e.guard.Verdict(s, ref, due, &j.pass, c, now)
	}
	admitted := o.admit(now, chanceOf(j.claimed.ID, s.Path))
	if admitted == AdmitCall {
		return e.guard.Verdict(s, ref, due, &j.pass, c, now)
	}
	if admitted == AdmitProbe && e.guard.Verdict(s, ref, due, &j.pass, c, now) == (core.Verdict{}) && j.n.takeProbe(o.Name) {
		return core.Verdict{}
	}
	j.pass.Leave(ref, now)
	return core.Verdict{Skip: true, Reason: o.reason(now)}
}

// takeProbe takes the turn to try whether an outage is over. It asks the store,
// once in a while, however many runs want to know.
func (n *node) takeProbe(outage string) bool {
	known, ok := n.e.degrader.probes.Load(outage)
	if !ok {
		known, _ = n.e.degrader.probes.LoadOrStore(outage, new(atomic.Int64))
	}
	next, now := known.(*atomic.Int64), time.Now()
	at := next.Load()
	if now.UnixNano() < at || !next.CompareAndSwap(at, now.Add(probeGap).UnixNano()) {
		return false
	}
	ctx, cancel := context.WithTimeout(n.ctx, degradeTimeout)
	defer cancel()
	taken, err := n.e.o.Store.TakeProbe(ctx, outage, probeGap)
	switch {
	case err != nil:
		n.e.metrics.failed("probe")
	case !taken:
		next.Store(now.Add(probeRetry).UnixNano()) // another node has it; the next second may be ours
	}
	return taken && err == nil
}

// chanceOf is where a call stands among the shares of calls that are made, always
// the same. It is FNV-1a with its bits mixed, since ids that follow each other
// must not stand together.
func chanceOf(run, path string) float64 {
	h := uint64(14695981039346656037)
	for _, text := range [2]string{run, path} {
		for i := range len(text) {
			h = (h ^ uint64(text[i])) * 1099511628211
		}
	}
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	return float64(h>>11) / (1 << 53)
}

// reason tells people why a call is skipped.
func (o *Outage) reason(now time.Time) string {
	var b strings.Builder
	b.WriteString("fallback")
	if o.Service {
		b.WriteString(" with its service " + o.Name)
	}
	b.WriteString(" since " + o.Since.UTC().Format(time.RFC3339))
	switch until := o.Until.UTC().Format(time.RFC3339); o.phase(now) {
	case FallbackOut:
		b.WriteString(" until " + until)
	case FallbackProbing:
		b.WriteString(" until probes succeed")
	default:
		b.WriteString(", coming back until " + until)
	}
	fmt.Fprintf(&b, ", success ratio %.2f: %s", o.Ratio, o.Why)
	return b.String()
}
