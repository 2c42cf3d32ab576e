package plant

import (
	"math"
	"math/rand/v2"
	"slices"
)

const (
	minute     = 60
	timerBurst = 0.5 // of the requests of a timer that come in its first minute
	timerMost  = 8   // times its usual load, at most
	stormMost  = 10  // times the least storm
	stormLong  = 30  // times the shortest
)

// days are what real traffic has beside a daily curve: weekends, minutes that differ,
// partitions that live by the clock, and storms that hit several of them at once with a heavy
// tail of sizes.
type days struct {
	s      *Scenario
	random *rand.Rand
	period []float64 // of the timer of each partition; 0 for none
	phase  []float64 // when it fires first
	now    []float64 // of each partition: the factor of this minute
	until  float64   // when it is over
	group  []int     // partitions in the order in which storms hit them
	storms []burst
}

func newDays(s *Scenario, seed uint64) *days {
	n := s.Partitions.Count
	d := &days{s: s, random: stream(seed, streamDays), period: make([]float64, n), phase: make([]float64, n), now: make([]float64, n)}
	for p := range n {
		d.now[p] = 1
		if d.random.Float64() >= s.Load.TimerShare {
			continue
		}
		d.period[p] = minute * []float64{5, 10, 15, 30, 60}[d.random.IntN(5)]
		if d.random.Float64() < 0.3 { // most fire at the full hour, too
			d.phase[p] = minute * float64(d.random.IntN(int(d.period[p]/minute)))
		}
	}
	d.group = d.random.Perm(n)
	return d
}

// week is the share of the usual load that a day of the week has.
func (d *days) week(at float64) float64 {
	if l := d.s.Load; l.DiurnalPeriod > 0 && int(at/l.DiurnalPeriod)%7 >= 5 {
		return l.Weekend
	}
	return 1
}

// shape makes minutes differ, and timers fire.
func (d *days) shape(at float64, out []float64) {
	if sigma := d.s.Load.MinuteSigma; sigma > 0 && at >= d.until {
		d.until = (math.Floor(at/minute) + 1) * minute
		for p := range d.now {
			d.now[p] = math.Exp(sigma*d.random.NormFloat64() - sigma*sigma/2)
		}
	}
	for p, period := range d.period {
		out[p] *= d.now[p]
		if period <= 0 {
			continue
		}
		if math.Mod(at-d.phase[p]+period, period) < minute {
			out[p] *= min(timerBurst*period/minute, timerMost)
		} else {
			out[p] *= (1 - timerBurst) / (1 - minute/period)
		}
	}
}

// storm adds the bursts that hit several partitions.
func (d *days) storm(at float64, out, cost []float64) {
	l := d.s.Load
	if l.StormsPerHour <= 0 {
		return
	}
	d.storms = slices.DeleteFunc(d.storms, func(b burst) bool { return b.until <= at })
	tail := func(most float64) float64 { return min(math.Pow(1-d.random.Float64(), -1/l.StormTail), most) }
	for range int(poisson(d.random, l.StormsPerHour*d.s.Step/3600)) {
		width := 1 + int(poisson(d.random, l.StormWidth-1))
		size, until := l.StormShare*tail(stormMost)*d.s.Cluster.Capacity, at+l.StormMin*tail(stormLong)
		first := d.random.IntN(len(d.group))
		for i := range min(width, len(d.group)) {
			p := d.group[(first+i)%len(d.group)]
			d.storms = append(d.storms, burst{partition: p, load: size * (0.5 + d.random.Float64()/2), until: until})
		}
	}
	for _, b := range d.storms {
		out[b.partition] += b.load / cost[b.partition]
	}
}
