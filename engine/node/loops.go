package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"procaas/engine/clock"
	"procaas/engine/core"
	"procaas/engine/fallback"
	"procaas/engine/guard"
	"procaas/engine/steering"
	"procaas/engine/store"
)

// This file holds all goroutines of a node, and with them its time: who is
// started by whom, who waits for whom, and what ends them.

const (
	provenFor    = 5 * time.Second       // the settings that a beat has found current; then no call starts
	shortestPoll = 20 * time.Millisecond // of the inbox while there is work
	longestPoll  = time.Second           // while there is none
	claimGap     = 5 * time.Millisecond  // after a claim that found nothing
	endGrace     = 2 * time.Second       // for what must return because its context has ended
	leaveLeast   = 5 * time.Second       // for giving runs back, however short the lease is
)

// beats renews the lease until the membership ends.
func (n *node) beats() {
	excess := 0
	for next := time.Duration(0); n.rest(next); {
		began := time.Now()
		ctx, cancel := context.WithTimeout(n.ctx, n.d.Lease/2)
		b, err := n.d.Store.Ledger.Beat(ctx, n.number, n.d.Lease, n.d.Library.Present().Bundle.Hash)
		cancel()
		next = min(store.BeatEvery, n.d.Lease/store.BeatsOfLease)
		switch err = n.d.known.Check(n.number, b, err); {
		case errors.Is(err, store.ErrLost):
			n.d.lose(err)
			n.end(err)
			return
		case errors.Is(err, store.ErrFenced):
			n.fence()
			return
		case err != nil:
			n.d.Metrics.Failed("beat")
			n.lease.watch(b.Watched)
			if n.lease.failed(err) && n.ctx.Err() == nil {
				n.log.Warn("lease cannot be renewed", "error", err)
			}
			next = min(next, 100*time.Millisecond)
			continue
		}
		n.d.Clock.Set(b.Now, began, time.Now())
		soon, err := n.heed(b)
		if err != nil {
			if n.lease.failed(err) && n.ctx.Err() == nil {
				n.log.Warn("settings cannot be read, no call starts until they can", "error", err)
			}
			next = min(next, 100*time.Millisecond)
			continue
		}
		// What lets calls start is that the node is alive for the others AND knows
		// the settings of the time of this beat.
		n.renew(began, b.Watched)
		if soon > 0 {
			next = min(next, soon)
		}
		if err := n.d.Degrader.Heed(n.ctx, b); err != nil && n.ctx.Err() == nil {
			n.d.Metrics.Failed("outages")
		}
		if b.Next > 0 {
			next = min(next, max(b.Next, steering.SoonestBeat))
		}
		// A run that ended while the beat was under way is still counted in it,
		// so only an excess that stays is one.
		switch {
		case b.Owned < 0: // nobody has counted
		case b.Owned <= n.holds():
			excess = 0
		default:
			if excess++; excess > 1 {
				n.lost.Store(true)
				n.nudge()
			}
		}
	}
}

// rest waits for the next beat; false when the membership ended first. It comes
// sooner when there are runs to call up.
func (n *node) rest(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	called := n.called
	if d <= guard.Beat {
		called = nil
	}
	for {
		select {
		case <-n.ctx.Done():
			return false
		case <-t.C:
			return true
		case <-called:
			t.Reset(guard.Beat)
			called = nil
		}
	}
}

// heed does what a beat tells; soon is when there is more to do, 0 when there is
// not.
func (n *node) heed(b store.Beat) (soon time.Duration, err error) {
	for _, run := range b.Cancelled {
		if j := n.job(run); j != nil {
			j.cancel()
		}
	}
	for _, m := range b.Moves {
		if j := n.job(m.Run); j != nil {
			j.move(m.Bundle)
		}
	}
	n.d.Guard.Share(b.Nodes, n.d.Clock.Now())
	n.d.Follower.Revised(b.Revision)
	if b.Ready > 0 {
		n.nudge()
	}
	if !n.d.Settings.IsCurrent(b.Revision) {
		if err := n.d.Settings.Refresh(n.ctx); err != nil {
			return 0, err
		}
	}
	return n.releaser.Release(n.ctx, b.Causes), nil
}

// claims takes ready runs as long as there is room for them.
func (n *node) claims() {
	var hints <-chan struct{}
	if w := n.d.Store.Waker; w != nil {
		hints = w.Wake()
	}
	idle := shortestPoll
	poll := time.NewTimer(idle)
	defer poll.Stop()
	for {
		select {
		case <-n.ctx.Done():
			return
		case <-n.draining:
			return
		case <-n.wake:
		case <-hints:
		case <-poll.C:
		}
		if n.lost.Load() {
			n.giveBackUnknown()
		}
		switch n.claim() {
		case claimedSome:
			idle = shortestPoll
		case claimedNone:
			idle = min(2*idle, longestPoll)
			clock.Pause(n.ctx, claimGap)
		case claimedNoRoom:
			idle = longestPoll // the end of a run wakes it
		}
		poll.Reset(idle)
	}
}

// What a claim came to.
type claimResult int

const (
	claimedNone claimResult = iota
	claimedSome
	claimedNoRoom
)

// claim takes as many ready runs as there is room for.
func (n *node) claim() claimResult {
	asked := n.ask(n.wanted())
	if asked == 0 {
		n.backlog.Store(true)
		return claimedNoRoom
	}
	ctx, cancel := context.WithTimeout(n.ctx, clock.StoreTimeout)
	defer cancel()
	runs, err := n.d.Store.Ledger.Claim(ctx, n.number, asked, n.d.Library.Serving().String())
	claimed := make([]*store.Claimed, len(runs))
	for i := range runs {
		claimed[i] = &runs[i]
	}
	switch {
	case errors.Is(err, store.ErrFenced):
		n.fence()
	case err != nil && n.ctx.Err() == nil:
		n.lost.Store(true)
		n.d.Metrics.Failed("claim")
		n.log.Warn("runs cannot be claimed", "error", err)
	case err == nil:
		n.backlog.Store(len(runs) == asked)
	}
	n.take(asked, claimed)
	if len(runs) == asked {
		n.nudge()
	}
	if len(runs) == 0 {
		return claimedNone
	}
	return claimedSome
}

// startJob lets a goroutine drive a run. The caller holds the node's lock, and
// has seen that it is not shut, or that it waits for this.
func (n *node) startJob(j *job) {
	n.work.Add(1) // until the run is over, also while no goroutine drives it
	n.do(j.work)
}

// startCall begins one call of a handler. The goroutine that drives the run makes the first one itself, when the run waits. The run
// does not hear of the end of a call beside it.
func (n *node) startCall(j *job, t *core.Attempt) {
	switch {
	case t.Beside:
		held := j.pass.Take(t.Ref())
		n.do(func() { held.End(j.call(n.calls, t).end, n.d.Clock.Now()) })
	case j.own == nil:
		j.own = t
	default:
		j.handOff(t)
	}
}

// stirAll stirs all runs each time when what they all go by has changed: the controls, or whether the node drains or is still a
// member.
func (n *node) stirAll() {
	draining := n.draining
	for {
		// Both are read before the runs look, so that they miss nothing that comes later.
		superseded := n.d.Settings.Controls().Superseded
		ended := n.ctx.Err() != nil
		n.mu.Lock()
		jobs := slices.Collect(maps.Values(n.jobs))
		n.mu.Unlock()
		for _, j := range jobs {
			j.stir()
		}
		if ended {
			return
		}
		select {
		case <-superseded:
		case <-draining:
			draining = nil
		case <-n.ctx.Done():
		}
	}
}

// do lets a goroutine do a part of the node's work.
func (n *node) do(work func()) {
	n.work.Add(1)
	n.pool.do(n.ctx, func() {
		defer n.work.Done()
		work()
	})
}

// drain ends the work of a node: it lets calls in flight end in time, and gives
// back the runs that are not finished. Those of a fenced node are dropped.
func (n *node) drain() error {
	close(n.draining)
	n.close()
	n.holds() // the lock: who takes runs after this sees that the membership has ended
	done := make(chan struct{})
	go func() { n.work.Wait(); close(done) }()

	if !n.waitFor(done, n.d.Drain) && n.ctx.Err() == nil {
		n.log.Warn("calls are still under way at the end of the drain time, they are broken off")
	}
	n.abort()
	n.waitFor(done, endGrace)
	err := n.leave()
	n.end(errLeft)
	last := time.NewTimer(endGrace)
	defer last.Stop()
	select {
	case <-done:
		return err
	case <-last.C:
		return errors.Join(err, errors.New("handler calls go on although their context has ended"))
	}
}

// waitFor waits for the end of all work; false when the time, or the membership,
// is over before.
func (n *node) waitFor(done <-chan struct{}, most time.Duration) bool {
	t := time.NewTimer(most)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-n.ctx.Done():
	case <-t.C:
	}
	return false
}

// leave gives back what is not finished, unless the node has lost it already. While
// the store is away it tries again, for as long as the others would wait for the
// end of the lease, and a little more when that is short. A beat that finds the node
// gone, because it has just left, does not disturb that.
func (n *node) leave() error {
	if n.ctx.Err() != nil {
		return context.Cause(n.ctx)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(n.ctx), max(n.d.Lease, leaveLeast))
	defer cancel()
	for backoff := 10 * time.Millisecond; ; backoff = min(2*backoff, clock.MaxBackoff) {
		err := n.d.Store.Ledger.Leave(ctx, n.number, nil)
		if err == nil || errors.Is(err, store.ErrFenced) {
			return nil
		}
		n.d.Metrics.Failed("leave")
		if !clock.Pause(ctx, backoff) {
			return fmt.Errorf("leave, so runs wait for the end of the lease: %w", err)
		}
	}
}

// degrade reports what calls come to, and decides about fallbacks, until the membership ends.
func (n *node) degrade() {
	n.d.Degrader.Decide(n.ctx, fallback.Decider{
		Node: n.number, Now: n.d.Clock.Now, Rules: n.d.Fallbacks, Announce: n.d.Announce,
		Current: func() string { return n.d.Library.Present().Bundle.Hash }, Tell: n.d.Tell, Failed: n.d.Metrics.Failed, Log: n.log,
	})
}
