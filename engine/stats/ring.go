package stats

import (
	"iter"
	"time"
)

// A ring has what was counted in the last slots of time, all of one width. Only slots in which something was counted take memory. It is
// not safe for concurrent use.
type ring[T any] struct {
	width time.Duration
	slots []*ringSlot[T]
}

type ringSlot[T any] struct {
	number int64 // since the Unix epoch; any other than that of its time is stale
	counts T
}

func newRing[T any](width time.Duration, slots int) ring[T] {
	return ring[T]{width, make([]*ringSlot[T], slots)}
}

// at returns the counts of the present slot.
func (r *ring[T]) at(now time.Time) *T {
	number := now.UnixNano() / int64(r.width)
	s := &r.slots[number%int64(len(r.slots))]
	if *s == nil {
		*s = &ringSlot[T]{number: number}
	} else if (*s).number != number {
		**s = ringSlot[T]{number: number}
	}
	return &(*s).counts
}

// last returns the counts of n slots, up to the one that is some slots before the present one. Slots that are too old for the ring lose
// their memory.
func (r *ring[T]) last(n, before int, now time.Time) iter.Seq[*T] {
	present := now.UnixNano() / int64(r.width)
	last := present - int64(before)
	return func(yield func(*T) bool) {
		for i, s := range r.slots {
			if s == nil {
				continue
			}
			if s.number <= present-int64(len(r.slots)) {
				r.slots[i] = nil
				continue
			}
			if s.number > last || s.number <= last-int64(n) {
				continue
			}
			if !yield(&s.counts) {
				return
			}
		}
	}
}
