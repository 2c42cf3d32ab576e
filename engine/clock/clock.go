package clock

import (
	"sync"
	"sync/atomic"
	"time"
)

// A Clock tells the store's time by what beats told, and by what has passed since by the
// monotonic clock. So a node whose clock is set in between neither fires triggers early nor
// ends waits.
//
// An answer that takes a second says what time it was at some moment of that second. So the
// clock keeps two bounds, which all answers together make narrow: by the earliest time that it
// may be, what is due is due for certain; a wait that begins at the latest time that it may
// be is never cut short.
type Clock struct {
	Source func() time.Time // of a [Virtual]; nil for the machine's
	told   atomic.Pointer[reading]
	Known  chan struct{} // closed: the store's clock has been told
	once   sync.Once
}

// A reading is what the store's time was at a moment of the node's.
type reading struct {
	earliest, latest time.Time
	at               time.Time
}

// In a thousand seconds the clocks of two machines part by one at the most.
const clockDrift = 1000

// Now returns the earliest time that it may be at the store; the node's own before the first
// beat. It does not go back, unless the store's clock was set.
func (c *Clock) Now() time.Time { now, _ := c.bounds(); return now }

// Latest returns the latest time that it may be.
func (c *Clock) Latest() time.Time { _, latest := c.bounds(); return latest }

func (c *Clock) bounds() (earliest, latest time.Time) {
	if c.Source != nil {
		now := c.Source()
		return now, now
	}
	r := c.told.Load()
	if r == nil {
		now := time.Now()
		return now, now
	}
	d := time.Since(r.at)
	return r.earliest.Add(d), r.latest.Add(d)
}

// Set notes the store's time, asked and told at these times of the node's clock. Bounds that
// contradict those before say that a clock was set.
func (c *Clock) Set(store, asked, told time.Time) {
	next := &reading{earliest: store, latest: store.Add(told.Sub(asked)), at: told}
	if last := c.told.Load(); last != nil {
		d := told.Sub(last.at)
		drift := d / clockDrift
		earliest, latest := last.earliest.Add(d-drift), last.latest.Add(d+drift)
		if !earliest.After(next.latest) && !latest.Before(next.earliest) {
			next.earliest, next.latest = laterOf(earliest, next.earliest), earlierOf(latest, next.latest)
		}
	}
	c.told.Store(next)
	c.once.Do(func() { close(c.Known) })
}

func laterOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlierOf(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
