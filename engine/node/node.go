package node

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"procaas/engine/clock"
	"procaas/engine/core"
	"procaas/engine/guard"
	"procaas/engine/intake"
	"procaas/engine/model"
	"procaas/engine/steering"
	"procaas/engine/store"
)

// A node is this process as a member of the cluster, from one Join until it leaves or is fenced. It
// has the runs that it drives.
type node struct {
	d      *Driver
	number int64
	log    *slog.Logger
	steps  committer

	ctx   context.Context // ends when the node is fenced or has left: drop everything
	end   context.CancelCauseFunc
	calls context.Context // of handler calls; also ends if draining takes too long
	abort context.CancelFunc

	draining chan struct{} // closed: start nothing more
	wake     chan struct{} // there may be runs to claim
	called   chan struct{} // a limited handler will soon have room for runs that wait in the store
	told     bool          // the store sends a hint when runs are ready
	work     sync.WaitGroup
	pool     *workerPool   // runs the work
	steppers chan struct{} // held by runs that compute; see memory.go

	caller caller // the node itself, or the Stepper that has it
	tokens guard.Tokens
	desk   *tokenDesk // answers for tokens, except in virtual time

	lease   lease
	stalled stall

	suspects suspects

	// backlog says that the store may have ready runs for which the node had no room. New events
	// must not overtake them.
	backlog atomic.Bool

	// lost says that the answer to a Claim or an Accept was lost.
	lost atomic.Bool

	joined time.Time
	alone  atomic.Bool  // no other node is a member
	fair   atomic.Int64 // how many runs each node would have if all had the same number

	releaser *steering.Releaser // used by the goroutine that beats

	mu     sync.Mutex // guards the following
	jobs   map[string]*job
	ending int  // jobs that need no room, because only the commit of their end is missing
	asked  int  // room that is reserved for each Claim and Accept in flight
	shut   bool // claim no more runs
	quiet  chan struct{}
}

// A caller makes calls of handlers. The outcome goes to the turn of the job.
type caller interface{ startCall(j *job, t *core.Attempt) }

// errLeft ends the context of a node that has left.
var errLeft = errors.New("node has left")

// ask reserves room for up to the given number of runs and returns for how many. Some places are
// kept. It returns 0 if the node accepts none, such as when its memory is short. After a result above 0 the caller asks the store,
// then calls take.
func (n *node) ask(runs, kept int) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	most := n.d.MaxInFlight
	runs = min(runs, most-len(n.jobs)-n.asked+min(n.ending, most)-kept)
	if n.shut || runs <= 0 || n.ctx.Err() != nil || n.d.Memory.Short() {
		return 0
	}
	n.asked += runs
	return runs
}

// Nodes share the runs evenly, because a node never gives one back. The share of a node is what
// each node would have now, and a few runs more. It is at most MaxInFlight divided by the number of
// nodes. Beyond its share a node takes a few runs at a time, and lets the other nodes claim first.

const (
	shareLeast = 32                    // runs that a node always takes, and that it may have more than others
	shareGap   = 20 * time.Millisecond // pause before each of those, so that idle nodes are faster

	// What a node takes at once beyond its share is a sixteenth of the runs that it works on, within these. A node that starts
	// after a crash does not know yet that it is alone, and has all runs of before to take.
	sharePartLeast, sharePartMost = 16, 64
)

// meet notes what a beat says of all nodes. Nodes that are started together join one after the
// other. So a node is not alone before its beats have had the time to see one that joins after it.
func (n *node) meet(b store.Beat) {
	n.alone.Store(b.Nodes < 2 && time.Since(n.joined) >= store.BeatEvery)
	if b.Owned >= 0 {
		n.fair.Store(int64(b.Running / max(1, b.Nodes)))
	}
}

// share returns how many runs the node may have without regard to others.
func (n *node) share() int {
	most := n.d.MaxInFlight
	if n.alone.Load() {
		return most
	}
	part := most / max(2, int(n.d.Guard.Nodes.Load()))
	return min(most, max(part, shareLeast), int(n.fair.Load())+shareLeast)
}

// left returns how many runs the node may take without regard to others: the unused part of its
// share, or 0. A single node has no limit.
func (n *node) left() int {
	if n.alone.Load() {
		return n.d.MaxInFlight
	}
	share := n.share()
	n.mu.Lock()
	defer n.mu.Unlock()
	return max(0, share-len(n.jobs)-n.asked+min(n.ending, share))
}

// wanted returns how many runs to claim: the unused part of the share, or a few more after other
// nodes have had time to claim.
func (n *node) wanted() int {
	if left := n.left(); left > 0 {
		return left
	}
	clock.Pause(n.ctx, shareGap)
	return max(n.left(), min(max(sharePartLeast, n.d.MaxInFlight/16), sharePartMost))
}

// take starts the runs that the store returned for the room that ask reserved.
func (n *node) take(asked int, runs []*store.Claimed) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range runs {
		if n.jobs[c.ID] != nil || n.ctx.Err() != nil {
			continue // returned again because the first answer was lost, or returned too late
		}
		j := newJob(n, c)
		j.lane = n.d.Turns.Began(c, j.came)
		n.jobs[c.ID] = j
		n.startJob(j)
	}
	n.asked -= asked
	if n.shut && n.asked == 0 {
		close(n.quiet)
	}
}

// Take implements [intake.Holder]. It starts the runs that came with an Accept, and lets the node
// claim the others.
func (n *node) Take(r intake.Reservation, results []store.Accepted, err error) {
	asked := r.Runs + r.Kept
	var claimed []*store.Claimed
	begun := 0
	for _, r := range results {
		if r.Claimed != nil {
			claimed = append(claimed, r.Claimed)
		}
		if r.Claimed != nil || r.Ended {
			begun++
		}
	}
	switch {
	case errors.Is(err, store.ErrFenced):
		n.fence()
	case err != nil && asked > 0:
		n.lost.Store(true)
	}
	for _, r := range results {
		if asked > 0 && errors.Is(r.Err, store.ErrAway) {
			n.lost.Store(true)
		}
	}
	if asked > 0 || len(claimed) > 0 {
		n.take(asked, claimed)
	}
	if begun < len(results) || err != nil {
		n.nudge()
	}
}

// ends frees the room of a run whose end is about to be saved. So there is room for the next run
// when others hear of the end.
func (n *node) ends(j *job) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !j.ends {
		j.ends = true
		n.ending++
	}
}

// done forgets a run and frees its room.
func (n *node) done(j *job) {
	if model.Suspected(j.claimed.Losses) {
		n.suspects.clear(j.claimed.ID)
	}
	n.mu.Lock()
	delete(n.jobs, j.claimed.ID)
	if j.ends {
		n.ending--
	}
	n.mu.Unlock()
	j.mem.Close()
	n.d.Turns.Ended(j.lane, time.Since(j.came))
	n.d.Watch.Left(j.claimed.ID)
	// The next event of the key may be ready now. A node that gets hints need not look.
	if j.claimed.Ordered && !n.told || n.backlog.Load() {
		n.nudge()
	}
}

// nudge makes the node look for ready runs.
func (n *node) nudge() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// holds returns the number of runs that the node has or has reserved room for.
func (n *node) holds() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.jobs) + n.asked
}

// room returns for how many more runs from the queue the node has room.
func (n *node) room() int {
	return max(0, n.d.MaxInFlight-n.holds()-n.d.Turns.Kept(time.Now()))
}

// job returns the job of a run, or nil if the node does not drive it.
func (n *node) job(run string) *job {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.jobs[run]
}

// close stops claiming, and waits until no answer is outstanding. It returns the runs that the node
// then has. ok is false if its membership ended first.
func (n *node) close() (runs []string, ok bool) {
	n.mu.Lock()
	if !n.shut {
		n.shut, n.quiet = true, make(chan struct{})
		if n.asked == 0 {
			close(n.quiet)
		}
	}
	quiet := n.quiet
	n.mu.Unlock()

	select {
	case <-quiet:
	case <-n.ctx.Done():
		return nil, false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	runs = make([]string, 0, len(n.jobs))
	for run := range n.jobs {
		runs = append(runs, run)
	}
	return runs, true
}

// open resumes claiming after close, unless the node is draining.
func (n *node) open() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.shut = n.isDraining()
	n.nudge()
}

// giveBackUnknown releases runs that the node owns without knowing.
func (n *node) giveBackUnknown() {
	runs, ok := n.close()
	if !ok {
		return
	}
	defer n.open()
	ctx, cancel := context.WithTimeout(n.ctx, clock.StoreTimeout)
	defer cancel()
	if err := n.d.Store.Ledger.Leave(ctx, n.number, runs); err != nil {
		n.log.Warn("unknown runs could not be given back, trying again", "error", err)
		return
	}
	n.lost.Store(false)
}

// fence drops everything, because another node has taken over or may do so.
func (n *node) fence() { n.end(store.ErrFenced) }

// isDraining reports whether the node starts nothing more.
func (n *node) isDraining() bool {
	select {
	case <-n.draining:
		return true
	default:
		return false
	}
}

// A lease says until when other nodes may not take over this one's runs, by the monotonic clock of
// this process.
type lease struct {
	mu      sync.Mutex // guards the following
	until   time.Time
	unseen  time.Time       // the end if the store has lost sight of the process
	watched <-chan struct{} // closed when the store loses sight of the process; nil if it does not watch
	renewed chan struct{}   // closed and replaced by each renewal
	err     error           // why the last renewal failed
}

// renew extends the node's lease, counted from a beat that began at the given time.
func (n *node) renew(began time.Time, watched <-chan struct{}) {
	lease := n.d.Lease
	n.lease.renew(began.Add(min(lease, provenFor)), began.Add(store.Silence(lease)), watched)
}

// renew extends the lease.
func (l *lease) renew(until, unseen time.Time, watched <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.until = until
	l.unseen = unseen
	l.watched = watched
	l.err = nil
	if l.renewed != nil {
		close(l.renewed)
	}
	l.renewed = make(chan struct{})
}

// watch sets the channel that reports when the store loses sight of the process, without renewing
// the lease.
func (l *lease) watch(watched <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if watched != nil {
		l.watched = watched
	}
}

// end returns when the lease ends. The caller holds the lock.
func (l *lease) end() time.Time {
	select {
	case <-l.watched:
		return l.unseen
	default:
		return l.until
	}
}

// failed notes why the lease could not be renewed. first is false if the previous renewal failed,
// too.
func (l *lease) failed(err error) (first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first = l.err == nil
	l.err = err
	return first
}

// valid waits until the lease is valid. It returns false if ctx ended first. A node whose lease has
// ended must start no call, because another node may have started it.
func (l *lease) valid(ctx context.Context) bool {
	for {
		l.mu.Lock()
		until, renewed := l.end(), l.renewed
		l.mu.Unlock()
		if time.Now().Before(until) {
			return ctx.Err() == nil
		}
		select {
		case <-ctx.Done():
			return false
		case <-renewed:
		}
	}
}

// state reports whether the lease is valid, and why the last renewal failed.
func (l *lease) state() (valid bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Now().Before(l.end()), l.err
}
