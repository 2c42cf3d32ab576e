package plant

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Streams of chance are apart, so that a change of one thing leaves the others as they
// were.
const (
	streamMap = iota + 1
	streamWeights
	streamDrift
	streamNoise
	streamBursts
	streamPings
	streamDays
)

func stream(seed, which uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, which)) }

// A demand says how many requests come for each partition.
type demand struct {
	s      *Scenario
	usual  []float64 // requests in a second for each partition
	cost   []float64 // work of a request for each
	drift  []float64 // of the logarithm, for each
	ranked []int     // partitions, the heaviest first
	bursts []burst

	noise, drifting, bursting *rand.Rand
	days                      *days
}

type burst struct {
	partition int
	load      float64
	until     float64
}

func newDemand(s *Scenario, seed uint64, capacity []float64) *demand {
	n := s.Partitions.Count
	d := &demand{
		s: s, usual: make([]float64, n), cost: make([]float64, n), drift: make([]float64, n),
		noise: stream(seed, streamNoise), drifting: stream(seed, streamDrift), bursting: stream(seed, streamBursts),
	}
	r := stream(seed, streamWeights)
	total := 0.0
	for _, c := range capacity {
		total += c
	}
	shares := zipf(n, s.Partitions.Zipf, s.Partitions.Util*total, s.Partitions.MaxShare*total/float64(len(capacity)))
	d.ranked = r.Perm(n)
	for rank, p := range d.ranked {
		d.cost[p] = math.Exp(s.Partitions.CostSigma*r.NormFloat64() - s.Partitions.CostSigma*s.Partitions.CostSigma/2)
		d.usual[p] = shares[rank] / d.cost[p]
		d.drift[p] = s.Load.DriftSigma * d.drifting.NormFloat64()
	}
	d.days = newDays(s, seed)
	return d
}

// zipf divides a total by rank, with a bound for each; what is over goes to the rest.
func zipf(n int, exponent, total, most float64) []float64 {
	shares := make([]float64, n)
	capped := 0
	for {
		sum := 0.0
		for i := capped; i < n; i++ {
			shares[i] = math.Pow(float64(i+1), -exponent)
			sum += shares[i]
		}
		rest, again := total-float64(capped)*most, false
		for i := capped; i < n; i++ {
			shares[i] *= rest / sum
		}
		for ; capped < n && shares[capped] > most; capped++ {
			shares[capped] = most
			again = true
		}
		if !again || capped == n {
			return shares
		}
	}
}

// requests gives how many come for each partition in the step that begins at a time.
func (d *demand) requests(at float64, out []float64) {
	s, l := d.s, d.s.Load
	keep := math.Exp2(-s.Step / l.DriftHalf)
	all := d.diurnal(at) * d.days.week(at)
	for _, e := range s.Events {
		if e.Kind == "step" && e.active(at) {
			all *= e.Factor
		}
	}
	for p := range out {
		if l.DriftSigma > 0 {
			d.drift[p] = keep*d.drift[p] + l.DriftSigma*math.Sqrt(1-keep*keep)*d.drifting.NormFloat64()
		}
		out[p] = d.usual[p] * all * math.Exp(d.drift[p]-l.DriftSigma*l.DriftSigma/2)
	}
	d.days.shape(at, out)
	d.happen(at, out)
	d.burst(at, out)
	d.days.storm(at, out, d.cost)
	for p, mean := range out {
		mean *= s.Step
		if l.Noise > 0 {
			mean *= max(0, 1+l.Noise*d.noise.NormFloat64())
		}
		out[p] = poisson(d.noise, mean)
	}
}

// diurnal is the share of the usual load at a time of the day, which begins at its
// mean and rises.
func (d *demand) diurnal(at float64) float64 {
	l := d.s.Load
	if l.DiurnalPeriod <= 0 {
		return 1
	}
	return (l.DiurnalLow+l.DiurnalHigh)/2 - (l.DiurnalHigh-l.DiurnalLow)/2*math.Cos(2*math.Pi*at/l.DiurnalPeriod)
}

// happen applies spikes and seesaws.
func (d *demand) happen(at float64, out []float64) {
	for _, e := range d.s.Events {
		if !e.active(at) {
			continue
		}
		switch e.Kind {
		case "spike":
			since := at - e.At
			if e.Period > 0 {
				since = math.Mod(since, e.Period)
				if since >= e.Period/2 {
					continue
				}
			}
			grown := 1.0
			if e.Ramp > 0 {
				grown = min(1, since/e.Ramp)
			}
			for i := range e.Count {
				p := d.ranked[e.Rank+i]
				out[p] = max(out[p], grown*e.To*d.s.Cluster.Capacity/d.cost[p])
			}
		case "seesaw":
			turn := int((at-e.At)/max(e.Period/2, d.s.Step)) % 2
			for rank, p := range d.ranked {
				if rank%2 == turn {
					out[p] *= e.Factor
				} else {
					out[p] *= max(0, 2-e.Factor)
				}
			}
		}
	}
}

// burst adds the short bursts.
func (d *demand) burst(at float64, out []float64) {
	l := d.s.Load
	if l.BurstsPerHour <= 0 {
		return
	}
	d.bursts = slices.DeleteFunc(d.bursts, func(b burst) bool { return b.until <= at })
	for range int(poisson(d.bursting, l.BurstsPerHour*d.s.Step/3600)) {
		d.bursts = append(d.bursts, burst{
			partition: d.bursting.IntN(len(out)), load: l.BurstShare * d.s.Cluster.Capacity,
			until: at + l.BurstMin + d.bursting.Float64()*max(0, l.BurstMax-l.BurstMin),
		})
	}
	for _, b := range d.bursts {
		out[b.partition] += b.load / d.cost[b.partition]
	}
}

// poisson draws a count; large ones are nearly normal.
func poisson(r *rand.Rand, mean float64) float64 {
	if mean <= 0 {
		return 0
	}
	if mean > 30 {
		return max(0, math.Round(mean+math.Sqrt(mean)*r.NormFloat64()))
	}
	limit, product := math.Exp(-mean), r.Float64()
	n := 0.0
	for ; product > limit; n++ {
		product *= r.Float64()
	}
	return n
}

// active reports whether an event goes on at a time.
func (e *Event) active(at float64) bool {
	return at >= e.At && (e.For == 0 || at < e.At+e.For)
}
