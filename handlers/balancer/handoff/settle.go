package handoff

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"
)

// A Map is an assignment with the data that is needed to bring the workers to it.
type Map struct {
	Cluster string   // its id
	Version int64    // from 1
	Workers []Worker // all of them, in any order; those without partitions must learn the version, too
	Owner   []int    // of each partition, an index into Workers; -1 for none
	Since   []int64  // the version that brought each partition to its owner; nil if unknown
	Lost    []Loss   // recent ones; older ones may be left out
}

// A Loss says that a worker has lost a partition.
type Loss struct {
	Partition, Worker int           // Worker is an index into those of the map
	Age               time.Duration // since the decision
}

// A Worker is the address of one worker of a [Map].
type Worker struct{ ID, URL string }

// DefaultGrace is how long a silent worker may still serve a partition that was moved away from it.
const DefaultGrace = 3 * time.Second

// endedGrace is the longest grace for a worker at whose address nothing listens. Its process has
// ended, and its requests end with it or soon after.
const endedGrace = 1500 * time.Millisecond

// A Settler brings workers to an assignment. It keeps no state. What it does depends on the
// assignment and on the workers' states, so another process may continue at any point.
type Settler struct {
	Caller  Caller
	Timeout time.Duration // of one order; 0 would make every worker silent

	// Grace is how long after a move a silent worker is assumed to still serve the partition. The
	// new owner gets it after that.
	Grace time.Duration

	// Silent are the ids of workers that did not answer a moment ago. They get only SilentTimeout, so
	// that they do not hold up the others.
	Silent map[string]bool

	AtOnce int // how many workers are called at once; 0 means [DefaultAtOnce]
}

// SilentTimeout is the longest time of an order to a worker that did not answer a moment ago.
const SilentTimeout = 200 * time.Millisecond

// DefaultAtOnce is how many workers are called at once.
const DefaultAtOnce = 64

// A Settled is the progress of the workers.
type Settled struct {
	Version  int64 `json:"version"`  // of the assignment
	Held     int   `json:"held"`     // partitions that their owners serve
	Released int   `json:"released"` // taken from others in this round
	Taken    int   `json:"taken"`    // given to their owners in this round
	Waiting  []int `json:"waiting"`  // partitions whose owners answer, and may not have them yet
	// partitions whose owners do not answer, so that it is unknown whether they are served
	Absent []int    `json:"absent"`
	Silent []string `json:"silent"` // workers that do not answer
}

// Settle does one round. It tells all workers the version, takes from each what it should not
// serve, and assigns to owners what no other worker can hold any more. The error is an
// [*OutdatedError] if a worker knows a newer assignment. Then it does nothing else.
func (s Settler) Settle(ctx context.Context, m Map) (Settled, error) {
	r := s.round(m)
	// All workers learn the version before anything is taken. From then on none follows an older
	// balancer.
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

// A round is one round of a [Settler].
type round struct {
	Settler
	m      Map
	states []State       // last answer of each worker
	silent []bool        // it did not answer an order of this round
	ended  []bool        // because nothing listens at its address
	lost   map[Loss]bool // within the grace; Age is 0 in the keys
	fresh  map[Loss]bool // those of them within the grace of ended workers
}

// round starts a round. A worker may still serve what it lost within the grace, unless it says that
// it does not.
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

// order sends each worker its order, all at once. Workers without partitions get none unless all is
// set. Silent ones are not asked again.
func (r *round) order(ctx context.Context, path string, partitions [][]int, all bool) error {
	errs := make([]error, len(r.m.Workers))
	r.each(func(w int) {
		if r.silent[w] || len(partitions[w]) == 0 && !all {
			return
		}
		timeout := r.Timeout
		if r.Silent[r.m.Workers[w].ID] {
			timeout = min(timeout, SilentTimeout)
		}
		ctx, cancel := context.WithTimeout(ctx, timeout)
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

// strangers lists what each worker should not have: partitions of others, unless this very version
// announced them, which starts the next move. An owner's hold is outdated, and therefore also
// strange, if the partition was elsewhere since.
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

// free lists what each owner may take: what it does not hold, and no other worker can hold.
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

// heldByOthers returns for each partition whether a worker other than its owner may serve it: by
// its last answer, or because it is silent and lost the partition recently.
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
			// A worker that does not end its last requests within the grace is not waited for.
			ending := p.Phase == Releasing && r.lost[Loss{Partition: p.Partition, Worker: w}]
			if p.Phase == Held && !r.silent[w] || ending {
				held[p.Partition] = true
			}
		}
	}
	return held
}

// holds reports whether an owner serves a partition, by its last answer.
func (r *round) holds(w, p int) bool {
	x, ok := r.states[w].find(p)
	return ok && x.Phase == Held && !r.outdated(x)
}

// outdated reports whether a partition came to its owner after the hold began.
func (r *round) outdated(p Partition) bool {
	return p.Partition < len(r.m.Since) && p.Version < r.m.Since[p.Partition]
}

// result counts by the workers' last answers.
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
	// limits the calls in flight
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
