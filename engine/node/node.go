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
	"procaas/engine/model"
	"procaas/engine/steering"
	"procaas/engine/store"
)

// A node is this process as a member of those that share a store, from one Join
// until it leaves or is fenced. It holds the runs that it works on.
type node struct {
	d      *Driver
	number int64
	log    *slog.Logger
	steps  committer

	ctx   context.Context // ends when the node is fenced or has left: drop everything
	end   context.CancelCauseFunc
	calls context.Context // of handler calls; ends also when draining takes too long
	abort context.CancelFunc

	draining chan struct{} // closed: start nothing more
	wake     chan struct{} // there may be something to claim
	called   chan struct{} // a gate will soon have room for runs that wait in the store
	told     bool          // the store tells when there is
	work     sync.WaitGroup
	pool     *workerPool // that does it

	makeCall func(*job, *core.Attempt) // whose end comes on the job's ended

	lease lease

	suspects suspects

	// backlog says that the store may hold ready runs that the node had no room
	// for. Then new events must not overtake them.
	backlog atomic.Bool

	// lost says that the answer to a Claim or an Accept was lost.
	lost atomic.Bool

	releaser *steering.Releaser // of the goroutine that beats

	mu     sync.Mutex // guards the following
	jobs   map[string]*job
	ending int  // jobs that have done all but the commit of their end, which need no room
	asked  int  // room that is kept for a Claim or an Accept under way
	asking int  // how many of those there are
	shut   bool // ask for no more runs
	quiet  chan struct{}
}

// errLeft ends the context of a node that has left.
var errLeft = errors.New("node has left")

// ask keeps room for up to n runs and tells for how many; 0 when the node takes
// none. After a result above 0 the caller asks the store, and calls take.
func (n *node) ask(runs int) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	most := n.d.MaxInFlight
	runs = min(runs, most-len(n.jobs)-n.asked+min(n.ending, most))
	if n.shut || runs <= 0 || n.ctx.Err() != nil {
		return 0
	}
	n.asked += runs
	n.asking++
	return runs
}

// Nodes even out what waits: of many events that come to one node, it keeps what it would
// have in hand if all nodes had as much as they can. Beyond that it takes a little at a time,
// and lets the others look first.

const (
	shareLeast = 32                    // runs that a node takes whatever the others do
	sharePart  = 16                    // that it takes at once beyond its share
	shareGap   = 20 * time.Millisecond // before each of those, so that idle nodes are faster
)

// left is how many runs the node may take without looking at the others: what it has not taken
// of its share, 0 when it has more than that. A node that is alone shares with nobody.
func (n *node) left() int {
	most, nodes := n.d.MaxInFlight, int(n.d.Guard.Nodes.Load())
	if nodes < 2 {
		return most
	}
	share := min(most, max(most/nodes, shareLeast))
	n.mu.Lock()
	defer n.mu.Unlock()
	return max(0, share-len(n.jobs)-n.asked+min(n.ending, share))
}

// wanted is how many runs to claim: what is left of the share, or a little more after the
// others have had the time to be faster.
func (n *node) wanted() int {
	if left := n.left(); left > 0 {
		return left
	}
	clock.Pause(n.ctx, shareGap)
	return max(n.left(), sharePart)
}

// take starts the runs that the store gave for the room that ask kept.
func (n *node) take(asked int, runs []*store.Claimed) {
	n.d.Turns.Began(runs)
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range runs {
		if n.jobs[c.ID] != nil || n.ctx.Err() != nil {
			continue // given again, since the first answer was lost; or given too late
		}
		j := newJob(n, c)
		n.jobs[c.ID] = j
		n.startJob(j)
	}
	n.asked -= asked
	n.asking--
	if n.shut && n.asking == 0 {
		close(n.quiet)
	}
}

// accepted begins the runs that came with an Accept, for which ask has kept room, and lets the node
// look for the others.
func (n *node) accepted(asked int, results []store.Accepted, err error) {
	var claimed []*store.Claimed
	for _, r := range results {
		if r.Claimed != nil {
			claimed = append(claimed, r.Claimed)
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
	if asked > 0 {
		n.take(asked, claimed)
	}
	if len(claimed) < len(results) || err != nil {
		n.nudge()
	}
}

// ends makes the room of a run free whose end is about to be saved: when others hear
// of the end, the room is there for the next.
func (n *node) ends(j *job) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !j.ends {
		j.ends = true
		n.ending++
	}
}

// done forgets a run and makes its room free.
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
	n.d.Watch.Left(j.claimed.ID)
	// The next event of the key may be ready now; who is told of that need not look.
	if j.claimed.Ordered && !n.told || n.backlog.Load() {
		n.nudge()
	}
}

// nudge lets the node look for ready runs.
func (n *node) nudge() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// holds returns the number of runs that the node knows or has asked for.
func (n *node) holds() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.jobs) + n.asked
}

// job finds a run that the node works on; nil when it does not.
func (n *node) job(run string) *job {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.jobs[run]
}

// close stops asking for runs, and waits until no answer is outstanding. It returns
// which runs the node then holds; ok is false when its membership ended first.
func (n *node) close() (runs []string, ok bool) {
	n.mu.Lock()
	if !n.shut {
		n.shut, n.quiet = true, make(chan struct{})
		if n.asking == 0 {
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

// open asks for runs again after close, unless the node is draining.
func (n *node) open() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.shut = n.isDraining()
	n.nudge()
}

// giveBackUnknown returns runs that the node owns without knowing.
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

// fence drops everything: another node has taken over, or may do so.
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

// A lease says until when other nodes leave this one alone, by the monotonic
// clock of this process.
type lease struct {
	mu      sync.Mutex // guards the following
	until   time.Time
	unseen  time.Time       // until then only, when the store has lost sight of the process
	watched <-chan struct{} // closed: it has; nil when it does not look
	renewed chan struct{}   // closed and replaced by each renewal
	err     error           // why the last renewal failed
}

// renew prolongs the lease of a node from a beat that began then.
func (n *node) renew(began time.Time, watched <-chan struct{}) {
	lease := n.d.Lease
	n.lease.renew(began.Add(min(lease, provenFor)), began.Add(store.Silence(lease)), watched)
}

// renew prolongs the lease.
func (l *lease) renew(until, unseen time.Time, watched <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.until, l.unseen, l.watched, l.err = until, unseen, watched, nil
	if l.renewed != nil {
		close(l.renewed)
	}
	l.renewed = make(chan struct{})
}

// watch notes that the store may look at the process from now on, without a renewal.
func (l *lease) watch(watched <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if watched != nil {
		l.watched = watched
	}
}

// end is when the lease is over. The caller holds the lock.
func (l *lease) end() time.Time {
	select {
	case <-l.watched:
		return l.unseen
	default:
		return l.until
	}
}

// failed notes why the lease could not be renewed; first is false when it failed
// before, too.
func (l *lease) failed(err error) (first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first = l.err == nil
	l.err = err
	return first
}

// valid waits until the lease is valid; false when ctx ended first. A node whose
// lease is over must start no call: another one may have begun it.
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

// state reports whether the lease is valid, and why it was not renewed last.
func (l *lease) state() (valid bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Now().Before(l.end()), l.err
}
