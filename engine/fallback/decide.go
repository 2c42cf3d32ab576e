package fallback

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"procaas/engine/canary"
	"procaas/engine/clock"
	"procaas/engine/model"
	"procaas/engine/store"
)

// This file lets nodes decide about fallbacks. Once a second, each node reports the outcomes of its
// calls, and one node decides for all. That node keeps the task as long as it decides in time. No
// election is needed, because the store refuses a decision if another one came first.

const (
	reportAt       = 50 * time.Millisecond // when in each second
	decideAt       = 250 * time.Millisecond
	lookAt         = 400 * time.Millisecond // when to read the decisions if calls of this node have failed
	decideLate     = 3 * time.Second        // then another node decides
	probeGap       = time.Second            // between two probes of an outage, on all nodes together
	probeRetry     = 200 * time.Millisecond
	degradeTimeout = 2 * time.Second // of one call of the store; the next second has its own
)

// A Decider is a node that reports and decides.
type Decider struct {
	Node int64
	Now  func() time.Time // by the store's clock
	// returns the rules to decide by; nil if nothing can be off, nothing is off, and no version is
	// on trial
	Rules    func() *Rules
	Current  func(context.Context) (string, error) // reads the current version from the store, since a node may lag behind
	Tell     func([]canary.Event)
	Announce func([]Change)    // tells people
	Failed   func(what string) // counts a failed call of the store
	Log      *slog.Logger
}

// A decider is what a node remembers between its decisions.
type decider struct {
	Decider
	*Live
	counts Counts // nil: count again
	taken  int64  // counts includes the reports up to this one
	mine   bool   // this node has decided last

	unsent  []model.Tally   // of a report with an unknown outcome
	reports int64           // number of the last report
	failing map[string]bool // the last call of this kind failed at the store; logged once
}

// Decide reports and decides until ctx ends.
func (d *Live) Decide(ctx context.Context, n Decider) {
	at := decider{Decider: n, Live: d, failing: map[string]bool{}}
	// Nodes report one after another, not all at the same moment.
	mine := reportAt + time.Duration(n.Node%10)*10*time.Millisecond
	for clock.Pause(ctx, at.untilIn(mine)) {
		f := n.Rules()
		if f == nil {
			d.tallies.take(n.Now().Unix() + 1)
			at = decider{Decider: n, Live: d, reports: at.reports, failing: at.failing}
			continue
		}
		bad, err := at.report(ctx)
		at.check(ctx, "report", err)
		switch {
		case at.isMyTurn() && clock.Pause(ctx, at.untilIn(decideAt)):
			at.check(ctx, "decide", at.conclude(ctx, f))
		case bad && clock.Pause(ctx, at.untilIn(lookAt)):
			at.check(ctx, "outages", at.look(ctx))
		}
	}
}

// look reads the latest decision. The next beat would bring it, too, but calls fail until then.
func (d *decider) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, degradeTimeout)
	defer cancel()
	return d.Refresh(ctx)
}

// untilIn returns the time until a moment of the next second.
func (d *decider) untilIn(moment time.Duration) time.Duration {
	now := d.Now()
	next := now.Truncate(time.Second).Add(moment)
	if !next.After(now) {
		next = next.Add(time.Second)
	}
	return next.Sub(now)
}

// isMyTurn reports whether this node decides, or the deciding node has been silent too long.
func (d *decider) isMyTurn() bool {
	last := time.Unix(0, d.decided.Load())
	return d.mine || d.Now().Sub(last) > decideLate
}

// check logs an error, once until calls of all kinds succeed again. A report of nothing asks the store for nothing.
func (d *decider) check(ctx context.Context, what string, err error) {
	switch {
	case err == nil:
		delete(d.failing, what)
	case ctx.Err() == nil:
		d.Failed(what)
		if len(d.failing) == 0 {
			d.Log.Warn("handlers that fail do not go out of the flow, nor come back, until the store answers", "error", err)
		}
		d.failing[what] = true
	}
}

// report reports the outcomes of calls, and returns whether any have failed. If the answer to a
// report was lost, it sends the same report again, with its number.
func (d *decider) report(ctx context.Context) (bad bool, err error) {
	if len(d.unsent) == 0 {
		d.unsent = d.tallies.take(d.Now().Unix())
		if len(d.unsent) == 0 {
			return false, nil
		}
		d.reports++
	}
	ctx, cancel := context.WithTimeout(ctx, degradeTimeout)
	defer cancel()
	bad = slices.ContainsFunc(d.unsent, func(t model.Tally) bool { return t.Bad > 0 })
	if err = d.store.Report(ctx, d.Node, d.reports, d.unsent); err == nil {
		d.unsent = nil
	}
	return bad, err
}

// conclude makes the decision of this second, unless another node does.
func (d *decider) conclude(ctx context.Context, f *Rules) error {
	keep := f.longestWindow()
	ctx, cancel := context.WithTimeout(ctx, degradeTimeout)
	defer cancel()
	look := time.Duration(0)
	if d.counts == nil {
		look = keep
	}
	q, err := d.store.Deliberate(ctx, look)
	if err == nil && d.counts != nil && q.Taken != d.taken {
		d.counts = nil // another node has decided meanwhile
		q, err = d.store.Deliberate(ctx, keep)
	}
	if err != nil {
		return err
	}
	if q.Decider != d.Node && !q.Decided.IsZero() && q.Now.Sub(q.Decided) <= decideLate {
		d.decided.Store(q.Decided.UnixNano())
		d.mine, d.counts = false, nil
		return nil
	}
	var s State
	if len(q.State) > 0 {
		if err := json.Unmarshal(q.State, &s); err != nil {
			return fmt.Errorf("read outages: %w", err)
		}
	}
	if d.counts == nil {
		d.counts = f.Recount(&s, q.Now, q.Past)
	}
	split := s.Canary.Split()
	current := ""
	if s.Canary.Lasts() {
		if current, err = d.Current(ctx); err != nil {
			d.counts = nil // they do not have what is fresh
			return fmt.Errorf("read the current version: %w", err)
		}
	}
	changes := f.Decide(&s, d.counts, model.Stamp(q.Now), q.Fresh)
	events := s.Canary.Decide(model.Stamp(q.Now), q.Fresh, current, s.turnedOff())
	c := store.Conclusion{
		Turn: q.Turn, Node: d.Node, Taken: q.Reported, Forget: keep + time.Minute, State: stateAfter(q.State, &s),
		Serve:  newSplit(split, &s),
		Audits: append(auditsOf(changes), AuditsOfCanary(events, store.Actor{Name: engineActor})...),
	}
	switch err := d.store.Conclude(ctx, c); {
	case errors.Is(err, store.ErrConflict):
		d.mine, d.counts = false, nil
		return nil
	case err != nil:
		d.counts = nil // the outcome is unknown
		return err
	}
	d.mine, d.taken = true, q.Reported
	d.decided.Store(q.Now.UnixNano())
	d.Announce(changes)
	d.Tell(events)
	if c.State == nil {
		return nil
	}
	return d.Refresh(ctx)
}

// stateAfter returns the state to store, or nil if nothing has changed.
func stateAfter(before []byte, s *State) []byte {
	after := model.EncodeJSON(s)
	if bytes.Equal(before, after) || len(before) == 0 && string(after) == "{}" {
		return nil
	}
	return after
}

// newSplit returns the versions of new runs, or the zero Split if they have not changed.
func newSplit(before model.Split, s *State) model.Split {
	if after := s.Canary.Split(); after != before {
		return after
	}
	return model.Split{}
}

// engineActor is the actor of automatic fallbacks.
const engineActor = "engine"

// auditsOf makes the audit records of changes that people must be able to look up.
func auditsOf(changes []Change) []store.Audited {
	var out []store.Audited
	for _, c := range changes {
		a := store.Audited{Kind: store.AuditFallback, Name: c.Name, By: store.Actor{Name: engineActor, Reason: c.Why}}
		switch c.Kind {
		case Out:
			a.After = model.EncodeJSON(c)
		case Back:
			a.Before, a.After, a.By.Reason = model.EncodeJSON(c), store.AuditRemoved(), "its calls succeed again"
		default:
			continue
		}
		out = append(out, a)
	}
	return out
}

// AuditsOfCanary makes the audit records of a trial.
func AuditsOfCanary(events []canary.Event, by store.Actor) (out []store.Audited) {
	for _, e := range events {
		out = append(out, store.Audited{
			Kind: store.AuditCanary, Name: e.New, By: store.Actor{Name: by.Name, Reason: cmp.Or(by.Reason, e.Why)}, After: model.EncodeJSON(e),
		})
	}
	return out
}

// LogTo logs the change.
func (c *Change) LogTo(all *slog.Logger) {
	log := all.With("path", c.Name)
	if c.Service {
		log = all.With("service", c.Name, "handlers", c.Paths)
	}
	switch c.Kind {
	case Out:
		log.Warn("fallback on", "ratio", c.Ratio, "until", c.Until, "trips", c.Trips, "reason", c.Why)
	case Extended:
		log.Info("fallback goes on", "ratio", c.Ratio, "until", c.Until, "reason", c.Why)
	case Probing:
		log.Info("fallback is over when probes succeed", "ratio", c.Ratio, "since", c.Since)
	case Ramping:
		log.Info("fallback ends, more and more calls are made", "ratio", c.Ratio, "until", c.Until)
	case Back:
		log.Info("fallback off", "ratio", c.Ratio, "since", c.Since, "trips", c.Trips)
	case Capped:
		log.Warn("fallback is needed, but the handler stays", "reason", c.Why)
	case Frozen:
		all.Warn("fallbacks are frozen", "reason", c.Why)
	case Thawed:
		all.Info("fallbacks are not frozen any more")
	}
}

// End ends the fallbacks of handlers at once, on all nodes. The error is [store.ErrConflict] if
// another decision came first.
func (d *Live) End(ctx context.Context, in func(path string) bool, by store.Actor) (changes []Change, err error) {
	err = d.Steer(ctx, func(s *State, now time.Time) (audits []store.Audited, err error) {
		changes = s.end(in, now)
		for i := range changes {
			changes[i].Why = "ended by " + by.Name
			audits = append(audits, store.Audited{
				Kind: store.AuditFallback, Name: changes[i].Name, By: by, Before: model.EncodeJSON(changes[i]), After: store.AuditRemoved(),
			})
		}
		return audits, nil
	})
	return changes, err
}

// Steer changes the state of all nodes for an operator. If change returns no audit records, nothing
// changes. The error is [store.ErrConflict] if another decision came first.
func (d *Live) Steer(ctx context.Context, change func(s *State, now time.Time) ([]store.Audited, error)) error {
	q, err := d.store.Deliberate(ctx, 0)
	if err != nil {
		return err
	}
	var s State
	if len(q.State) > 0 {
		if err := json.Unmarshal(q.State, &s); err != nil {
			return fmt.Errorf("read outages: %w", err)
		}
	}
	split := s.Canary.Split()
	audits, err := change(&s, model.Stamp(q.Now))
	if err != nil || len(audits) == 0 {
		return err
	}
	return d.store.Conclude(ctx, store.Conclusion{
		Turn: q.Turn, Taken: q.Taken, State: stateAfter(q.State, &s), Serve: newSplit(split, &s), Audits: audits,
	})
}
