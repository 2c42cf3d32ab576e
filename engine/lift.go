package engine

import (
	"math"
	"time"
)

// This file lets runs go on gently that something has held back. They are many, and come at
// once: handlers that are not critical would be left out then, because their services have
// more to do than they bear, in a queue that only the hold has made.

// liftLeast is how often at least one run goes on, however busy its services are: new runs must
// not keep old ones back for ever.
const liftLeast = time.Second

// bears tells how many more runs may go on from a path at once, by what lies ahead of them
// besides one gate. It is half of what there is room for, since those on their way are not
// seen yet.
func (c *caller) bears(path, besides string) int {
	room := math.MaxInt
	for _, s := range c.e.library.Present().Ahead(path) {
		if c.isOff(s) {
			continue
		}
		room = min(room, c.e.guard.Spare(s, besides, c.controls, c.now))
	}
	if room > releaseMost {
		return releaseMost
	}
	return (room + 1) / 2
}

// least is how many of the runs that wait for what is lifted go on: most, but one at least
// once in a while.
func (n *node) least(cause string, most int) int {
	now := time.Now()
	if most == 0 && now.Sub(n.lifted[cause]) < liftLeast {
		return 0
	}
	if len(n.lifted) >= maxLifted {
		clear(n.lifted) // nobody tells when one is over
	}
	n.lifted[cause] = now
	return max(most, 1)
}

// maxLifted bounds the causes that are remembered.
const maxLifted = 1000
