package shardmap

import (
	"cmp"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"procaas/handlers/sharding/transfers"
)

// A Report is the result of one look at a host.
type Report struct {
	Master   bool
	Timeline int
	LSN      uint64 // written on a master, replayed on a replica
	Load     int    // busy connections

	Connections    int // of clients
	MaxConnections int // limit

	Compared bool  // on a master: its fences were compared on its timeline
	Overdue  bool  // on a master: a key has been frozen for too long
	Err      error // it did not answer
}

// A host is the state of one server.
type host struct {
	address, dc string
	alive       bool
	last        Report // of the last answer
	seen        time.Time
	changed     int   // looks in a row that contradict alive
	err         error // of the last look; nil if it answered
}

// These are the looks in a row after which a host counts as down, or up again.
const (
	missesToDown = 2
	hitsToUp     = 2
)

// take applies the result of a look.
func (h *host) take(r Report, now time.Time) {
	first := h.seen.IsZero() && h.err == nil
	h.err = r.Err
	if r.Err == nil {
		h.last, h.seen = r, now
	}
	if first {
		h.alive = r.Err == nil
		return
	}
	if h.alive == (r.Err == nil) {
		h.changed = 0
		return
	}
	h.changed++
	if h.alive && h.changed >= missesToDown || !h.alive && h.changed >= hitsToUp {
		h.alive, h.changed = !h.alive, 0
	}
}

// A view is the state of a shard's hosts at one moment. It is immutable, except for its cached
// answers.
type view struct {
	hosts   []host
	master  int    // index; -1 for none
	problem string // why there is no master
	at      time.Time
	lags    []time.Duration // of each host; 0 for the master; the least possible lag if it is not known
	known   []bool          // whether each lag is known; it is known if the master was seen at the replica's position

	tails []atomic.Pointer[[]byte] // ends of answers, by mode and first host; see tail
}

// modes is the number of modes: master, replica, any.
const modes = 3

// A sample is the position of the master's log at a time.
type sample struct {
	at  time.Time
	lsn uint64
}

// samples is how many are kept: more than a minute.
const samples = 64

// newView judges the hosts of a shard.
func newView(hosts []host, history []sample, now time.Time) *view {
	v := &view{
		hosts: slices.Clone(hosts), master: -1, at: now, lags: make([]time.Duration, len(hosts)), known: make([]bool, len(hosts)),
		tails: make([]atomic.Pointer[[]byte], modes*len(hosts)),
	}
	v.findMaster()
	for i := range v.hosts {
		if i != v.master {
			v.lags[i], v.known[i] = lagOf(v.hosts[i].last.LSN, history, now)
			v.known[i] = v.known[i] && !v.astray(i)
		}
	}
	return v
}

// astray reports whether a replica follows another log than the master's: that of a replaced
// master. Positions of the two cannot be compared.
func (v *view) astray(i int) bool {
	if v.master < 0 {
		return false
	}
	follows := v.hosts[i].last.Timeline // 0 if it follows none
	return follows != 0 && follows != v.hosts[v.master].last.Timeline
}

// findMaster chooses the master with the highest timeline. A replaced one that does not know it yet
// has a lower timeline. If two have the same, there is no way to decide.
func (v *view) findMaster() {
	v.problem = "no host is a master that answers"
	for i, h := range v.hosts {
		if !h.alive || !h.last.Master {
			continue
		}
		if v.master >= 0 {
			other := v.hosts[v.master]
			if other.last.Timeline == h.last.Timeline {
				v.problem = fmt.Sprintf("%s and %s are both masters on timeline %d", other.address, h.address, h.last.Timeline)
				v.master = -1
				return
			}
			if other.last.Timeline > h.last.Timeline {
				continue
			}
		}
		v.master, v.problem = i, ""
	}
}

// lagOf returns how long ago the master was at the position of a replica. It is unknown if the
// replica is behind all samples: it may lag by a second or a day.
func lagOf(lsn uint64, history []sample, now time.Time) (lag time.Duration, known bool) {
	if len(history) == 0 {
		return 0, false
	}
	if lsn >= history[len(history)-1].lsn {
		return 0, true
	}
	for i, h := range slices.Backward(history) {
		if h.lsn <= lsn {
			return now.Sub(history[i+1].at), true
		}
	}
	return now.Sub(history[0].at), false
}

// staleAfter is the age from which answers are marked as stale.
const staleAfter = 3 * time.Second

// choose orders the hosts of a shard for a question. The first is the one to connect to. draw
// returns a number below its argument. The error wraps [transfers.ErrNoHost].
func (v *view) choose(q transfers.ShardQuestion, draw func(n int) int) ([]int, error) {
	first, err := v.first(q, draw)
	if err != nil {
		return nil, err
	}
	return v.withRest([]int{first}), nil
}

// first returns the host to connect to.
func (v *view) first(q transfers.ShardQuestion, draw func(n int) int) (int, error) {
	if q.Mode == transfers.ShardMaster || q.Mode == "" {
		if v.master < 0 {
			return -1, fmt.Errorf("%w: %s", transfers.ErrNoHost, v.problem)
		}
		return v.master, nil
	}
	var space [2 * usualHosts]int
	local, fit := space[:0:usualHosts], space[usualHosts:usualHosts]
	registered := 0
	for i, h := range v.hosts {
		isMaster := i == v.master
		if h.dc == q.DC && (!isMaster || q.Mode == transfers.ShardAny) {
			registered++
		}
		if !v.fits(i, q) {
			continue
		}
		fit = append(fit, i)
		if h.dc == q.DC {
			local = append(local, i)
		}
	}
	if len(fit) == 0 {
		return -1, fmt.Errorf("%w: no %s answers that is not further behind than the question allows", transfers.ErrNoHost,
			cmp.Or(map[string]string{transfers.ShardAny: "host"}[q.Mode], "replica"))
	}
	// If few local hosts are left, they would get all readers of the data center.
	near := fit
	if q.DC != "" && len(local) > 0 && 2*len(local) >= registered {
		near = local
	}
	return v.draw(near, draw), nil
}

// usualHosts is the usual maximum of hosts per shard. A choice among so many needs no allocation.
const usualHosts = 8

// fits reports whether a host may serve reads.
func (v *view) fits(i int, q transfers.ShardQuestion) bool {
	h := v.hosts[i]
	if !h.alive {
		return false
	}
	if h.last.Master {
		return q.Mode == transfers.ShardAny && i == v.master
	}
	if q.MaxLag > 0 && (!v.known[i] || v.lags[i] > q.MaxLag) {
		return false
	}
	return q.MinLSN == 0 || h.last.LSN >= q.MinLSN && !v.astray(i)
}

// draw chooses a host at random: the less busy one of two, so that an idle host does not get
// everything.
func (v *view) draw(of []int, draw func(n int) int) int {
	if len(of) == 1 {
		return of[0]
	}
	a := draw(len(of))
	b := draw(len(of) - 1)
	if b >= a {
		b++
	}
	if v.hosts[of[b]].last.Load < v.hosts[of[a]].last.Load {
		return of[b]
	}
	return of[a]
}

// withRest appends the other hosts, answering ones first. The client tries them if the view was
// wrong.
func (v *view) withRest(first []int) []int {
	for _, alive := range []bool{true, false} {
		for i := range v.hosts {
			if v.hosts[i].alive == alive && !slices.Contains(first, i) {
				first = append(first, i)
			}
		}
	}
	return first
}

// role returns the role of a host in one word.
func (v *view) role(i int) string {
	switch h := v.hosts[i]; {
	case h.seen.IsZero():
		return "unknown"
	case i == v.master:
		return transfers.ShardMaster
	case h.last.Master:
		return "replaced" // a replaced master, or a second one
	}
	return transfers.ShardReplica
}
