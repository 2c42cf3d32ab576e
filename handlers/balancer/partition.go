package balancer

import (
	"math"
	"slices"
)

const (
	mostSamples  = 7   // whose median is the load of a partition now
	sampled      = 14  // seconds that they cover, where reports come often
	slowHalf     = 120 // seconds: half-life of its usual load
	slowReports  = 8   // that at least, in reports
	varianceHalf = 600 // seconds: half-life of its variance
	lag          = 30  // seconds over which deviations are compared, a step at least
	guess        = 0.2 // deviation of a load, as a share, before it is measured
)

// A partition is what is known of the load of one, and of its moves.
type partition struct {
	recent [mostSamples]float64
	n      int // samples seen

	now      float64 // median of the last samples
	slow     float64 // usual load, to which a deviation returns
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
		p.slow, p.variance = x, guess*guess*x*x
		return
	}
	// The usual load is a plain mean until it has seen half of its half-life.
	weight := max(1-math.Exp2(-1/max(slowHalf/step, slowReports)), 1/float64(p.n))
	deviation := x - p.slow
	p.slow += weight * deviation
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

// of gives the number at a time.
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
