package guard

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"procaas/engine/store"
)

// Nodes share each rate limit: each live node has a part. If only some nodes get calls, the others
// lend them their parts. A node may only lower its own part, and raise those of others in the same
// write. The lower part counts before others read it. So the parts never exceed the limit.

const (
	// settling is how long a node waits before its part grows because nodes have left or a split
	// has ended. By then all nodes know.
	settling = store.BeatEvery + store.BeatEvery/4

	lateFor   = time.Second     // a node needs more for this long after a call had to wait
	calmAfter = 2 * time.Second // and no longer needs more if no call had to wait for this long
	window    = time.Second / 2 // the shortest time for counting calls
	windows   = 4               // windows to remember, because what is lent at each lull is soon asked back

	fullFrom  = 0.8  // a node needs more if it uses this share of its part
	keepLeast = 0.1  // of an equal part, which a node keeps even if it uses nothing
	keepSpare = 1.5  // a node keeps this many times what it uses
	giveLeast = 0.05 // of an equal part; less is not worth a write
)

// Splits says how nodes share limits unequally, by the names of the limits.
type Splits map[string]Split

// A Split says how nodes share one limit. It counts only while the number of live nodes stays the
// same.
type Split struct {
	Nodes int            `json:"nodes"`
	Parts map[int64]Part `json:"parts"` // by node; a missing node has an equal part
}

// A Part is what a node may use of a limit.
type Part struct {
	Share float64 `json:"share"`           // of the whole limit
	Wants bool    `json:"wants,omitempty"` // calls have to wait there
}

// lending has the node's parts of limits.
type lending struct {
	mu     sync.Mutex // guards the following
	parts  map[string]loan
	counts map[string]usage // by limit
	until  time.Time        // nodes have come or gone: lend nothing until then

	now atomic.Pointer[map[string]loan] // a copy of parts for frequent reads; nil if all parts are equal

	regrouped store.Broadcast // nodes have come or gone
}

// A loan is an unequal part.
type loan struct {
	share float64
	rival int       // other nodes that want more
	until time.Time // end of the loan; zero while its split counts
}

// usage is how much of a limit this node has used.
type usage struct {
	taken int64            // calls at the last count
	at    time.Time        // time of the last count
	rates [windows]float64 // calls per second in the last windows, newest first
}

// Part returns this node's part of a limit, and the part that it may get if other nodes lend
// theirs.
func (g *Guard) Part(limit string) (share, hope float64) {
	if parts := g.lent.now.Load(); parts != nil {
		if l, lent := (*parts)[limit]; lent {
			return l.share, max(l.share, 1/float64(1+l.rival))
		}
	}
	return 1 / float64(max(1, g.Nodes.Load())), 1
}

// publish makes parts visible to Part. The caller holds the lock.
func (l *lending) publish() {
	if len(l.parts) == 0 {
		l.now.Store(nil)
		return
	}
	parts := maps.Clone(l.parts)
	l.now.Store(&parts)
}

// void ends a loan. A part above the equal one shrinks at once. A part below it grows when all
// nodes know. The caller holds the lock.
func (l *lending) void(limit string, equal float64, now time.Time) {
	loan := l.parts[limit]
	if loan.until.IsZero() {
		loan.until = now.Add(settling)
	}
	loan.share, loan.rival = min(loan.share, equal), 0
	l.parts[limit] = loan
}

// Regrouped returns a channel that is closed when nodes come or go. Call it before [Guard.SharesNothing].
func (g *Guard) Regrouped() <-chan struct{} { return g.lent.regrouped.Next() }

// SharesNothing reports whether this node has all limits for itself until nodes come.
func (g *Guard) SharesNothing() bool { return g.Nodes.Load() < 2 && g.lent.now.Load() == nil }

// Rejoin ends all loans, because the node has a new number.
func (g *Guard) Rejoin(now time.Time) { g.lent.regroup(int(g.Nodes.Load()), now) }

// regroup ends all loans, because nodes have come or gone.
func (l *lending) regroup(nodes int, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.until = now.Add(settling)
	for limit := range l.parts {
		l.void(limit, 1/float64(max(1, nodes)), now)
	}
	l.publish()
	l.regrouped.Send()
}

// Lend applies the current splits. If this node needs more or less than it has, next are the splits
// to write. What the node lends counts at once. What it gets counts when it reads it.
func (g *Guard) Lend(node int64, splits Splits, now time.Time) (next Splits, changed bool) {
	l := &g.lent
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.publish()
	if l.parts == nil {
		l.parts, l.counts = map[string]loan{}, map[string]usage{}
	}
	nodes := int(g.Nodes.Load())
	equal := 1 / float64(max(1, nodes))
	for limit, loan := range l.parts {
		if s := splits[limit]; s.Nodes != nodes || s.Parts[node].Share == 0 {
			l.void(limit, equal, now)
		}
		if !loan.until.IsZero() && !now.Before(loan.until) {
			delete(l.parts, limit)
		}
	}
	if nodes < 2 || now.Before(l.until) {
		return nil, false
	}
	next = Splits{}
	for limit, s := range splits { // only those that count
		if s.Nodes != nodes {
			changed = true
			continue
		}
		s.Parts = maps.Clone(s.Parts)
		next[limit] = s
		if p, known := s.Parts[node]; known {
			l.parts[limit] = loan{share: p.Share, rival: s.rivals(node)}
		}
	}
	for limit, b := range g.limits() {
		if g.settle(node, limit, b, next, now) {
			changed = true
		}
	}
	for limit := range next {
		if g.bucketOf(limit) == nil && g.settle(node, limit, &bucket{}, next, now) {
			changed = true
		}
	}
	return next, changed
}

// rivals returns how many other nodes want more.
func (s *Split) rivals(node int64) (n int) {
	for other, p := range s.Parts {
		if other != node && p.Wants {
			n++
		}
	}
	return n
}

// settle decides what the node wants of a limit, and gives away what it can spare. The caller holds
// the lock.
func (g *Guard) settle(node int64, limit string, b *bucket, next Splits, now time.Time) (changed bool) {
	l, nodes := &g.lent, int(g.Nodes.Load())
	if !l.parts[limit].until.IsZero() {
		return false // its part grows when all nodes know that the old split has ended
	}
	equal := 1 / float64(nodes)
	s, split := next[limit]
	mine, known := s.Parts[node]
	if !known {
		mine.Share = equal
	}
	used, late := g.used(limit, b, mine.Share, now)
	// A call may wait only because it came too soon after the one before. That is no reason to need
	// more.
	wants := used >= fullFrom*mine.Share && (late < lateFor || mine.Wants && late < calmAfter)
	if !split && !wants {
		return false
	}
	if !split {
		s = Split{Nodes: nodes, Parts: map[int64]Part{}}
	}
	changed = wants != mine.Wants
	mine.Wants = wants
	if s.give(node, &mine, used, equal) {
		changed = true
		l.parts[limit] = loan{share: mine.Share, rival: s.rivals(node)}
	}
	if changed {
		s.Parts[node] = mine
		next[limit] = s
	}
	return changed
}

// give raises the parts of the nodes that want more by what this node can spare. A node that wants
// no more keeps what it uses and a reserve. A node that wants more itself keeps an equal share of
// the parts of all such nodes.
func (s *Split) give(node int64, mine *Part, used, equal float64) bool {
	wanting, sum := 1, mine.Share
	var to []int64
	for other, p := range s.Parts {
		if other != node && p.Wants {
			to = append(to, other)
			wanting, sum = wanting+1, sum+p.Share
		}
	}
	keep := max(keepLeast*equal, keepSpare*used)
	if mine.Wants {
		keep = sum / float64(wanting)
		to = slices.DeleteFunc(to, func(other int64) bool { return s.Parts[other].Share >= keep })
	}
	spare := mine.Share - keep
	if len(to) == 0 || spare < giveLeast*equal {
		return false
	}
	for _, other := range to {
		p := s.Parts[other]
		p.Share += spare / float64(len(to))
		s.Parts[other] = p
	}
	mine.Share = keep
	return true
}

// used returns which part of a limit the node's calls use, and how long ago one had to wait. The
// caller holds the lock.
func (g *Guard) used(limit string, b *bucket, share float64, now time.Time) (part float64, late time.Duration) {
	taken, whole, lateAt := b.counted()
	u, known := g.lent.counts[limit]
	before := u.taken
	switch took := now.Sub(u.at); {
	case !known:
		u = usage{taken: taken, at: now, rates: [windows]float64{whole}} // nothing is known yet, so assume that all is used
	case took >= window:
		u.taken, u.at = taken, now
		copy(u.rates[1:], u.rates[:])
		u.rates[0] = float64(taken-before) / took.Seconds()
	}
	g.lent.counts[limit] = u
	late = calmAfter
	if lateAt != 0 {
		late = now.Sub(time.Unix(0, lateAt))
	}
	if whole == 0 {
		return 0, late
	}
	return min(slices.Max(u.rates[:])/whole, share), late
}

// limits returns the buckets that nodes share, by the names of the limits.
func (g *Guard) limits() map[string]*bucket {
	g.mu.RLock()
	defer g.mu.RUnlock()
	out := map[string]*bucket{}
	for name, b := range g.buckets {
		if !strings.HasSuffix(name, CauseLoop) { // budgets of loops are large, and rarely used up
			out[name] = b
		}
	}
	return out
}

// bucketOf returns the bucket of a limit that the node has used, or nil.
func (g *Guard) bucketOf(limit string) *bucket {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.buckets[limit]
}
