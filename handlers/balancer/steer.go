package balancer

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"procaas/handlers/balancer/clusters"
)

const (
	// corrected is the share of partitions that move at once because a new map forbids their
	// workers.
	corrected = 0.02

	// emptied is the share that moves at once off workers that people drain, with a policy that
	// only reacts to crashes.
	emptied = 0.05

	// evacuated is the share that moves at once off workers that fell silent together with half of
	// the cluster, once they count as down.
	evacuated = 0.05
)

// A pilot applies a policy's moves within limits: people's levers come first, no worker gets a
// forbidden partition, and if half of the cluster falls silent at once, nothing moves, because the
// balancer itself may be cut off.
type pilot struct {
	allowed [][]int
	workers []Observed
	owners  []int // after the moves so far
	report  *Report
	levers  clusters.Levers
	silent  []bool // silent with so many others that none counts as down

	room  []float64 // capacity of each worker, if known
	load  []float64 // weight of its partitions
	moved map[int]bool
	moves []Move

	closed map[int]bool // workers that get nothing because people drain them, if the policy does not know
}

// newPilot prepares to steer.
func newPilot(o *Observation, allowed [][]int, r *Report, levers clusters.Levers) *pilot {
	s := &pilot{
		allowed: allowed, workers: o.Workers, owners: slices.Clone(o.Owners), report: r, levers: levers,
		silent: make([]bool, len(o.Workers)), room: make([]float64, len(o.Workers)), load: make([]float64, len(o.Workers)),
		moved: map[int]bool{},
	}
	known, sum := 0.0, 0.0
	for i, w := range o.Workers {
		s.room[i] = w.Capacity
		if w.Capacity > 0 {
			known, sum = known+1, sum+w.Capacity
		}
	}
	for i := range s.room {
		if s.room[i] <= 0 {
			s.room[i] = 1
			if known > 0 {
				s.room[i] = sum / known
			}
		}
	}
	for p, w := range s.owners {
		if w >= 0 {
			s.load[w] += s.weight(p)
		}
	}
	return s
}

// weight returns the weight of a partition. An unknown one has the mean weight of the others, but
// more than zero.
func (s *pilot) weight(p int) float64 {
	if x := s.report.Weights[p]; !math.IsNaN(x) {
		return clean(x) + 1e-3
	}
	return 1
}

func (s *pilot) banned(w int) bool { return has(s.levers.Banned, s.workers[w].ID) }

func has[K comparable, V any](m map[K]V, key K) bool { _, ok := m[key]; return ok }

// move makes a move, if it is possible.
func (s *pilot) move(p, to int, reason string) bool {
	if to < 0 || s.moved[p] || s.owners[p] == to {
		return false
	}
	if from := s.owners[p]; from >= 0 {
		s.load[from] -= s.weight(p)
	}
	s.load[to] += s.weight(p)
	s.owners[p], s.moved[p] = to, true
	s.moves = append(s.moves, Move{Partition: p, To: to, Reason: reason})
	return true
}

// best returns the worker with the most room for a partition, or -1. It prefers one that stays up,
// then one that is about to stop. If no worker has the partition yet, any will do.
func (s *pilot) best(p int) int {
	tests := []func(w int) bool{
		func(w int) bool { return s.report.Up[w] && !s.report.Draining[w] },
		func(w int) bool { return s.report.Up[w] },
		func(w int) bool { return s.owners[p] < 0 },
	}
	for _, ok := range tests {
		best, least := -1, math.Inf(1)
		for _, w := range s.allowed[p] {
			if s.banned(w) || w == s.owners[p] || !ok(w) {
				continue
			}
			if filled := (s.load[w] + s.weight(p)) / s.room[w]; filled < least {
				best, least = w, filled
			}
		}
		if best >= 0 {
			return best
		}
	}
	return -1
}

// heaviest returns the chosen partitions, heaviest first.
func (s *pilot) heaviest(chosen func(p, owner int) bool) []int {
	var out []int
	for p, w := range s.owners {
		if chosen(p, w) {
			out = append(out, p)
		}
	}
	slices.SortStableFunc(out, func(a, b int) int { return cmp.Compare(s.weight(b), s.weight(a)) })
	return out
}

// must makes the moves that do not depend on the policy.
func (s *pilot) must() {
	for _, p := range s.heaviest(func(_, w int) bool { return w < 0 }) {
		s.move(p, s.best(p), "nobody had it")
	}
	for _, p := range slices.Sorted(maps.Keys(s.levers.Pins)) {
		if p >= len(s.owners) {
			continue
		}
		to := s.pinned(p)
		if to >= 0 && s.report.Up[to] && slices.Contains(s.allowed[p], to) && !s.banned(to) {
			s.move(p, to, "pinned: "+s.levers.Pins[p].Reason)
		}
	}
	for _, p := range s.heaviest(func(_, w int) bool { return w >= 0 && s.banned(w) }) {
		s.move(p, s.best(p), fmt.Sprintf("worker %s is banned: %s", s.workers[s.owners[p]].ID,
			s.levers.Banned[s.workers[s.owners[p]].ID].Reason))
	}
	left := int(math.Ceil(corrected * float64(len(s.owners))))
	for _, p := range s.heaviest(func(p, w int) bool { return w >= 0 && !slices.Contains(s.allowed[p], w) }) {
		if left == 0 {
			break
		}
		if s.move(p, s.best(p), fmt.Sprintf("the map does not let worker %s hold it any more", s.workers[s.owners[p]].ID)) {
			left--
		}
	}
}

// drain moves partitions off the workers that people drain, heaviest first and a few at a time, for
// policies that do not know drains. These workers get no others. As in the article, such policies
// ignore a worker's own announcement of a stop.
func (s *pilot) drain(ids []string) {
	s.closed = map[int]bool{}
	for _, id := range ids {
		s.closed[slices.IndexFunc(s.workers, func(w Observed) bool { return w.ID == id })] = true
	}
	left := int(math.Ceil(emptied * float64(len(s.owners))))
	for _, p := range s.heaviest(func(p, w int) bool { return s.closed[w] && s.report.Up[w] && s.pinned(p) != w }) {
		to := s.best(p)
		if left == 0 {
			break
		}
		if to >= 0 && !s.report.Draining[to] && s.move(p, to, fmt.Sprintf("worker %s is draining", s.workers[s.owners[p]].ID)) {
			left--
		}
	}
}

// pinned returns the worker to which a partition is pinned, or -1.
func (s *pilot) pinned(p int) int {
	pin, ok := s.levers.Pins[p]
	if !ok {
		return -1
	}
	return slices.IndexFunc(s.workers, func(w Observed) bool { return w.ID == pin.Worker })
}

// may makes the policy's moves that are allowed.
func (s *pilot) may(moves []Move, evacuate int) {
	for _, m := range moves {
		if m.Partition < 0 || m.Partition >= len(s.owners) || m.To < 0 || m.To >= len(s.workers) {
			continue
		}
		from := s.owners[m.Partition]
		switch {
		case !slices.Contains(s.allowed[m.Partition], m.To), !s.report.Up[m.To], s.banned(m.To), s.closed[m.To]:
			continue
		case from >= 0 && s.pinned(m.Partition) == from && s.report.Up[from]:
			continue
		case from >= 0 && s.silent[from]:
			if evacuate == 0 {
				continue
			}
			evacuate--
		}
		s.move(m.Partition, m.To, m.Reason)
	}
}
