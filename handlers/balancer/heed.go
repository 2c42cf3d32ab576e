package balancer

import (
	"math"
	"slices"
)

// What a worker is expected to drop follows from its load and its capacity, and the latter is
// learned from how busy it says that it was: nobody may have told that, or it may be wrong, or
// its requests may come in bursts that last less than a step. What it reports as dropped is a
// fact: while a worker drops, what it serves is what it can do.

const (
	heedTime   = 60   // seconds in a third of whose reports it must have dropped
	heedSoon   = 7    // reports that have to be there
	mostlyWarm = 0.3  // extra work for cold caches, as a share, up to which drops tell something
	heedForget = 1800 // seconds without drops in which what a worker is taken to be able to do doubles
)

// notice keeps what a worker has shown to be able to do in a step: what it served if it has
// dropped some, or else no bound at all.
func (m *machine) notice(told, served, dropped, step float64) {
	if m.surge > mostlyWarm*m.now {
		return // its caches are to blame, and get warm
	}
	shown, share := math.Inf(1), served/max(served+dropped, 1e-9)/m.fresh
	if dropped > 0.001*served {
		shown = told * share
	}
	m.ceiling = max(m.ceiling, told*share)
	most := max(1, int(math.Round(heedTime/step)))
	if m.shown = append(m.shown, shown); len(m.shown) > most {
		m.shown = m.shown[len(m.shown)-most:]
	}
}

// heed brings what a worker is taken to be able to do in line with what it drops.
func (m *machine) heed(step float64) {
	shown := math.Inf(1) // a burst does not count
	if len(m.shown) >= min(heedSoon, max(1, int(heedTime/step))) {
		s := slices.Sorted(slices.Values(m.shown))
		shown = s[len(s)/3]
	}
	switch {
	case shown < m.ceiling:
		m.ceiling = shown
	case !math.IsInf(shown, 1):
		m.ceiling += (1 - math.Exp2(-step/capacityHalf)) * (shown - m.ceiling)
	default:
		m.ceiling *= math.Exp2(step / heedForget)
	}
}

// room is what a worker can do, by how busy it was and by what it has dropped.
func (m *machine) room() float64 { return max(min(m.capacity, m.ceiling), 1e-9) }
