package balancer

import "math"

const (
	guessedNotice = 20 // seconds between announcement and stop, before any was seen
	usedNotice    = 0.75
	patience      = 8    // a landing may drop this many seconds of its load while there is time to wait for room
	lightLoad     = 0.15 // of a worker's capacity: so little leaves at once
)

// drains learn how long workers live after they have announced a stop. The slower their partitions
// leave, the fewer caches are cold at a time.
type drains struct {
	notice float64
	since  []float64 // time of each worker's announcement; NaN for none
}

func newDrains(workers int) drains {
	d := drains{notice: guessedNotice, since: make([]float64, workers)}
	for w := range d.since {
		d.since[w] = math.NaN()
	}
	return d
}

// see notes announcements and stops.
func (d *drains) see(r *Report) {
	for w, since := range d.since {
		switch {
		case r.Draining[w] && r.Up[w]:
			if math.IsNaN(since) {
				d.since[w] = r.At
			}
		case !math.IsNaN(since):
			if !r.Up[w] {
				d.notice = r.At - since
			}
			d.since[w] = math.NaN()
		}
	}
}

// share returns which part of a worker's remaining partitions should leave now.
func (d *drains) share(w int, now, step float64) float64 {
	left := d.since[w] + usedNotice*d.notice - now
	if !(left > 0) {
		return 1
	}
	return 1 / (1 + math.Floor(left/step))
}
