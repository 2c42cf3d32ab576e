package memory

import (
	"bytes"
	"context"
	"slices"
	"time"

	"procaas/engine/model"
	"procaas/engine/store"
)

// memoryFallback is the state of a Store for fallbacks.
type memoryFallback struct {
	reports  []memoryReport // in order; the number of the first is dropped + 1
	dropped  int64
	state    []byte
	revision int64
	turn     int64
	decider  int64
	decided  time.Time
	taken    int64
	probes   map[string]time.Time
}

type memoryReport struct {
	node, number int64
	at           time.Time
	tallies      []model.Tally
}

// Report implements [store.Degradation].
func (m fallbackPort) Report(ctx context.Context, node, number int64, tallies []model.Tally) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	f := &m.fallback
	if !slices.ContainsFunc(f.reports, func(r memoryReport) bool { return r.node == node && r.number == number }) {
		f.reports = append(f.reports, memoryReport{node, number, m.now(), slices.Clone(tallies)})
	}
	return nil
}

// Deliberate implements [store.Degradation].
func (m fallbackPort) Deliberate(ctx context.Context, keep time.Duration) (store.Deliberation, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := &m.fallback
	d := store.Deliberation{
		Now: m.now(), Turn: f.turn, Decider: f.decider, Decided: f.decided, State: bytes.Clone(f.state),
		Taken: f.taken, Reported: f.dropped + int64(len(f.reports)),
	}
	for i, r := range f.reports {
		switch {
		case f.dropped+int64(i) >= f.taken:
			d.Fresh = append(d.Fresh, r.tallies...)
		case r.at.After(d.Now.Add(-keep)):
			d.Past = append(d.Past, r.tallies...)
		}
	}
	return d, ctx.Err()
}

// Conclude implements [store.Degradation].
func (m fallbackPort) Conclude(ctx context.Context, c store.Conclusion) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	f := &m.fallback
	if f.turn != c.Turn {
		return store.ErrConflict
	}
	f.turn++
	f.taken = c.Taken
	if c.Node != 0 {
		f.decider, f.decided = c.Node, m.now()
	}
	if c.State != nil {
		f.state = bytes.Clone(c.State)
		f.revision++
	}
	if c.Serve.Old != "" && c.Serve.Old == m.current {
		m.serving = c.Serve.String()
	}
	for _, a := range c.Audits {
		m.audit(a)
	}
	for c.Forget > 0 && f.dropped < f.taken && f.reports[0].at.Before(m.now().Add(-c.Forget)) {
		f.reports = f.reports[1:]
		f.dropped++
	}
	return nil
}

// Outages implements [store.Degradation].
func (m fallbackPort) Outages(ctx context.Context) ([]byte, int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return bytes.Clone(m.fallback.state), m.fallback.revision, ctx.Err()
}

// TakeProbe implements [store.Degradation].
func (m fallbackPort) TakeProbe(ctx context.Context, outage string, gap time.Duration) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return false, err
	}
	f := &m.fallback
	if last, ok := f.probes[outage]; ok && m.now().Sub(last) < gap {
		return false, nil
	}
	if f.probes == nil {
		f.probes = map[string]time.Time{}
	}
	f.probes[outage] = m.now()
	return true, nil
}
