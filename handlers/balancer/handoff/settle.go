package handoff

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"
)

// A Map is an assignment with what is needed to bring the workers to it.
type Map struct {
	Cluster string   // its id
	Version int64    // from 1
	Workers []Worker // all of them, in any order; those without partitions have to hear of the version, too
	Owner   []int    // of each partition, an index into Workers; -1 for nobody
	Since   []int64  // the version by which each partition came to its owner; nil when it is not known
	Lost    []Loss   // lately; those that are over for a long time may be left out
}

// A Loss is that a worker has lost a partition to another one, or to nobody.
type Loss struct {
	Partition, Worker int           // Worker is an index into those of the map
	Age               time.Duration // since it was decided
}

// A Worker is where one worker of a [Map] takes orders.
type Worker struct{ ID, URL string }

// DefaultGrace is how long a silent worker may go on to serve a partition that was moved
// away from it.
const DefaultGrace = 5 * time.Second

// endedGrace is how long that is at most for a worker at whose address nothing listens any
// more: its process has ended, and what it had begun ends with it, or soon.
const endedGrace = 1500 * time.Millisecond

// A Settler brings workers to an assignment. It keeps nothing: what it does follows from
// the assignment and from what the workers say they hold, so that another one may go on
// at any point.
type Settler struct {
	Caller  Caller
	Timeout time.Duration // of one order; must not be 0, or every worker is silent

	// Grace is how long after a move a worker that does not answer is taken to serve
	// the partition still: so long its new owner does not get it.
	Grace time.Duration

	AtOnce int // how many workers get their orders at once; [DefaultAtOnce] when 0
}

// DefaultAtOnce is how many workers get their orders at once.
const DefaultAtOnce = 64

// Settled is how far the workers are.
type Settled struct {
	Version  int64    `json:"version"`  // of the assignment
	Held     int      `json:"held"`     // partitions that their owners serve
	Released int      `json:"released"` // that were taken from others now
	Taken    int      `json:"taken"`    // that were given to their owners now
	Waiting  []int    `json:"waiting"`  // partitions whose owners answer, and may not have them yet
	Absent   []int    `json:"absent"`   // partitions whose owners do not answer, and of which it is unknown whether they are served
	Silent   []string `json:"silent"`   // workers that do not answer
}

// Settle does one round: it tells all workers the version, takes from each what is not
// its own, and gives the owners what nobody else can hold any more. The error is an
// [*OutdatedError] when a worker has heard of a newer assignment; nothing else is done then.
func (s Settler) Settle(ctx context.Context, m Map) (Settled, error) {
	r := s.round(m)
	// All hear of the version before anything is taken: from then on nobody follows an older
	// balancer that is still at work.
	none := make([][]int, len(m.Workers))
	if err := r.order(ctx, PathRelease, none, true); err != nil {
		return Settled{}, err
	}
	strangers := r.strangers()
	if err := r.order(ctx, PathRelease, strangers, false); err != nil {
		return Settled{}, err
	}
	gains := r.free()
	if err := r.order(ctx, PathTake, gains, false); err != nil {
		return Settled{}, err
	}
	return r.result(strangers, gains), nil
}

// A round is one go of a [Settler].
type round struct {
	Settler
	m      Map
	states []State       // the last that each worker has answered
	silent []bool        // it has not answered an order of this round
	ended  []bool        // for nothing listens at its address
	lost   map[Loss]bool // within the grace; Age is 0 in the keys
	fresh  map[Loss]bool // those of them within the grace of workers that have ended
}

// round begins one. What a worker lost within the grace it may serve still, as long as it
// does not say that it does not.
func (s Settler) round(m Map) *round {
	r := &round{
		Settler: s, m: m, states: make([]State, len(m.Workers)), silent: make([]bool, len(m.Workers)), ended: make([]bool, len(m.Workers)),
		lost: map[Loss]bool{}, fresh: map[Loss]bool{},
	}
	for _, l := range m.Lost {
		if l.Age < s.Grace {
			r.lost[Loss{Partition: l.Partition, Worker: l.Worker}] = true
			r.fresh[Loss{Partition: l.Partition, Worker: l.Worker}] = l.Age < endedGrace
		}
	}
	return r
}

// order gives each worker its order, all at once. Workers without partitions get none
// unless all do; those that are silent are not asked again.
func (r *round) order(ctx context.Context, path string, partitions [][]int, all bool) error {
	errs := make([]error, len(r.m.Workers))
	r.each(func(w int) {
		if r.silent[w] || len(partitions[w]) == 0 && !all {
			return
		}
		ctx, cancel := context.WithTimeout(ctx, r.Timeout)
		defer cancel()
		state, err := r.Caller.Order(ctx, r.m.Workers[w].URL, path, Order{Cluster: r.m.Cluster, Version: r.m.Version, Partitions: partitions[w]})
		if err == nil {
			r.states[w] = state
			return
		}
		r.silent[w], r.ended[w], errs[w] = true, errors.Is(err, syscall.ECONNREFUSED), err
	})
	for w, err := range errs {
		if errors.As(err, new(*OutdatedError)) {
			return fmt.Errorf("worker %s: %w", r.m.Workers[w].ID, err)
		}
	}
	return ctx.Err()
}

// strangers lists what each worker has to do with and should not: partitions of others,
// unless they were announced by this very assignment, which is how the next one begins.
// What an owner holds from an earlier time, between which and now the partition was
// elsewhere, is strange, too: it is outdated.
func (r *round) strangers() [][]int {
	lists := make([][]int, len(r.m.Workers))
	for w, s := range r.states {
		for _, p := range s.Partitions {
			if p.Partition < len(r.m.Owner) && r.m.Owner[p.Partition] == w && !(p.Phase == Held && r.outdated(p)) {
				continue
			}
			if p.Phase == Held || p.Phase == Releasing || p.Version < r.m.Version {
				lists[w] = append(lists[w], p.Partition)
			}
		}
	}
	return lists
}

// free lists what each owner may take: what it does not hold, and nobody else can.
func (r *round) free() [][]int {
	lists := make([][]int, len(r.m.Workers))
	others := r.heldByOthers()
	for p, w := range r.m.Owner {
		if w >= 0 && !r.silent[w] && !others[p] && !r.holds(w, p) {
			lists[w] = append(lists[w], p)
		}
	}
	return lists
}

// heldByOthers describes each partition whether a worker that is not its owner may serve
// it: by what it has said last, or because it says nothing and lost it a moment ago.
func (r *round) heldByOthers() []bool {
	held := make([]bool, len(r.m.Owner))
	for l := range r.lost {
		if l.Partition < len(held) && r.silent[l.Worker] && (!r.ended[l.Worker] || r.fresh[l]) && r.m.Owner[l.Partition] != l.Worker {
			held[l.Partition] = true
		}
	}
	for w, s := range r.states {
		for _, p := range s.Partitions {
			if p.Partition >= len(held) || r.m.Owner[p.Partition] == w {
				continue
			}
			// One that does not end its last requests within the grace is not waited for.
			ending := p.Phase == Releasing && r.lost[Loss{Partition: p.Partition, Worker: w}]
			if p.Phase == Held && !r.silent[w] || ending {
				held[p.Partition] = true
			}
		}
	}
	return held
}

// holds reports whether an owner serves a partition, by what it has said last.
func (r *round) holds(w, p int) bool {
	x, ok := r.states[w].find(p)
	return ok && x.Phase == Held && !r.outdated(x)
}

// outdated reports whether a partition came to its owner later than a hold of it began.
func (r *round) outdated(p Partition) bool {
	return p.Partition < len(r.m.Since) && p.Version < r.m.Since[p.Partition]
}

// result counts by what the workers have said last.
func (r *round) result(released, gains [][]int) Settled {
	s := Settled{Version: r.m.Version, Waiting: []int{}, Absent: []int{}, Silent: []string{}}
	for w, list := range gains {
		if !r.silent[w] {
			s.Taken += len(list)
		}
	}
	for w, list := range released {
		for _, p := range list {
			if _, still := r.states[w].find(p); !still && !r.silent[w] {
				s.Released++
			}
		}
		if r.silent[w] {
			s.Silent = append(s.Silent, r.m.Workers[w].ID)
		}
	}
	for p, w := range r.m.Owner {
		switch {
		case w < 0:
		case r.silent[w]:
			s.Absent = append(s.Absent, p)
		case !r.holds(w, p):
			s.Waiting = append(s.Waiting, p)
		default:
			s.Held++
		}
	}
	return s
}

// each calls f for all workers, many at once.
func (r *round) each(f func(worker int)) {
	most := r.AtOnce
	if most <= 0 {
		most = DefaultAtOnce
	}
	// As many as may be at work: a slot is given back when a worker has been called.
	slots := make(chan struct{}, most)
	var all sync.WaitGroup
	for i := range r.m.Workers {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			f(i)
		})
	}
	all.Wait()
}
