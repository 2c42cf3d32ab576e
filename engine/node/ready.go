package node

import (
	"context"
	"time"

	"procaas/engine/clock"
	"procaas/engine/core"
	"procaas/engine/fallback"
	"procaas/engine/guard"
	"procaas/engine/model"
	"procaas/engine/planner"
)

// This file gives the core the live values, and asks it what may start.

// listenEvery is how often a run that waits for an event looks for it while its calls are in
// flight. A parked run is woken.
const listenEvery = time.Second

// offeredMost is how many pending events are read at once.
const offeredMost = 100

// ready asks the core what may start, with the events that it waits for. An event that has come in
// time counts before a timeout.
func (j *job) ready() []core.Attempt {
	if reason := j.stopping.Load(); reason != nil {
		j.run.Stop(*reason, j.n.d.Clock.Now())
	}
	j.listen()
	tasks := j.step()
	for j.listen() {
		tasks = append(tasks, j.step()...)
	}
	return tasks
}

// step asks the core once.
func (j *job) step() []core.Attempt {
	defer j.computes()()
	return j.run.Ready(j.live())
}

// listen offers the core the pending events that it waits for, and reports whether it has taken
// any. It waits while the store cannot be read.
func (j *job) listen() (taken bool) {
	for backoff := 10 * time.Millisecond; ; {
		a, ok := j.run.Awaits()
		if !ok {
			return taken
		}
		ctx, cancel := context.WithTimeout(j.n.ctx, clock.StoreTimeout)
		pending, err := j.n.d.Store.Inbox.Pending(ctx, j.claimed.Flow, j.claimed.Key, a.Types, a.Heard, offeredMost)
		cancel()
		if err != nil {
			j.at("").Warn("events that the run waits for cannot be read, trying again", "error", err)
			if !clock.Pause(j.n.calls, backoff) || j.n.isDraining() {
				return taken
			}
			backoff = min(2*backoff, clock.MaxBackoff)
			continue
		}
		taken = j.run.Offer(pending, j.live()) || taken
		if len(pending) < offeredMost {
			return taken
		}
	}
}

// live returns the live values for the core.
func (j *job) live() core.Live { return j.liveAt(j.n.d.Clock.Now()) }

// now returns the run's own time: the store's, or a later one that the run has seen already.
// Everything that the core waits for is due by this time.
func (j *job) now() time.Time { return j.since(j.n.d.Clock.Now()) }

// since returns now, or the latest time that the run has seen. So times that people read of a run are
// in order.
func (j *job) since(now time.Time) time.Time { return since(now, j.last) }

// since returns now, or last if that is later and the clock was not set.
func since(now, last time.Time) time.Time {
	if now.Before(last) && last.Sub(now) < clockSet {
		return last
	}
	return now
}

// clockSet is a jump larger than the uncertainty of a clock. A larger jump means that the clock was
// set.
const clockSet = time.Minute

// liveAt is live at a time, or at a later one that the run has seen already.
func (j *job) liveAt(now time.Time) core.Live {
	j.last, j.seen = j.since(now), j.n.d.Settings.Controls()
	l := j.rules
	l.Now, l.Configs = j.last, j.n.d.Settings.ValuesFor(j.def)
	return l
}

// liveRules returns live values that ask the controls which the run has seen last.
func (j *job) liveRules() core.Live {
	return core.Live{
		Memory: j.memoryRule(),
		Off:    func(s *planner.Step) (string, bool) { return j.off(s, j.seen, j.last) },
		Share:  func(s *planner.Step) (float64, bool) { return j.seen.Share(s) },
		Deadline: func(s *planner.Step) core.Bound {
			most, of := j.seen.Deadline(s, j.last)
			return core.Bound{Most: most, Of: of}
		},
		Guard: func(a core.Ask) core.Verdict {
			j.pass.Multiplies = j.run.Multiplies()
			v := j.verdict(a, j.seen, j.last)
			if held := !v.Hold.IsZero(); held || len(j.held) > 0 {
				j.hold(a.Ref, held)
			}
			return v
		},
	}
}

// hold notes that the run waits for a call, or no longer does.
func (j *job) hold(ref string, held bool) {
	path := model.PathOf(ref)
	switch {
	case held && !j.held[ref]:
		if j.held == nil {
			j.held = map[string]bool{}
		}
		j.held[ref] = true
		j.n.d.Stats.Path(path).Waiting.Add(1)
	case !held && j.held[ref]:
		delete(j.held, ref)
		j.n.d.Stats.Path(path).Waiting.Add(-1)
	}
}

// letGo ends all waits of the run.
func (j *job) letGo() {
	for ref := range j.held {
		j.hold(ref, false)
	}
}

// off reports whether a handler of the run is off now, and why.
func (j *job) off(s *planner.Step, c *guard.Controls, now time.Time) (reason string, off bool) {
	reason, off = j.n.d.Off(s, c, now)
	if off {
		j.pass.LeaveAll(s.Path, now)
	}
	return reason, off
}

// verdict returns the guard's verdict about a handler, and checks whether its outage lets this call
// through. While the handler is recovering, the run does not wait for it, except for the store's
// answer about a token.
func (j *job) verdict(a core.Ask, c *guard.Controls, now time.Time) core.Verdict {
	d, s := j.n.d, a.Step
	o := d.Degrader.Outages().Of(s)
	if o == nil || c.Overrides(s, now) {
		return d.Guard.Verdict(a, &j.pass, c, now)
	}
	admitted := o.Admits(now, j.claimed.ID, s.Path)
	if admitted == fallback.AdmitCall {
		return d.Guard.Verdict(a, &j.pass, c, now)
	}
	if admitted == fallback.AdmitProbe {
		v := d.Guard.Verdict(a, &j.pass, c, now)
		if j.pass.Asks(a.Ref) {
			return v
		}
		if v == (core.Verdict{}) && j.takeProbe(o.Name) {
			if s.Undo != nil {
				return v // the run must know the outcome, to undo it
			}
			return core.Verdict{Skip: true, Beside: true, Reason: o.Reason(now) + "; its call goes on beside the run as a probe"}
		}
	}
	j.pass.Leave(a.Ref, now)
	return core.Verdict{Skip: true, Reason: o.Reason(now)}
}

func (j *job) takeProbe(outage string) bool {
	taken, err := j.n.d.Degrader.TakeProbe(j.n.ctx, outage)
	if err != nil {
		j.n.d.Metrics.Failed("probe")
	}
	return taken
}
