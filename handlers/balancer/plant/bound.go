package plant

import "slices"

// bound returns how many requests of this step no assignment could have served, even if partitions
// could be split over time and were always warm. It is what is left by a maximum flow from
// partitions through the map to the workers that are up.
func (w *world) bound(at float64) float64 {
	if w.easy(at) {
		return 0
	}
	free := make([]float64, len(w.workers))
	for i := range free {
		if w.workers[i].up {
			free[i] = w.speed(i, at)
		}
	}
	f := newFlow(w, free)
	f.push()
	lost := 0.0
	for p, rest := range f.rest {
		rest += f.over[p]
		if rest > 1e-6 {
			lost += rest / w.demand.cost[p]
		}
	}
	return lost
}

// easy reports whether the current assignment serves everything once it is warm.
func (w *world) easy(at float64) bool {
	work := make([]float64, len(w.workers))
	for p := range w.parts {
		work[w.parts[p].worker] += w.offered[p] * w.demand.cost[p]
	}
	for i, x := range work {
		if x > 0 && (!w.workers[i].up || x > w.speed(i, at)) {
			return false
		}
	}
	return true
}

// A flow is a maximum flow in progress.
type flow struct {
	w    *world
	free []float64  // what each worker can still do
	rest []float64  // what is left of each partition
	over []float64  // what of each is too much for any worker
	on   [][]placed // what is placed on each worker

	seenWorker []bool // on the current search path
	seenPart   []bool
}

// A placed is work for a partition that is placed on a worker.
type placed struct {
	p    int
	work float64
}

func newFlow(w *world, free []float64) *flow {
	f := &flow{
		w: w, free: slices.Clone(free), rest: make([]float64, len(w.parts)), over: make([]float64, len(w.parts)),
		on:         make([][]placed, len(free)),
		seenWorker: make([]bool, len(free)), seenPart: make([]bool, len(w.parts)),
	}
	for p := range f.rest {
		most := 0.0
		for _, i := range w.allowed[p] {
			most = max(most, free[i])
		}
		work := w.offered[p] * w.demand.cost[p]
		f.rest[p] = min(work, most)
		f.over[p] = work - f.rest[p]
		// Start where it is, so that little has to move.
		f.place(p, w.parts[p].worker, f.rest[p])
	}
	for p := range f.rest {
		for _, i := range w.allowed[p] {
			f.place(p, i, f.rest[p])
		}
	}
	return f
}

// place places as much of a partition on a worker as fits.
func (f *flow) place(p, i int, most float64) float64 {
	x := min(most, f.free[i])
	if x <= 0 {
		return 0
	}
	f.free[i] -= x
	f.rest[p] -= x
	for k := range f.on[i] {
		if f.on[i][k].p == p {
			f.on[i][k].work += x
			return x
		}
	}
	f.on[i] = append(f.on[i], placed{p, x})
	return x
}

// least is work that is not worth a path.
const least = 1e-6

// push searches paths from unplaced work to free workers until there are none.
func (f *flow) push() {
	for p := range f.rest {
		for f.rest[p] > least {
			clear(f.seenWorker)
			clear(f.seenPart)
			if f.path(p, f.rest[p]) <= least {
				break
			}
		}
	}
}

// path makes room for a part of a partition by moving others on, and returns how much was placed.
func (f *flow) path(p int, most float64) float64 {
	f.seenPart[p] = true
	for _, i := range f.w.allowed[p] {
		if f.seenWorker[i] || !f.w.workers[i].up {
			continue
		}
		if x := f.place(p, i, most); x > 0 {
			return x
		}
		f.seenWorker[i] = true
		for k := 0; k < len(f.on[i]); k++ {
			q := f.on[i][k]
			if f.seenPart[q.p] || q.work <= least {
				continue
			}
			moved := f.path(q.p, min(q.work, most))
			if moved <= least {
				continue
			}
			// It was placed elsewhere in addition, so remove it here.
			f.rest[q.p] += moved
			f.on[i][k].work -= moved
			f.free[i] += moved
			return f.place(p, i, moved)
		}
	}
	return 0
}
