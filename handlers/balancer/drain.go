package balancer

import "math"

const (
	guessedNotice = 20 // seconds from the announcement of a stop to the stop, before one was seen
	usedNotice    = 0.75
	patience      = 8    // seconds of its load that a landing may drop, as long as there is time to wait for room
	lightLoad     = 0.15 // of what a worker can do: so little leaves at once
)

// drains learn how long workers live on once they have announced that they stop. The
// slower their partitions leave, the fewer caches are cold at a time.
type drains struct {
	notice float64
	since  []float64 // when each worker has announced; NaN when it has not
}

func newDrains(workers int) drains {
	d := drains{notice: guessedNotice, since: make([]float64, workers)}
	for w := range d.since {
		d.since[w] = math.NaN()
	}
	return d
}

// see notes who announces, and who has stopped.
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

// share returns the part of what is still aboard a worker that should leave now.
func (d *drains) share(w int, now, step float64) float64 {
	left := d.since[w] + usedNotice*d.notice - now
	if !(left > 0) {
		return 1
	}
	return 1 / (1 + math.Floor(left/step))
}
