package balancer

import (
	"math"
	"slices"
)

// This file forecasts the load of partitions and the drops of workers. Loads have the unit of the
// reported weights per report.

const (
	medianTime   = 14   // s: the current load is a median over this time, so that a spike of one report is no load
	medianMost   = 7    // reports: the most of them that the median needs
	meanHalf     = 120  // s: half-life of the mean load, some times longer than usual bursts
	varianceHalf = 600  // s: half-life of the variance, which needs many samples
	meanReports  = 8    // the shortest half-life of a mean, in reports, if they are rare
	firstSpread  = 0.2  // share: the deviation of a load that nobody has measured yet
	commonSpread = 0.05 // share: the deviation that all loads of a worker have together
	headroom     = 0.2  // share of a capacity that should stay free for what no forecast knows
	borrowed     = 0.3  // share of a variance that is taken from all partitions, because a single one is hard to measure
	usualHalf    = 1200 // s: half-life of the usual load, to which the mean returns
)

// A forecast is the load of one partition.
type forecast struct {
	recent [medianMost]float64
	seen   int

	now      float64 // median of the latest reports
	mean     float64 // of the last minutes
	usual    float64 // of the last half hour
	due      float64 // what is left of the current load after half of the horizon
	variance float64
	shared   float64 // variance, blended with that of all partitions
}

// medianOf returns how many reports the median takes. The number is odd.
func medianOf(step float64) int {
	n := min(max(int(math.Ceil(medianTime/step)), 1), medianMost)
	return n - (n+1)%2
}

// decay returns the weight of a new sample in a mean with a half-life.
func decay(step, half float64) float64 { return 1 - math.Exp2(-step/half) }

// observe adds a reported load.
func (f *forecast) observe(x, step float64) {
	n := medianOf(step)
	f.recent[f.seen%n] = x
	f.seen++
	sorted := f.recent
	known := sorted[:min(f.seen, n)]
	slices.Sort(known)
	f.now = known[len(known)/2]
	if f.seen == 1 {
		f.mean, f.usual, f.due = x, x, x
		f.variance = firstSpread * firstSpread * x * x
		return
	}
	early := 1 / float64(f.seen) // the first samples count alike
	deviation := x - f.mean
	f.mean += max(decay(1, max(meanHalf/step, meanReports)), early) * deviation
	f.usual += max(decay(step, usualHalf), early) * (x - f.usual)
	deviation = min(math.Abs(deviation), 3*math.Sqrt(f.variance)+commonSpread*f.mean) // a spike tells little about the variance
	f.variance += max(decay(1, max(varianceHalf/step, 2*meanReports)), early) * (deviation*deviation - f.variance)
}

// A correlation is how much of earlier deviations was there a while later. Deviations that
// are not old enough to compare are assumed to follow the prior, so that a first large one counts.
type correlation struct {
	lag    float64 // s between a deviation and its comparison
	half   float64 // s: half-life of the experience
	past   [][]deviation
	sizes  []float64 // sums of squares of each of the past
	next   int
	at     float64 // time of the next comparison
	kept   float64 // sum of products of deviations with what was left of them
	all    float64 // sum of squares of those deviations
	latest float64 // sum of the sizes
}

// A deviation is how far a load is from a level.
type deviation struct{ size, level float64 }

func newCorrelation(partitions, slots int, lag, half float64) *correlation {
	m := &correlation{lag: lag, half: half, past: make([][]deviation, slots), sizes: make([]float64, slots), at: math.Inf(-1)}
	for i := range m.past {
		m.past[i] = make([]deviation, partitions)
	}
	return m
}

// observe compares the current loads with the deviations one lag ago. level returns the load and the
// level from which it deviates.
func (m *correlation) observe(loads []forecast, now, step float64, level func(f *forecast) (load, level float64)) {
	if now < m.at {
		return
	}
	every := max(m.lag/float64(len(m.past)), step)
	m.at = now + every
	fade := math.Exp2(-every / m.half)
	m.kept, m.all = fade*m.kept, fade*m.all
	old := m.past[m.next]
	size := 0.0
	for i := range loads {
		x, base := level(&loads[i])
		m.kept += (loads[i].now - old[i].level) * old[i].size
		m.all += old[i].size * old[i].size
		old[i] = deviation{x - base, base}
		size += old[i].size * old[i].size
	}
	m.latest += size - m.sizes[m.next]
	m.sizes[m.next] = size
	m.next = (m.next + 1) % len(m.past)
}

// left returns the share of a deviation that is left after the lag.
func (m *correlation) left(prior float64) float64 {
	if m.all+m.latest <= 0 {
		return prior
	}
	return min(max((m.kept+prior*m.latest)/(m.all+m.latest), 0), 1)
}

// expectedDrops returns the drops per report of a worker whose load is normally distributed, and a
// charge for used headroom:
//
//	E[max(0, load-capacity)] + headroom·max(0, mean-(1-headroom)·capacity)²/capacity
func expectedDrops(mean, variance, capacity float64) float64 {
	common := commonSpread * mean
	sigma := math.Sqrt(variance + common*common)
	over := mean - capacity
	drops := max(0, over)
	if z := over / sigma; sigma > 0 && math.Abs(z) < 6 {
		drops = max(0, sigma*math.Exp(-z*z/2)/math.Sqrt(2*math.Pi)+over*math.Erfc(-z/math.Sqrt2)/2)
	}
	if used := mean - (1-headroom)*capacity; used > 0 {
		drops += headroom * used * used / capacity
	}
	return drops
}
