package clock

import (
	"sync"
	"sync/atomic"
	"time"
)

// A Clock knows the store's time from beats, and from the monotonic time since then. So if the
// node's clock is set in between, the node neither fires triggers early nor ends waits early.
//
// An answer that takes a second says what the time was at some moment of that second. So the clock
// keeps two bounds, which all answers together make narrow. By the earliest possible time, what is
// due is certainly due. A wait that begins at the latest possible time is never too short.
type Clock struct {
	Source func() time.Time // of a [Virtual]; nil means the machine's clock
	told   atomic.Pointer[reading]
	Known  chan struct{} // closed when the store's time is known
	once   sync.Once
}

// A reading is the store's time at a moment of the node's.
type reading struct {
	earliest, latest time.Time
	at               time.Time
}

// clockDrift bounds the drift of two machines' clocks: at most one second in this many.
const clockDrift = 1000

// Now returns the earliest possible time at the store, or the node's own before the first beat. It
// does not go back, unless the store's clock was set.
func (c *Clock) Now() time.Time { now, _ := c.bounds(); return now }

// Latest returns the latest possible time at the store.
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

// Set takes the store's time. asked and told are the node's times of the question and the answer.
// If the bounds contradict earlier ones, a clock was set.
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
