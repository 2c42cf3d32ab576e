package shardmap

import (
	"crypto/rand"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// An index has the placements of a map in memory, without their transfers and targets. It may lag
// behind the map by the time of a notification, which is harmless because of the fences.
type index struct {
	id     string // new for each index, so that positions of another one are recognized
	name   string // of the map
	layout layout
	keys   *keyTable // placements of keys
	slots  []atomic.Pointer[Placement]
	seen   sync.Map // what was noted and is not in keys: slots, stretches, and keys that memory does not have yet

	mu      sync.Mutex // guards the following
	feed    []Placement
	dropped int64         // number of changes before the first of feed
	moved   chan struct{} // closed when feed grows
	ranges  atomic.Pointer[[]*Placement]
}

func newIndex(shardMap string, l layout) *index {
	x := &index{id: rand.Text()[:8], name: shardMap, layout: l, keys: newKeyTable(), moved: make(chan struct{})}
	if l.strategy == "slots" {
		x.slots = make([]atomic.Pointer[Placement], l.slots)
	}
	x.ranges.Store(&[]*Placement{})
	return x
}

// find returns the longest placement of a key. ok is false if there is none.
func (x *index) find(key string) (p Placement, ok bool) {
	p, ok = x.longest(key)
	if ok && p.Key == key {
		return p, true
	}
	if !ok {
		var part *Placement
		switch x.layout.strategy {
		case "slots":
			part = x.slots[x.layout.hash(key)&uint64(len(x.slots)-1)].Load()
		case "range":
			part = x.stretch(firstPart(key))
		}
		if part != nil {
			p, ok = *part, true
		}
	}
	// A placement that was split off just now was there before the wider one changed.
	if again, found := x.longest(key); found {
		return again, true
	}
	return p, ok
}

// longest returns the placement of a key, or of its longest prefix with a placement.
func (x *index) longest(key string) (Placement, bool) {
	if x.keys.count.Load() == 0 {
		return Placement{}, false
	}
	for k, more := key, true; more; k, more = cutLast(k) {
		if p, ok := x.exact(k); ok && p.State != Merged {
			return p, true
		}
	}
	return Placement{}, false
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
	if p, ok := x.exact(key); ok && p.State != Merged {
		return 1
	}
	return 0
}

// merged reports whether a placement of a key has ended after an epoch, because its rows belong to
// a wider one again. The wider one has its own epoch, which may be lower.
func (x *index) merged(key string, epoch int64) bool {
	for k, more := key, true; more; k, more = cutLast(k) {
		if p, ok := x.exact(k); ok && p.State == Merged && p.Epoch > epoch {
			return true
		}
	}
	return slices.ContainsFunc(*x.ranges.Load(), func(p *Placement) bool {
		return p.State == Merged && p.Epoch > epoch && !x.layout.below(firstPart(key), p.Key[1:])
	})
}

func (x *index) exact(key string) (Placement, bool) {
	p, ok := x.keys.get(key)
	p.Map = x.name
	return p, ok
}

// note marks a placement as asked for. It reports whether it was not marked before.
func (x *index) note(placement string) bool {
	if first, known := x.keys.note(placement); known {
		return first
	}
	_, known := x.seen.LoadOrStore(strings.Clone(placement), nil) // it may be a part of a request
	return !known
}

// noted reports whether a placement is marked.
func (x *index) noted(placement string) bool {
	if noted, known := x.keys.noted(placement); known {
		return noted
	}
	_, noted := x.seen.Load(placement)
	return noted
}

// forgetNotes removes all marks.
func (x *index) forgetNotes() {
	x.keys.forget()
	x.seen.Clear()
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
	p.Transfer, p.Target = "", ""
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
		if !x.keys.put(p) {
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
	return x.keys.count.Load() + int64(len(*x.ranges.Load())) + int64(len(x.slots))
}
