package balancer

import (
	"math"
	"slices"
)

// The expected drops of a worker follow from its load and its capacity. Its capacity is learned
// from its reported busy time, which may be missing or wrong, and bursts may be shorter than a
// step. Reported drops are facts: while a worker drops, what it serves is its capacity.

const (
	heedTime   = 60   // seconds; it must have dropped in a third of these reports
	heedSoon   = 7    // fewest reports
	mostlyWarm = 0.3  // extra work for cold caches, as a share, up to which drops are meaningful
	heedForget = 1800 // seconds without drops in which the assumed capacity doubles
)

// notice records what a worker could do in a step: what it served if it dropped, or no bound.
func (m *machine) notice(told, served, dropped, step float64) {
	if m.surge > mostlyWarm*m.now {
		return // cold caches are the cause, and get warm
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

// heed adjusts the assumed capacity of a worker to its drops.
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

// room returns the capacity of a worker, by its busy time and its drops.
func (m *machine) room() float64 { return max(min(m.capacity, m.ceiling), 1e-9) }
