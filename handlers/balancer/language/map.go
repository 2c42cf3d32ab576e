package language

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"procaas/dsl/expr"
)

// defaultReplicas is how many workers may have a partition if the file does not say.
const defaultReplicas = 3

// ringPoints is how many points a worker has on the ring. With few points, some workers would get much more
// than others.
const ringPoints = 64

// Holders returns for each partition the indexes of the workers that may have it. For a rule, the most
// preferred worker comes first. The result depends on the ids and zones of the workers, not on their order. So
// a worker that joins or leaves changes little.
func Holders(c *Cluster, workers []ClusterWorker) [][]int {
	m := c.Map
	rule, replicas, seed := "all", defaultReplicas, 0
	if m != nil {
		if c.Held != nil {
			return heldBy(c, workers)
		}
		rule, replicas, seed = cmp.Or(m.Rule, "random"), cmp.Or(m.Replicas, defaultReplicas), m.Seed
	}
	out := make([][]int, c.Partitions)
	switch rule {
	case "all":
		for p := range out {
			out[p] = make([]int, len(workers))
			for i := range workers {
				out[p][i] = i
			}
		}
	case "ring":
		ring := newRing(workers, seed)
		for p := range out {
			out[p] = ring.from(drawn(seed, "partition", strconv.Itoa(p)), replicas, len(workers))
		}
	default:
		r := newRanking(workers, replicas, rule == "zone")
		for p := range out {
			out[p] = r.first(drawing(seed).and(strconv.Itoa(p)))
		}
	}
	return out
}

// drawn returns a pseudo-random number that depends only on the seed and the words.
func drawn(seed int, words ...string) uint64 {
	d := drawing(seed)
	for _, w := range words {
		d = d.and(w)
	}
	return d.number()
}

// A draw is the 64-bit FNV-1a hash of a seed and of words. A map of a large cluster takes millions of
// them, so equal beginnings are hashed once.
type draw uint64

func drawing(seed int) draw {
	const offset = 14695981039346656037
	return draw(offset).add(strconv.Itoa(seed))
}

func (d draw) and(word string) draw { return d.add("/").add(word) }

func (d draw) add(text string) draw {
	const prime = 1099511628211
	for i := range len(text) {
		d = (d ^ draw(text[i])) * prime
	}
	return d
}

// number spreads the last bytes of a text, which change few bits of FNV.
func (d draw) number() uint64 {
	x := uint64(d)
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// A ranking finds the workers that a partition prefers. It keeps as many of each zone as a partition
// may have, so it need not sort all workers for each partition.
type ranking struct {
	workers  []ClusterWorker
	replicas int
	zone     []int    // of each worker; all 0 if zones do not matter
	best     [][]pick // of each zone; reused
}

// A pick is a worker with a partition's preference for it.
type pick struct {
	preference uint64
	worker     int
	round      int // how many workers of its zone are preferred to it
}

func newRanking(workers []ClusterWorker, replicas int, zones bool) *ranking {
	r := &ranking{workers: workers, replicas: replicas, zone: make([]int, len(workers))}
	known := map[string]int{}
	for i, w := range workers {
		if !zones {
			continue
		}
		if _, ok := known[w.Zone]; !ok {
			known[w.Zone] = len(known)
		}
		r.zone[i] = known[w.Zone]
	}
	r.best = make([][]pick, max(1, len(known)))
	return r
}

// compare orders workers by preference, the highest first.
func (r *ranking) compare(a, b pick) int {
	if a.preference != b.preference {
		return cmp.Compare(b.preference, a.preference)
	}
	return cmp.Compare(r.workers[a.worker].ID, r.workers[b.worker].ID)
}

// keep puts a worker into those of its zone, which stay in order.
func (r *ranking) keep(x pick) {
	best := r.best[r.zone[x.worker]]
	at := len(best)
	for at > 0 && r.compare(x, best[at-1]) < 0 {
		at--
	}
	if at == r.replicas {
		return
	}
	if len(best) == r.replicas {
		best = best[:len(best)-1]
	}
	r.best[r.zone[x.worker]] = slices.Insert(best, at, x)
}

// first returns the workers of a partition: the best of each zone in the order of preference, then the
// second of each zone, and so on.
func (r *ranking) first(partition draw) []int {
	for z := range r.best {
		r.best[z] = r.best[z][:0]
	}
	for i, w := range r.workers {
		r.keep(pick{preference: partition.and(w.ID).number(), worker: i})
	}
	var all []pick
	for _, best := range r.best {
		for round := range best {
			best[round].round = round
		}
		all = append(all, best...)
	}
	slices.SortFunc(all, func(a, b pick) int { return cmp.Or(cmp.Compare(a.round, b.round), r.compare(a, b)) })
	out := make([]int, min(r.replicas, len(all)))
	for i := range out {
		out[i] = all[i].worker
	}
	return out
}

// A ring has the points of workers, in order.
type ring []ringPlace

type ringPlace struct {
	at     uint64
	worker int
	id     string
}

func newRing(workers []ClusterWorker, seed int) ring {
	var r ring
	for i, w := range workers {
		for n := range ringPoints {
			r = append(r, ringPlace{drawn(seed, "worker", w.ID, strconv.Itoa(n)), i, w.ID})
		}
	}
	slices.SortFunc(r, func(a, b ringPlace) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.id, b.id))
	})
	return r
}

// from returns the next different workers after a point.
func (r ring) from(at uint64, replicas, workers int) []int {
	var out []int
	first, _ := slices.BinarySearchFunc(r, at, func(p ringPlace, at uint64) int { return cmp.Compare(p.at, at) })
	for i := 0; i < len(r) && len(out) < min(replicas, workers); i++ {
		if w := r[(first+i)%len(r)].worker; !slices.Contains(out, w) {
			out = append(out, w)
		}
	}
	return out
}

// heldBy reads the map for the given workers. Workers that are not in it have no partitions.
func heldBy(c *Cluster, workers []ClusterWorker) [][]int {
	out := make([][]int, c.Partitions)
	for i, w := range workers {
		held, _ := partitionsOf(c.Held.Get(w.ID), c.Partitions)
		for _, p := range held {
			out[p] = append(out[p], i)
		}
	}
	return out
}

// partitionsOf parses a list of numbers and ranges of partitions. problem says what is wrong, or is "".
func partitionsOf(v *expr.Value, partitions int) (held []int, problem string) {
	seen := make([]bool, partitions)
	for _, item := range v.Items() {
		first, last, ok := partitionRange(item)
		if !ok || first > last || first < 0 || last >= partitions {
			return held, fmt.Sprintf("want partitions from 0 to %d, such as 7 or \"0-99\", have %s", partitions-1, item.Describe())
		}
		for p := first; p <= last; p++ {
			if !seen[p] {
				seen[p] = true
				held = append(held, p)
			}
		}
	}
	return held, ""
}

func partitionRange(v *expr.Value) (first, last int, ok bool) {
	data, _ := v.Literal()
	switch x := data.(type) {
	case int:
		return x, x, true
	case string:
		from, to, _ := strings.Cut(x, "-")
		first, err1 := strconv.Atoi(from)
		last, err2 := strconv.Atoi(to)
		return first, last, err1 == nil && err2 == nil
	}
	return 0, 0, false
}

// BestLoad returns the load of the busiest worker, relative to its capacity, in the best distribution of
// partitions over these workers. It assumes that all partitions weigh the same and can be divided. 1 means that
// all workers have the same load. down reports which workers are missing. It computes a maximum flow, so no
// balancer can do better. Partitions without a possible holder are left out.
func BestLoad(holders [][]int, capacity []float64, down func(worker int) bool) float64 {
	total, weight := 0.0, 0.0
	for i, c := range capacity {
		if !down(i) {
			total += c
		}
	}
	var parts [][]int
	for _, h := range holders {
		var up []int
		for _, i := range h {
			if !down(i) {
				up = append(up, i)
			}
		}
		if len(up) > 0 {
			slices.Sort(up)
			parts = append(parts, up)
			weight++
		}
	}
	if weight == 0 || total == 0 {
		return 1
	}
	even := weight / total
	low, high := 1.0, 1.0
	for !fits(parts, capacity, even*high) {
		low = high
		high *= 2
		if high > 1e6 {
			return high
		}
	}
	for high-low > 0.005 {
		middle := (low + high) / 2
		if fits(parts, capacity, even*middle) {
			high = middle
		} else {
			low = middle
		}
	}
	return high
}

// fits reports whether all partitions fit if each worker has room for its capacity times load. Partitions with
// the same workers are one group.
func fits(parts [][]int, capacity []float64, load float64) bool {
	groups := map[string]int{}
	var holders [][]int
	var rest []float64
	for _, h := range parts {
		key := fmt.Sprint(h)
		g, known := groups[key]
		if !known {
			g = len(holders)
			groups[key] = g
			holders, rest = append(holders, h), append(rest, 0)
		}
		rest[g]++
	}
	f := &mapFlow{holders: holders, rest: rest, free: make([]float64, len(capacity)), on: make([]map[int]float64, len(capacity))}
	for i, c := range capacity {
		f.free[i], f.on[i] = c*load, map[int]float64{}
	}
	return f.run()
}

// A mapFlow is the current state of a maximum flow from groups of partitions to workers.
type mapFlow struct {
	holders [][]int
	rest    []float64 // per group, what is not placed
	free    []float64 // per worker
	on      []map[int]float64

	levels []int // per worker, the distance from unplaced work
}

// slight is an amount of work that is ignored.
const slight = 1e-7

// run places as much as fits and reports whether everything was placed. It pushes along shortest paths, level
// by level, so it needs few rounds.
func (f *mapFlow) run() bool {
	for g, h := range f.holders {
		for _, i := range h {
			f.put(g, i, min(f.rest[g], f.free[i]))
		}
	}
	for rounds := 0; rounds <= 2*len(f.free)+2; rounds++ {
		lacking := false
		for _, r := range f.rest {
			lacking = lacking || r > slight
		}
		if !lacking {
			return true
		}
		if !f.level() {
			return false
		}
		for g := range f.rest {
			if f.rest[g] > slight {
				f.rest[g] -= f.push(g, f.rest[g], 0, make([]bool, len(f.free)))
			}
		}
	}
	return false
}

func (f *mapFlow) put(g, i int, x float64) {
	if x > 0 {
		f.rest[g] -= x
		f.free[i] -= x
		f.on[i][g] += x
	}
}

// level computes how far each worker is from unplaced work. It returns false if no worker with room is
// reachable.
func (f *mapFlow) level() bool {
	f.levels = make([]int, len(f.free))
	for i := range f.levels {
		f.levels[i] = math.MaxInt
	}
	var queue []int
	reach := func(g, level int) {
		for _, i := range f.holders[g] {
			if f.levels[i] == math.MaxInt {
				f.levels[i] = level
				queue = append(queue, i)
			}
		}
	}
	for g, r := range f.rest {
		if r > slight {
			reach(g, 1)
		}
	}
	found := false
	for len(queue) > 0 {
		i := queue[0]
		queue = queue[1:]
		found = found || f.free[i] > slight
		for g, x := range f.on[i] {
			if x > slight {
				reach(g, f.levels[i]+1)
			}
		}
	}
	return found
}

// push places up to x of a group on workers of the next level, and moves other work on. It returns how much it
// placed.
func (f *mapFlow) push(g int, x float64, level int, dead []bool) (placed float64) {
	for _, i := range f.holders[g] {
		if f.levels[i] != level+1 || dead[i] {
			continue
		}
		if room := min(x-placed, f.free[i]); room > 0 {
			f.free[i] -= room
			f.on[i][g] += room
			placed += room
		}
		for _, other := range sortedGroups(f.on[i]) {
			if x-placed <= slight {
				break
			}
			if other == g {
				continue
			}
			moved := f.push(other, min(x-placed, f.on[i][other]), level+1, dead)
			f.on[i][other] -= moved
			f.on[i][g] += moved
			placed += moved
		}
		if x-placed <= slight {
			return placed
		}
		dead[i] = true
	}
	return placed
}

func sortedGroups(on map[int]float64) []int {
	out := make([]int, 0, len(on))
	for g, x := range on {
		if x > slight {
			out = append(out, g)
		}
	}
	slices.Sort(out)
	return out
}
