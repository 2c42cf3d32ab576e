package balancer

import (
	"math"
	"slices"
)

const (
	mostSamples  = 7    // their median is the current load of a partition
	sampled      = 14   // seconds that they cover, if reports are frequent
	slowHalf     = 120  // seconds: half-life of its load of the last minutes
	slowReports  = 8    // the shortest such half-life, in reports
	usualHalf    = 1200 // seconds: half-life of its usual load
	varianceHalf = 600  // seconds: half-life of its variance
	lag          = 30   // seconds over which deviations are compared; at least a step
	guess        = 0.2  // assumed deviation of a load, as a share, before it is measured
)

// A partition is the state of one partition's load and moves.
type partition struct {
	recent [mostSamples]float64
	n      int // samples seen

	now      float64 // median of the last samples
	slow     float64 // load of the last minutes, to which the current load returns
	usual    float64 // usual load, to which that returns in turn
	due      float64 // expected load after the current deviation
	variance float64

	since float64 // when its cache began to fill; long ago means warm
	homes []home  // workers that it left recently
	crash decaying
}

// A home is a worker that a partition has left.
type home struct {
	worker int
	left   float64 // time in seconds
}

// samplesOf returns the number of samples for the median. With long steps each sample is a mean
// already, and a median of many would be minutes old.
func samplesOf(step float64) int {
	n := min(max(int(math.Ceil(sampled/step)), 1), mostSamples)
	return n - (n+1)%2 // an odd number has a middle
}

// see adds a sample.
func (p *partition) see(x, step float64) {
	samples := samplesOf(step)
	p.recent[p.n%samples] = x
	p.n++
	sorted := p.recent
	known := sorted[:min(p.n, samples)]
	slices.Sort(known)
	p.now = known[len(known)/2]
	if p.n == 1 {
		p.slow, p.usual, p.due, p.variance = x, x, x, guess*guess*x*x
		return
	}
	// This load is a plain mean until it has covered half of its half-life.
	weight := max(1-math.Exp2(-1/max(slowHalf/step, slowReports)), 1/float64(p.n))
	deviation := x - p.slow
	p.slow += weight * deviation
	p.usual += max(1-math.Exp2(-step/usualHalf), 1/float64(p.n)) * (x - p.usual)
	// A spike says little about the variance, so it counts as three deviations at most.
	deviation = min(math.Abs(deviation), 3*math.Sqrt(p.variance)+0.05*p.slow)
	weight = max(1-math.Exp2(-1/max(varianceHalf/step, 2*slowReports)), 1/float64(p.n))
	p.variance += weight * (deviation*deviation - p.variance)
}

// A decaying is a number with a half-life.
type decaying struct {
	value float64
	at    float64 // seconds
}

// of returns the number at a time.
func (d *decaying) of(now, half float64) float64 {
	return d.value * math.Exp2((d.at-now)/half)
}

// add adds to the number.
func (d *decaying) add(x, now, half float64) {
	d.value, d.at = d.of(now, half)+x, now
}

// persistence learns how long a deviation from the usual load lasts, from all partitions. Those of
// large ones count most.
type persistence struct {
	lag          float64     // seconds between compared deviations
	past         [][]float64 // deviations of all partitions in each of the last steps
	next         int
	product, sum float64   // of deviations with earlier ones, and of squares
	squares      []float64 // of the deviations in each of the last steps
}

func newPersistence(partitions int, step float64) *persistence {
	steps := max(1, int(math.Round(lag/step)))
	p := &persistence{lag: float64(steps) * step, past: make([][]float64, steps), squares: make([]float64, steps)}
	for i := range p.past {
		p.past[i] = make([]float64, partitions)
	}
	return p
}

// see compares current deviations with earlier ones.
func (p *persistence) see(parts []partition, step float64) {
	forget := math.Exp2(-step / varianceHalf)
	p.product *= forget
	p.sum *= forget
	old := p.past[p.next]
	p.squares[p.next] = 0
	for i := range parts {
		now := parts[i].now - parts[i].slow
		p.product += now * old[i]
		p.sum += (now*now + old[i]*old[i]) / 2
		old[i] = now
		p.squares[p.next] += now * now
	}
	p.next = (p.next + 1) % len(p.past)
}

// lasting returns for how many seconds of a horizon the current load is expected, instead of the
// usual one.
func (p *persistence) lasting(horizon float64) float64 {
	const least, longest, usual = 2, 150, 30
	unseen := 0.0
	for _, x := range p.squares {
		unseen += x
	}
	if p.sum+unseen <= 0 {
		return usual
	}
	// It is not known yet how long the latest deviations will last. Ordinary ones hardly matter
	// beside earlier ones. A first large one is not noise.
	rho := min((p.product+unseen*math.Exp(-p.lag/usual))/(p.sum+unseen), 0.999)
	if rho <= 0.01 {
		return least
	}
	t := -p.lag / math.Log(rho)
	return min(max(t*(1-math.Exp(-horizon/t)), least), longest)
}

// A tide learns how much of a deviation of the last minutes remains later: all where loads drift or
// grow, nothing where each minute is independent. Moves pay only for what lasts.
type tide struct {
	past         [][]outlook // of all partitions, at some moments of the last tideLag seconds
	unseen       []float64   // sums of squares of each moment's deviations
	at           float64     // next moment
	next         int
	product, sum float64
}

// An outlook is the state of a partition at a moment.
type outlook struct{ deviation, usual float64 }

const (
	tideLag     = 150 // seconds after which a deviation is checked: half of the horizon
	tideHalf    = 900 // seconds: half-life of the memory
	tideMoments = 10
)

func newTide(partitions int) *tide {
	t := &tide{past: make([][]outlook, tideMoments), unseen: make([]float64, tideMoments), at: math.Inf(-1)}
	for i := range t.past {
		t.past[i] = make([]outlook, partitions)
	}
	return t
}

// see compares the current loads with earlier deviations, and computes the due loads.
func (t *tide) see(parts []partition, now, step float64) {
	if now >= t.at {
		every := max(tideLag/tideMoments, step)
		t.at = now + every
		forget := math.Exp2(-every / tideHalf)
		t.product *= forget
		t.sum *= forget
		old := t.past[t.next]
		t.unseen[t.next] = 0
		for i := range parts {
			q, was := &parts[i], old[i]
			t.product += (q.now - was.usual) * was.deviation
			t.sum += was.deviation * was.deviation
			old[i] = outlook{q.slow - q.usual, q.usual}
			t.unseen[t.next] += old[i].deviation * old[i].deviation
		}
		t.next = (t.next + 1) % len(t.past)
	}
	stays := t.stays()
	for i := range parts {
		q := &parts[i]
		q.due = max(0, q.usual+stays*(q.slow-q.usual))
	}
}

// stays returns the share of a deviation that remains later. An unchecked deviation is assumed to
// stay, so that a first large one counts.
func (t *tide) stays() float64 {
	unseen := 0.0
	for _, x := range t.unseen {
		unseen += x
	}
	if t.sum+unseen <= 0 {
		return 1
	}
	return min(max((t.product+unseen)/(t.sum+unseen), 0), 1)
}
