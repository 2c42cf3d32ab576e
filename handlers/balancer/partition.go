package balancer

import (
	"math"
	"slices"
)

const (
	mostSamples  = 7    // whose median is the load of a partition now
	sampled      = 14   // seconds that they cover, where reports come often
	slowHalf     = 120  // seconds: half-life of its usual load
	slowReports  = 8    // that at least, in reports
	usualHalf    = 1200 // seconds: half-life of what it was for long
	varianceHalf = 600  // seconds: half-life of its variance
	lag          = 30   // seconds over which deviations are compared, a step at least
	guess        = 0.2  // deviation of a load, as a share, before it is measured
)

// A partition is what is known of the load of one, and of its moves.
type partition struct {
	recent [mostSamples]float64
	n      int // samples seen

	now      float64 // median of the last samples
	slow     float64 // load of the last minutes, to which a deviation of now returns
	usual    float64 // that of a longer time, to which they return in turn
	due      float64 // load to be expected when the deviation of now is over
	variance float64

	since float64 // when its cache began to fill; long ago means warm
	homes []home  // whence it was moved not long ago
	crash decaying
}

// A home is a worker that a partition has left.
type home struct {
	worker int
	left   float64 // seconds
}

// samplesOf is how many samples the median is taken of. Those of long steps are means
// already; a median of many would tell of what was minutes ago.
func samplesOf(step float64) int {
	n := min(max(int(math.Ceil(sampled/step)), 1), mostSamples)
	return n - (n+1)%2 // an odd number has a middle
}

// see takes a sample.
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
	// The usual load is a plain mean until it has seen half of its half-life.
	weight := max(1-math.Exp2(-1/max(slowHalf/step, slowReports)), 1/float64(p.n))
	deviation := x - p.slow
	p.slow += weight * deviation
	p.usual += max(1-math.Exp2(-step/usualHalf), 1/float64(p.n)) * (x - p.usual)
	// A spike says little about the variance: it counts as three deviations at most.
	deviation = min(math.Abs(deviation), 3*math.Sqrt(p.variance)+0.05*p.slow)
	weight = max(1-math.Exp2(-1/max(varianceHalf/step, 2*slowReports)), 1/float64(p.n))
	p.variance += weight * (deviation*deviation - p.variance)
}

// A decaying number forgets with a half-life.
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

// persistence learns how long a deviation from the usual load lasts, from the
// deviations of all partitions: those of large ones count most.
type persistence struct {
	lag          float64     // seconds between the deviations that are compared
	past         [][]float64 // deviations of all partitions, one list for each of the last steps
	next         int
	product, sum float64   // of deviations with earlier ones, and of squares
	squares      []float64 // of the deviations of each of the last steps
}

func newPersistence(partitions int, step float64) *persistence {
	steps := max(1, int(math.Round(lag/step)))
	p := &persistence{lag: float64(steps) * step, past: make([][]float64, steps), squares: make([]float64, steps)}
	for i := range p.past {
		p.past[i] = make([]float64, partitions)
	}
	return p
}

// see compares the deviations of now with those of some time ago.
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

// lasting gives for how many seconds of a horizon the load of now is to be expected,
// in place of the usual one.
func (p *persistence) lasting(horizon float64) float64 {
	const least, longest, usual = 2, 150, 30
	unseen := 0.0
	for _, x := range p.squares {
		unseen += x
	}
	if p.sum+unseen <= 0 {
		return usual
	}
	// Nobody knows yet how long the deviations of the last steps will last. Where they
	// are ordinary they hardly count beside earlier ones; a first great one is not noise.
	rho := min((p.product+unseen*math.Exp(-p.lag/usual))/(p.sum+unseen), 0.999)
	if rho <= 0.01 {
		return least
	}
	t := -p.lag / math.Log(rho)
	return min(max(t*(1-math.Exp(-horizon/t)), least), longest)
}

// A tide learns how much of what the last minutes differ by from a longer time is still there
// when they are over: all of it where loads wander or grow, nothing where each minute is drawn
// anew. What lasts is worth moves, what does not is weather.
type tide struct {
	past         [][]outlook // of all partitions, at some moments of the last tideLag seconds
	unseen       []float64   // squares of the deviations of each moment
	at           float64     // when the next moment is
	next         int
	product, sum float64
}

// An outlook is what was known of a partition at a moment.
type outlook struct{ deviation, usual float64 }

const (
	tideLag     = 150 // seconds after which a deviation is looked at again: half of the horizon
	tideHalf    = 900 // seconds: half-life of what is remembered
	tideMoments = 10
)

func newTide(partitions int) *tide {
	t := &tide{past: make([][]outlook, tideMoments), unseen: make([]float64, tideMoments), at: math.Inf(-1)}
	for i := range t.past {
		t.past[i] = make([]outlook, partitions)
	}
	return t
}

// see compares what partitions have now with what the deviations of some time ago promised,
// and says what is due.
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

// stays is the share of a deviation that is still there later. What nobody has looked at again
// yet is taken to stay: a first great one is no weather.
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
