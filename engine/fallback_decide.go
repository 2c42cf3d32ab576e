package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"procaas/engine/model"
	"procaas/engine/store"
)

// This file lets nodes decide about fallbacks. Each reports, once a second, what
// calls came to; one of them decides, always the same as long as it does. It
// needs no election: a decision counts when no other one has come before.

const (
	reportAt       = 50 * time.Millisecond // of each second
	decideAt       = 250 * time.Millisecond
	lookAt         = 400 * time.Millisecond // at what was decided, when calls here have failed
	decideLate     = 3 * time.Second        // then another node decides
	probeGap       = time.Second            // between two probes of an outage, on all nodes
	probeRetry     = 200 * time.Millisecond
	degradeTimeout = 2 * time.Second // of one call of the store; the next second has its own
)

// A decider is what a node remembers between its decisions.
type decider struct {
	n      *node
	counts FallbackCounts // nil: they have to be counted again
	taken  int64          // reports up to here are in counts
	mine   bool           // this node has decided last

	unsent  []store.Tally // of a report whose end is not known
	reports int64         // that have been numbered
	failing bool          // the last call of the store did; told once
}

// degrade reports and decides until the membership ends.
func (n *node) degrade() {
	d := decider{n: n}
	// Nodes report one after the other, not all at the same moment.
	mine := reportAt + time.Duration(n.number%10)*10*time.Millisecond
	for pause(n.ctx, n.e.untilIn(mine)) {
		f := n.e.fallbacks()
		if f == nil {
			n.e.degrader.tallies.take(n.e.clock.now().Unix() + 1)
			d = decider{n: n, reports: d.reports}
			continue
		}
		bad, err := d.report()
		d.check("report", err)
		switch {
		case d.isMyTurn() && pause(n.ctx, n.e.untilIn(decideAt)):
			d.check("decide", d.decide(f))
		case bad && pause(n.ctx, n.e.untilIn(lookAt)):
			d.check("outages", d.look())
		}
	}
}

// look reads what was decided. The next beat would tell, too, but calls fail
// meanwhile.
func (d *decider) look() error {
	ctx, cancel := context.WithTimeout(d.n.ctx, degradeTimeout)
	defer cancel()
	return d.n.e.degrader.refresh(ctx)
}

// untilIn gives the time until a moment of the next second, by the store's clock.
func (e *Engine) untilIn(moment time.Duration) time.Duration {
	now := e.clock.now()
	next := now.Truncate(time.Second).Add(moment)
	if !next.After(now) {
		next = next.Add(time.Second)
	}
	return next.Sub(now)
}

// fallbacks gives what this node would decide by; nil when nothing can go out,
// and nothing is out.
func (e *Engine) fallbacks() *Fallbacks {
	if f := e.library.current.Load().fallbacks; f != nil {
		if kept := e.kept(); len(kept) > 0 {
			return f.without(kept)
		}
		return f
	}
	if o := e.degrader.outages(); o != nil && len(o.byPath) > 0 {
		return NewFallbacks(nil) // which forgets them
	}
	return nil
}

// kept lists the handlers that operators keep in the flow.
func (e *Engine) kept() []string {
	var out []string
	c, now := e.settings.controls(), e.clock.now()
	if c == nil || len(c.ByPath) == 0 {
		return nil
	}
	for _, p := range e.library.current.Load().plans {
		for _, s := range p.Written {
			if s.Fallback() != nil && c.Keeps(s, now) {
				out = append(out, s.Path)
			}
		}
	}
	return out
}

// isMyTurn tells whether the node is the one that decides, or the one that does has
// been silent for too long.
func (d *decider) isMyTurn() bool {
	last := time.Unix(0, d.n.e.degrader.decided.Load())
	return d.mine || d.n.e.clock.now().Sub(last) > decideLate
}

// check tells what goes wrong, once.
func (d *decider) check(what string, err error) {
	switch {
	case err == nil:
		d.failing = false
	case d.n.ctx.Err() == nil:
		d.n.e.metrics.failed(what)
		if !d.failing {
			d.n.log.Warn("handlers that fail do not go out of the flow, nor come back, until the store answers", "error", err)
		}
		d.failing = true
	}
}

// report hands in what calls have come to, and tells whether any have failed. A
// report whose answer was lost is sent again as it was, with its number.
func (d *decider) report() (bad bool, err error) {
	if len(d.unsent) == 0 {
		if d.unsent = d.n.e.degrader.tallies.take(d.n.e.clock.now().Unix()); len(d.unsent) == 0 {
			return false, nil
		}
		d.reports++
	}
	ctx, cancel := context.WithTimeout(d.n.ctx, degradeTimeout)
	defer cancel()
	bad = slices.ContainsFunc(d.unsent, func(t store.Tally) bool { return t.Bad > 0 })
	if err = d.n.e.o.Store.Report(ctx, d.n.number, d.reports, d.unsent); err == nil {
		d.unsent = nil
	}
	return bad, err
}

// decide makes the decision of this second, unless another node does.
func (d *decider) decide(f *Fallbacks) error {
	e, keep := d.n.e, f.longestWindow()
	ctx, cancel := context.WithTimeout(d.n.ctx, degradeTimeout)
	defer cancel()
	look := time.Duration(0)
	if d.counts == nil {
		look = keep
	}
	q, err := e.o.Store.Deliberate(ctx, look)
	if err == nil && d.counts != nil && q.Taken != d.taken {
		d.counts = nil // another node has decided meanwhile
		q, err = e.o.Store.Deliberate(ctx, keep)
	}
	if err != nil {
		return err
	}
	if q.Decider != d.n.number && !q.Decided.IsZero() && q.Now.Sub(q.Decided) <= decideLate {
		e.degrader.decided.Store(q.Decided.UnixNano())
		d.mine, d.counts = false, nil
		return nil
	}
	var s FallbackState
	if len(q.State) > 0 {
		if err := json.Unmarshal(q.State, &s); err != nil {
			return fmt.Errorf("read outages: %w", err)
		}
	}
	if d.counts == nil {
		d.counts = f.Recount(&s, q.Now, q.Past)
	}
	changes := f.Decide(&s, d.counts, model.Stamp(q.Now), q.Fresh)
	c := store.Conclusion{
		Turn: q.Turn, Node: d.n.number, Taken: q.Reported, Forget: keep + time.Minute, Audits: auditsOf(changes), State: stateAfter(q.State, &s),
	}
	switch err := e.o.Store.Conclude(ctx, c); {
	case errors.Is(err, store.ErrConflict):
		d.mine, d.counts = false, nil
		return nil
	case err != nil:
		d.counts = nil // nobody knows what it has come to
		return err
	}
	d.mine, d.taken = true, q.Reported
	e.degrader.decided.Store(q.Now.UnixNano())
	e.announce(changes)
	if c.State == nil {
		return nil
	}
	return e.degrader.refresh(ctx)
}

// stateAfter gives what is to be stored of a state; nil when nothing has changed.
func stateAfter(before []byte, s *FallbackState) []byte {
	after := model.EncodeJSON(s)
	if bytes.Equal(before, after) || len(before) == 0 && string(after) == "{}" {
		return nil
	}
	return after
}

// engineActor is who takes handlers out of the flow and back.
const engineActor = "engine"

// auditsOf makes the audit records of changes that people must be able to
// look up.
func auditsOf(changes []FallbackChange) []store.Audited {
	var out []store.Audited
	for _, c := range changes {
		a := store.Audited{Kind: store.AuditFallback, Name: c.Name, By: store.Actor{Name: engineActor, Reason: c.Why}}
		switch c.Kind {
		case FallbackOut:
			a.After = model.EncodeJSON(c)
		case FallbackBack:
			a.Before, a.After, a.By.Reason = model.EncodeJSON(c), store.AuditRemoved(), "its calls succeed again"
		default:
			continue
		}
		out = append(out, a)
	}
	return out
}

// announce tells people about changes.
func (e *Engine) announce(changes []FallbackChange) {
	for _, c := range changes {
		e.notifyFallback(c)
		log := e.log.With("path", c.Name)
		if c.Service {
			log = e.log.With("service", c.Name, "handlers", c.Paths)
		}
		switch c.Kind {
		case FallbackOut:
			log.Warn("fallback on", "ratio", c.Ratio, "until", c.Until, "trips", c.Trips, "reason", c.Why)
		case FallbackExtended:
			log.Info("fallback goes on", "ratio", c.Ratio, "until", c.Until, "reason", c.Why)
		case FallbackProbing:
			log.Info("fallback is over when probes succeed", "ratio", c.Ratio, "since", c.Since)
		case FallbackRamping:
			log.Info("fallback ends, more and more calls are made", "ratio", c.Ratio, "until", c.Until)
		case FallbackBack:
			log.Info("fallback off", "ratio", c.Ratio, "since", c.Since, "trips", c.Trips)
		case FallbackCapped:
			log.Warn("fallback is needed, but the handler stays", "reason", c.Why)
		case FallbackFrozen:
			e.log.Warn("fallbacks are frozen", "reason", c.Why)
		case FallbackThawed:
			e.log.Info("fallbacks are not frozen any more")
		}
	}
}
