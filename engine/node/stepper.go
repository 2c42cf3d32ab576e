package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"procaas/engine/clock"
	"procaas/engine/core"
	"procaas/engine/store"
	"procaas/engine/writes"
)

// A Stepper is a node in virtual time. It does one thing at a time, in the order of time, and
// starts no goroutine. The caller sets its exported fields.
type Stepper struct {
	Clock    *clock.Virtual
	MaxCalls int // bounds the calls of all runs together

	// Process starts a new process, which knows only what the store knows.
	Process func() (*Driver, error)

	// Dying kills the node, like kill -9, at the next point where that has an effect. Another node
	// takes over. The outcomes of calls in flight are lost.
	Dying bool

	n     *node
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
	s.n.makeCall = s.call
	return nil
}

// restart starts the next process after a crash.
func (s *Stepper) restart(ctx context.Context) error {
	s.Dying = false
	for _, j := range slices.Clone(s.jobs) { // close removes them from the list
		s.close(j)
	}
	s.jobs, s.ends = nil, nil
	s.n.end(store.ErrFenced)
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
		if s.Dying {
			if err := s.restart(ctx); err != nil {
				return next, err
			}
		}
		due, busy, err := s.look(ctx)
		if err != nil {
			return next, err
		}
		if busy || s.Dying {
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
		return 0, false, fmt.Errorf("beat: %w", err)
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
		s.begin(j)
		if s.Dying {
			return 0, true, nil
		}
	}
	for _, j := range slices.Clone(s.jobs) {
		if s.stirred(j) {
			busy = true
			s.step(j)
		}
		if s.Dying {
			break
		}
	}
	due = b.Next
	if soon > 0 && (due == 0 || soon < due) {
		due = soon
	}
	return due, busy || len(claimed) > 0, nil
}

// begin starts to drive a run.
func (s *Stepper) begin(j *job) {
	s.jobs = append(s.jobs, j)
	s.attempt(j, func() bool { return (opening{j}).begin() && s.advance(j) })
}

// stirred reports whether a run must look for work although none of its calls has ended. It ends a
// run that an operator has cancelled.
func (s *Stepper) stirred(j *job) bool {
	if j.cancelled.Load() {
		j.underway = 0 // the calls in flight are interrupted
		j.stop()
		s.close(j)
		return false
	}
	_, stirred := j.drive.collect()
	return stirred || j.seen != nil && !j.moves() && j.seen != s.n.d.Settings.Controls()
}

// step advances a run as far as possible without time passing.
func (s *Stepper) step(j *job) { s.attempt(j, func() bool { return s.advance(j) }) }

// attempt does something with a run, and forgets the run if this node is done with it.
func (s *Stepper) attempt(j *job, do func() (more bool)) {
	more := false
	defer func() {
		if !more {
			s.close(j)
		}
	}()
	defer j.survive()
	more = do()
}

func (s *Stepper) advance(j *job) (more bool) {
	for again := true; again; {
		tasks := j.ready()
		if !j.goOn(tasks) || s.Dying {
			return false
		}
		again, j.again = j.again, false
	}
	if j.underway == 0 && j.run.Next().IsZero() {
		j.fail("", errors.New("internal error: the run waits for nothing"))
		return false
	}
	return true
}

// call makes a call, and stores when it ends.
func (s *Stepper) call(j *job, t *core.Attempt) {
	if s.Dying {
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
		if delay, ok := j.delay(j.run.Next()); ok {
			sooner(s.Clock.Now().Add(max(delay, 0)))
		}
	}
	return next
}

// deliver passes to runs what is due: the ends of calls, one at a time, and the times that they
// have waited for.
func (s *Stepper) deliver() {
	for len(s.ends) > 0 && !s.ends[0].at.After(s.Clock.Now()) && !s.Dying {
		e := s.ends[0]
		s.ends = s.ends[1:]
		e.j.finish([]*ended{e.ended})
		s.step(e.j)
	}
	for _, j := range slices.Clone(s.jobs) {
		if delay, ok := j.delay(j.run.Next()); ok && delay <= 0 && !s.Dying {
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
