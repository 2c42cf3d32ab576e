package drawing

import (
	"slices"
	"sort"
	"time"

	"procaas/engine/explain"
)

// A scale maps times to shares of 1000. If a run mostly waits, its calls would be too narrow to see. So
// the longest times in which nothing begins or ends are cut short.
type scale struct {
	at []time.Time // when something begins or ends
	xs []float64   // where these times are drawn

	long time.Duration // what is longer is cut short; 0 for nothing
}

// Times of more than a tenth of a run are cut short if they are nearly all of it. All of them together
// are then drawn half as long as the rest.
const (
	longPart  = 10
	longShare = 0.95
	cutShare  = 0.5
)

func newScale(s explain.Story, from, to time.Time) *scale {
	c := &scale{at: []time.Time{from, to}}
	note := func(times ...*time.Time) {
		for _, t := range times {
			if t != nil && t.After(from) && t.Before(to) {
				c.at = append(c.at, *t)
			}
		}
	}
	note(s.Run.Started)
	for _, stage := range s.Stages {
		for _, step := range stage.Steps {
			if h := step.Handler; h != nil {
				note(h.Started, h.Finished)
			}
			for _, t := range step.Tries {
				note(&t.Began, t.Ended)
			}
		}
	}
	slices.SortFunc(c.at, time.Time.Compare)
	whole := max(to.Sub(from), time.Microsecond)
	c.long = whole / longPart
	var cuts int
	var rest time.Duration
	for i := range c.at[1:] {
		if c.cut(i) {
			cuts++
		} else {
			rest += c.at[i+1].Sub(c.at[i])
		}
	}
	if rest == 0 || float64(rest) > (1-longShare)*float64(whole) {
		c.long, cuts, rest = 0, 0, whole
	}
	unit := 1000 / float64(rest)
	if cuts > 0 {
		unit /= 1 + cutShare
	}
	x := 0.0
	for i := range c.at[1:] {
		c.xs = append(c.xs, x)
		if c.cut(i) {
			x += unit * float64(rest) * cutShare / float64(cuts)
		} else {
			x += unit * float64(c.at[i+1].Sub(c.at[i]))
		}
	}
	c.xs = append(c.xs, 1000)
	return c
}

// cut reports whether the time from one moment to the next is cut short.
func (c *scale) cut(i int) bool { return c.long > 0 && c.at[i+1].Sub(c.at[i]) > c.long }

// x returns where a time is drawn.
func (c *scale) x(t time.Time) float64 {
	i := min(max(1, sort.Search(len(c.at), func(i int) bool { return !c.at[i].Before(t) })), len(c.at)-1)
	return between(float64(t.Sub(c.at[i-1])), float64(c.at[i].Sub(c.at[i-1])), c.xs[i-1], c.xs[i])
}

// when returns which time is drawn at a place.
func (c *scale) when(x float64) time.Time {
	i := min(max(1, sort.SearchFloat64s(c.xs, x)), len(c.at)-1)
	return c.at[i-1].Add(time.Duration(between(x-c.xs[i-1], c.xs[i]-c.xs[i-1], 0, float64(c.at[i].Sub(c.at[i-1])))))
}

// between maps a part of a whole to the space from one place to another.
func between(part, whole, from, to float64) float64 {
	if whole <= 0 {
		return from
	}
	return from + (to-from)*min(1, max(0, part/whole))
}
