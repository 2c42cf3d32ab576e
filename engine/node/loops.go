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
	"procaas/engine/model"
	"procaas/engine/steering"
	"procaas/engine/store"
)

// This file starts all goroutines of a node: what starts them, what waits for them, and what ends
// them.

const (
	// how long a beat proves that the settings are current; after that no call starts
	provenFor    = 5 * time.Second
	shortestPoll = 20 * time.Millisecond // of the inbox while there is work
	longestPoll  = time.Second           // of the inbox while there is none
	sessionsEnd  = 50 * time.Millisecond // after the end of a process, until the store knows that its sessions have ended
	claimGap     = 5 * time.Millisecond  // after a hint for which a claim found nothing
	endGrace     = 2 * time.Second       // for goroutines to return after their context has ended
	leaveLeast   = 5 * time.Second       // for releasing runs, however short the lease is
)

// beats renews the lease until the membership ends.
func (n *node) beats() {
	excess := 0
	var suspects <-chan struct{}
	for next := time.Duration(0); n.rest(next, suspects); {
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
		suspects = b.Suspects
		n.d.Clock.Set(b.Now, began, time.Now())
		soon, err := n.heed(b)
		if err != nil {
			if n.lease.failed(err) && n.ctx.Err() == nil {
				n.log.Warn("settings cannot be read, no call starts until they can", "error", err)
			}
			next = min(next, 100*time.Millisecond)
			continue
		}
		// A call may start only if other nodes consider this one alive AND it knows the settings as
		// of this beat.
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
		// The beat still counts a run that ended during it, so only a lasting excess matters.
		switch {
		case b.Owned < 0: // not counted
		case b.Owned <= n.holds():
			excess = 0
		default:
			excess++
			if excess > 1 {
				n.lost.Store(true)
				n.nudge()
			}
		}
	}
}

// rest waits for the next beat. It returns false if the membership ended first. It returns sooner
// if there are runs to wake, or if the process of another node has ended.
func (n *node) rest(d time.Duration, suspects <-chan struct{}) bool {
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
		case <-suspects:
			t.Reset(min(d, sessionsEnd))
			called, suspects = nil, nil
		}
	}
}

// heed applies the information of a beat. soon is when there is more to do, 0 for never.
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
	n.meet(b)
	n.d.Follower.Revised(b.Revision)
	n.stalled.due(b.Ready > 0 && b.Nodes == 1, time.Now())
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

// claims claims ready runs as long as there is room for them.
func (n *node) claims() {
	var hints <-chan struct{}
	if w := n.d.Store.Waker; w != nil {
		hints = w.Wake()
	}
	idle := shortestPoll
	poll := time.NewTimer(idle)
	defer poll.Stop()
	for {
		hinted := true
		select {
		case <-n.ctx.Done():
			return
		case <-n.draining:
			return
		case <-n.wake:
		case <-hints:
		case <-poll.C:
			hinted = false
		}
		if n.lost.Load() {
			n.giveBackUnknown()
		}
		switch n.claim() {
		case claimedSome:
			idle = shortestPoll
		case claimedNone:
			idle = min(2*idle, longestPoll)
			if hinted {
				clock.Pause(n.ctx, claimGap)
			}
		case claimedNoRoom:
			idle = longestPoll // the end of a run wakes the loop
		case claimFailed:
			clock.Pause(n.ctx, idle) // hints must not make it ask more often
			idle = min(2*idle, longestPoll)
		}
		poll.Reset(idle)
	}
}

// A claimResult is the result of one claim.
type claimResult int

const (
	claimedNone claimResult = iota
	claimedSome
	claimedNoRoom
	claimFailed
)

// claim claims as many ready runs as there is room for.
func (n *node) claim() claimResult {
	asked := n.ask(n.wanted(), n.d.Turns.Kept(time.Now()))
	if asked == 0 {
		n.backlog.Store(true)
		n.stalled.claimed(1, nil, time.Now()) // it has all that it can take
		return claimedNoRoom
	}
	ctx, cancel := context.WithTimeout(n.ctx, clock.StoreTimeout)
	defer cancel()
	n.stalled.begins(time.Now())
	runs, err := n.d.Store.Ledger.Claim(ctx, n.number, asked, n.d.Library.Serving().String())
	var claimed []*store.Claimed
	for i := range runs {
		if c := &runs[i]; c.Aside {
			n.tellAside(c)
		} else {
			claimed = append(claimed, c)
		}
	}
	n.stalled.claimed(len(runs), err, time.Now())
	n.d.Metrics.Stalled.Set(n.stalled.seconds(time.Now()))
	full := isFull(claimed, asked) // not after take: runs are their jobs' from then on
	result := claimedSome
	switch {
	case errors.Is(err, store.ErrFenced):
		n.fence()
	case err != nil && n.ctx.Err() == nil:
		result = claimFailed
		n.lost.Store(true)
		n.d.Metrics.Failed("claim")
		if unsaid, ok := n.stalled.log.Say(time.Now()); ok {
			n.log.Warn("runs cannot be claimed, trying again", "error", err, "unlogged", unsaid)
		}
	case err == nil:
		n.backlog.Store(full)
	}
	n.take(asked, claimed)
	if full {
		n.nudge()
	}
	if len(runs) == 0 && result == claimedSome {
		return claimedNone
	}
	return result
}

// tellAside reports a damaged run that the store has set aside itself.
func (n *node) tellAside(c *store.Claimed) {
	n.d.Metrics.Damaged.Inc()
	n.log.Error("run is set aside, since its row in the store is damaged", "run", c.ID, "key", c.Key, "error", c.Damage)
	if c.ID == "" {
		n.d.damage.Store(&c.Damage)
		return
	}
	j := newJob(n, c)
	defer j.stopCalls()
	j.notify(model.NoticeRunFailed, "", c.Damage.Error())
	if c.Ordered && c.Block {
		j.notify(model.NoticeKeyBlocked, "", c.Damage.Error())
	}
	told := j.notifications(model.Change{
		Pipeline: c.Pipeline, Status: model.Failed, Error: model.CleanText(c.Damage.Error()), ErrorClass: model.ClassDamaged,
	})
	if len(told) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(n.ctx, clock.StoreTimeout)
	defer cancel()
	if _, err := n.d.Store.Inbox.Accept(ctx, 0, told); err != nil {
		n.log.Error("nobody hears of a damaged run", "run", c.ID, "error", err)
	}
}

// isFull reports whether the store may have more runs than a claim has returned.
func isFull(runs []*store.Claimed, asked int) bool {
	bytes := 0
	for _, c := range runs {
		bytes += c.Bytes()
	}
	return len(runs) == asked || bytes >= store.ClaimBytes/2 // small events are not counted
}

// startJob starts a goroutine that drives a run. The caller holds the node's lock, and has checked
// that the node is not shut or waits for this run.
func (n *node) startJob(j *job) {
	n.work.Add(1) // until the run is over, also while no goroutine drives it
	n.do(j.work)
}

// startCall begins one call of a handler. The goroutine that drives the run makes the first call
// itself, because the run has to wait anyway. The outcome of a call beside the run does not reach
// it.
func (n *node) startCall(j *job, t *core.Attempt) {
	switch {
	case t.Beside:
		held := j.pass.Take(t.Ref())
		n.do(func() {
			e := j.call(n.calls, t)
			held.End(e.end, n.d.Clock.Now())
			e.mem.Close()
		})
	case j.own == nil:
		j.own = t
	default:
		j.handOff(t)
	}
}

// stirAll wakes all runs when something changes for all of them: the controls, or whether the node
// drains or is still a member.
func (n *node) stirAll() {
	draining := n.draining
	for {
		// Read before the runs look, so that they miss no later change.
		superseded := n.d.Settings.Controls().Superseded
		ended := n.ctx.Err() != nil
		n.mu.Lock()
		jobs := slices.Collect(maps.Values(n.jobs))
		n.mu.Unlock()
		for _, j := range jobs {
			j.news()
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

// do starts a goroutine for a part of the node's work.
func (n *node) do(work func()) {
	n.work.Add(1)
	n.pool.do(n.ctx, func() {
		defer n.work.Done()
		work()
	})
}

// drain ends the work of a node. It waits a limited time for calls in flight, and releases the
// unfinished runs. A fenced node drops its runs.
func (n *node) drain() error {
	close(n.draining)
	n.close()
	n.holds() // takes the lock: a later call of ask or take sees that the membership has ended
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

// waitFor waits for the end of all work. It returns false if the time or the membership ends first.
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

// leave releases the unfinished runs, unless the node has lost them. While the store is unreachable
// it retries for as long as other nodes would wait for the end of the lease, and a little longer if
// the lease is short. A beat that fails because the node has just left does no harm.
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

// degrade reports the outcomes of calls, and decides about fallbacks, until the membership ends.
func (n *node) degrade() {
	n.d.Degrader.Decide(n.ctx, fallback.Decider{
		Node: n.number, Now: n.d.Clock.Now, Rules: n.d.Fallbacks, Announce: n.d.Announce,
		Current: n.d.Store.Bundles.Current, Tell: n.d.Tell, Failed: n.d.Metrics.Failed, Log: n.log,
	})
}
