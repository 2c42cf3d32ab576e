package shardmap

import (
	"crypto/rand"
	"hash/maphash"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
)

// An index has the placements of a map in memory. It may lag behind the map by the time of a
// notification, which is harmless because of the fences.
type index struct {
	id     string // new for each index, so that positions of another one are recognized
	layout layout
	seed   maphash.Seed
	keys   atomic.Pointer[table] // placements of keys
	slots  []atomic.Pointer[Placement]
	count  atomic.Int64 // of keys

	mu      sync.Mutex // guards the following, and changes of keys
	feed    []Placement
	dropped int64         // number of changes before the first of feed
	moved   chan struct{} // closed when feed grows
	ranges  atomic.Pointer[[]*Placement]
}

// A table finds placements by key without a lock. It only grows: a full one is replaced by one of
// twice its size.
type table struct {
	slots []atomic.Pointer[Placement] // a power of two, at least half of them empty
}

func newTable(size int) *table { return &table{make([]atomic.Pointer[Placement], size)} }

// firstTable is the size of an empty one.
const firstTable = 64

// slot returns the slot of a key.
func (t *table) slot(hash uint64, key string) (*atomic.Pointer[Placement], *Placement) {
	for i := hash; ; i++ {
		at := &t.slots[i&uint64(len(t.slots)-1)]
		if p := at.Load(); p == nil || p.Key == key {
			return at, p
		}
	}
}

func newIndex(l layout) *index {
	x := &index{id: rand.Text()[:8], layout: l, seed: maphash.MakeSeed(), moved: make(chan struct{})}
	x.keys.Store(newTable(firstTable))
	if l.strategy == "slots" {
		x.slots = make([]atomic.Pointer[Placement], l.slots)
	}
	x.ranges.Store(&[]*Placement{})
	return x
}

// find returns the longest placement of a key, or nil.
func (x *index) find(key string) *Placement {
	p := x.longest(key)
	if p != nil && p.Key == key {
		return p
	}
	if p == nil {
		switch x.layout.strategy {
		case "slots":
			p = x.slots[x.layout.hash(key)&uint64(len(x.slots)-1)].Load()
		case "range":
			p = x.stretch(firstPart(key))
		}
	}
	// A placement that was split off just now was there before the wider one changed.
	if again := x.longest(key); again != nil {
		return again
	}
	return p
}

// longest returns the placement of a key, or of its longest prefix with a placement.
func (x *index) longest(key string) *Placement {
	if x.count.Load() == 0 {
		return nil
	}
	for k, ok := key, true; ok; k, ok = cutLast(k) {
		if p := x.exact(k); p != nil && p.State != Merged {
			return p
		}
	}
	return nil
}

// standing orders changes: 0 for unknown placements, 1 for others.
func (x *index) standing(key string) int {
	switch key[0] {
	case '#':
		return 1
	case '[':
		for _, p := range *x.ranges.Load() {
			if p.Key == key && p.State != Merged {
				return 1
			}
		}
		return 0
	}
	if p := x.exact(key); p != nil && p.State != Merged {
		return 1
	}
	return 0
}

// merged reports whether a placement of a key has ended after an epoch, because its rows belong to
// a wider one again. The wider one has its own epoch, which may be lower.
func (x *index) merged(key string, epoch int64) bool {
	for k, ok := key, true; ok; k, ok = cutLast(k) {
		if p := x.exact(k); p != nil && p.State == Merged && p.Epoch > epoch {
			return true
		}
	}
	return slices.ContainsFunc(*x.ranges.Load(), func(p *Placement) bool {
		return p.State == Merged && p.Epoch > epoch && !x.layout.below(firstPart(key), p.Key[1:])
	})
}

func (x *index) exact(key string) *Placement {
	_, p := x.keys.Load().slot(maphash.String(x.seed, key), key)
	return p
}

// putKey adds the placement of a key unless a later one is known.
func (x *index) putKey(p Placement) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	// Under the lock. Readers need no lock: they use the former table while a larger one is filled.
	t := x.keys.Load()
	at, old := t.slot(maphash.String(x.seed, p.Key), p.Key)
	if !newer(p, old) {
		return false
	}
	if old == nil {
		if n := int(x.count.Add(1)); 2*n > len(t.slots) {
			t = x.grown(t)
			at, _ = t.slot(maphash.String(x.seed, p.Key), p.Key)
			defer x.keys.Store(t)
		}
	}
	at.Store(&p)
	return true
}

// grown returns a copy of a table with twice the size.
func (x *index) grown(t *table) *table {
	twice := newTable(2 * len(t.slots))
	for i := range t.slots {
		if p := t.slots[i].Load(); p != nil {
			at, _ := twice.slot(maphash.String(x.seed, p.Key), p.Key)
			at.Store(p)
		}
	}
	return twice
}

// stretch returns the stretch with the greatest lower bound that is not above a key.
func (x *index) stretch(key string) *Placement {
	ranges := *x.ranges.Load()
	i, _ := slices.BinarySearchFunc(ranges, key, func(p *Placement, key string) int {
		if x.layout.below(key, p.Key[1:]) {
			return 1
		}
		return -1
	})
	for ; i > 0; i-- {
		if p := ranges[i-1]; p.State != Merged {
			return p
		}
	}
	return nil
}

// put adds a placement unless a later one is known, and notifies watchers.
func (x *index) put(p Placement, tell bool) {
	switch p.Key[0] {
	case '#':
		i, err := strconv.Atoi(p.Key[1:])
		if err != nil || i >= len(x.slots) || !newer(p, x.slots[i].Load()) {
			return
		}
		x.slots[i].Store(&p)
	case '[':
		if !x.putStretch(p) {
			return
		}
	default:
		if !x.putKey(p) {
			return
		}
	}
	if tell {
		x.publish(p)
	}
}

// newer reports whether p has news compared to old.
func newer(p Placement, old *Placement) bool { return old == nil || p != *old && p.Epoch >= old.Epoch }

func (x *index) putStretch(p Placement) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	ranges := slices.Clone(*x.ranges.Load())
	i := slices.IndexFunc(ranges, func(q *Placement) bool { return q.Key == p.Key })
	switch {
	case i >= 0 && !newer(p, ranges[i]):
		return false
	case i >= 0:
		ranges[i] = &p
	default:
		ranges = append(ranges, &p)
		slices.SortFunc(ranges, func(a, b *Placement) int {
			if x.layout.below(a.Key[1:], b.Key[1:]) {
				return -1
			}
			return 1
		})
	}
	x.ranges.Store(&ranges)
	return true
}

// feedSize is how many changes a watcher may be behind.
const feedSize = 4096

func (x *index) publish(p Placement) {
	x.mu.Lock()
	defer x.mu.Unlock()
	// Half is dropped at a time, so that most changes need no copy.
	if len(x.feed) >= 2*feedSize {
		x.dropped += feedSize
		x.feed = slices.Clone(x.feed[feedSize:])
	}
	x.feed = append(x.feed, p)
	close(x.moved)
	x.moved = make(chan struct{})
}

// since returns the changes after a position, the position after them, and a channel that is closed
// at the next one. ok is false if they are no longer kept.
func (x *index) since(position int64) (changes []Placement, next int64, more <-chan struct{}, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	next = x.dropped + int64(len(x.feed))
	// A position ahead of the feed is invalid.
	if position < x.dropped || position > next {
		return nil, next, x.moved, false
	}
	return slices.Clone(x.feed[position-x.dropped:]), next, x.moved, true
}

// changes returns a channel that is closed at the next change.
func (x *index) changes() <-chan struct{} {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.moved
}

// size returns the number of known placements.
func (x *index) size() int64 {
	return x.count.Load() + int64(len(*x.ranges.Load())) + int64(len(x.slots))
}
