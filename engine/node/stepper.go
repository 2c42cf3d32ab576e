package node

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"procaas/engine/clock"
	"procaas/engine/core"
	"procaas/engine/writes"
)

// A Stepper is a node in virtual time. It does one thing at a time, in the order of time, and
// starts no goroutine. The caller sets its exported fields.
//
// A run takes the same rounds as on any other node: see [job.round]. The Stepper only decides when:
// it keeps the turns of all its runs, so that their news starts no goroutine, and it holds the ends
// of calls back until their time has come.
type Stepper struct {
	Clock    *clock.Virtual
	MaxCalls int // bounds the calls of all runs together

	// Process starts a new process, which knows only what the store knows.
	Process func() (*Driver, error)

	n     *node
	dying bool   // the node is dead, and another one takes over next
	jobs  []*job // in the order of their claims
	ends  []steppedEnd
	calls int
}

// A steppedEnd is the outcome of a call that ends at a given time.
type steppedEnd struct {
	at time.Time
	j  *job
	*ended
}

// Join starts a process that is the only node of the store.
func (s *Stepper) Join(ctx context.Context) error {
	d, err := s.Process()
	if err != nil {
		return err
	}
	if s.n, err = d.tryJoin(ctx); err != nil {
		return err
	}
	s.n.lease.renew(time.Now().Add(d.Lease), time.Time{}, nil)
	s.n.caller = s
	s.n.tokens = promptTokens{s.n}
	return nil
}

// Kill kills the node, like kill -9, and another one takes over. Nothing that the node does from now
// on has an effect. The outcomes of calls in flight are lost.
func (s *Stepper) Kill() {
	s.dying = true
	s.n.fence()
}

// IsDying reports whether the node was killed, and no other one has taken over yet.
func (s *Stepper) IsDying() bool { return s.dying }

// restart starts the next process after a crash.
func (s *Stepper) restart(ctx context.Context) error {
	s.dying = false
	for _, j := range slices.Clone(s.jobs) { // close removes them from the list
		s.close(j)
	}
	s.jobs, s.ends = nil, nil
	// The next process takes over the runs of the dead node.
	if err := s.n.d.Store.Ledger.Leave(ctx, s.n.number, nil); err != nil {
		return err
	}
	return s.Join(ctx)
}

// Work works until a time. It returns when there is more to do, zero for never.
func (s *Stepper) Work(ctx context.Context, until time.Time) (next time.Time, err error) {
	for {
		if err := ctx.Err(); err != nil {
			return next, context.Cause(ctx)
		}
		if s.calls > s.MaxCalls {
			return next, fmt.Errorf("no end after %d calls", s.MaxCalls)
		}
		if s.dying {
			if err := s.restart(ctx); err != nil {
				return next, err
			}
		}
		due, busy, err := s.look(ctx)
		if err != nil {
			return next, err
		}
		if busy || s.dying {
			continue
		}
		next = s.next(due)
		if next.IsZero() || next.After(until) {
			return next, nil
		}
		s.Clock.Set(next)
		s.deliver()
	}
}

// look asks the store for work, and does it. It returns when the store will have more. busy reports
// whether there may be more at once.
func (s *Stepper) look(ctx context.Context) (due time.Duration, busy bool, err error) {
	b, err := s.n.d.Store.Ledger.Beat(ctx, s.n.number, s.n.d.Lease, s.n.d.Library.Present().Bundle.Hash)
	if err != nil {
		return 0, false, fmt.Errorf("renew the lease: %w", err)
	}
	soon, err := s.n.heed(b)
	if err != nil {
		return 0, false, err
	}
	claimed, err := s.n.d.Store.Ledger.Claim(ctx, s.n.number, writes.MaxBatch, s.n.d.Library.Serving().String())
	if err != nil {
		return 0, false, fmt.Errorf("claim: %w", err)
	}
	for i := range claimed {
		j := newJob(s.n, &claimed[i])
		s.n.jobs[j.claimed.ID] = j
		s.jobs = append(s.jobs, j)
		s.step(j)
		if s.dying {
			return 0, true, nil
		}
	}
	for _, j := range slices.Clone(s.jobs) {
		if s.stirred(j) {
			busy = true
			s.step(j)
		}
		if s.dying {
			break
		}
	}
	due = b.Next
	if soon > 0 && (due == 0 || soon < due) {
		due = soon
	}
	return due, busy || len(claimed) > 0, nil
}

// stirred reports whether a run must look for work although none of its calls has ended.
func (s *Stepper) stirred(j *job) bool {
	if j.cancelled.Load() {
		j.underway = 0 // the calls in flight are interrupted, and have no outcome
		return true
	}
	_, stirred := j.turn.collect()
	return stirred || j.seen != nil && !j.moves() && j.seen != s.n.d.Settings.Controls()
}

// step advances a run as far as possible without time passing, and forgets the run if this node is
// done with it.
func (s *Stepper) step(j *job) {
	if !j.round() {
		s.close(j)
	}
}

// startCall makes a call, and stores when it ends.
func (s *Stepper) startCall(j *job, t *core.Attempt) {
	if s.dying {
		return
	}
	s.calls++
	p := &clock.Pace{Began: s.Clock.Now()}
	e := steppedEnd{j: j, ended: j.call(clock.Paced(j.calls, p), t)}
	if t.Beside {
		j.pass.End(e.ref, e.end, s.Clock.Now())
		return
	}
	e.at = p.Began.Add(p.Passed)
	at, _ := slices.BinarySearchFunc(s.ends, e, func(a, b steppedEnd) int {
		return cmp.Or(a.at.Compare(b.at), -1) // after those of the same time
	})
	s.ends = slices.Insert(s.ends, at, e)
}

// next returns when something happens next, zero for never.
func (s *Stepper) next(due time.Duration) time.Time {
	var next time.Time
	sooner := func(t time.Time) {
		if next.IsZero() || t.Before(next) {
			next = t
		}
	}
	if len(s.ends) > 0 {
		sooner(s.ends[0].at)
	}
	if due > 0 {
		sooner(s.Clock.Now().Add(due))
	}
	for _, j := range s.jobs {
		if delay, ok := j.rests(); ok {
			sooner(s.Clock.Now().Add(max(delay, 0)))
		}
	}
	return next
}

// deliver passes to runs what is due: the ends of calls, one at a time, and the times that they
// have waited for.
func (s *Stepper) deliver() {
	for len(s.ends) > 0 && !s.ends[0].at.After(s.Clock.Now()) && !s.dying {
		e := s.ends[0]
		s.ends = s.ends[1:]
		e.j.turn.end(e.ended)
		s.step(e.j)
	}
	for _, j := range slices.Clone(s.jobs) {
		if delay, ok := j.rests(); ok && delay <= 0 && !s.dying {
			s.step(j)
		}
	}
}

// close forgets a run that has ended, is parked, or is lost.
func (s *Stepper) close(j *job) {
	j.stopCalls()
	j.pass.Close(s.Clock.Now())
	delete(s.n.jobs, j.claimed.ID)
	s.jobs = slices.DeleteFunc(s.jobs, func(other *job) bool { return other == j })
	s.ends = slices.DeleteFunc(s.ends, func(e steppedEnd) bool { return e.j == j })
}
