package balancer

import (
	"math"
	"math/rand/v2"
	"testing"
)

// tideOf lets partitions see loads for hours, and returns how much of a deviation is taken to stay.
func tideOf(hours float64, load func(p int, at float64) float64) (*tide, []partition) {
	const n, step = 60, 10
	parts, t := make([]partition, n), newTide(n)
	for at := 0.0; at < hours*3600; at += step {
		for p := range parts {
			parts[p].see(load(p, at), step)
		}
		t.see(parts, at, step)
	}
	return t, parts
}

// Loads that each minute draws anew go back to what they usually are; those that wander stay
// where they are for a while; and a first great change after hours of the former stays, too.
func TestTideTellsWeatherFromChange(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	minute, now := make([]float64, 60), -1.0
	weather := func(p int, at float64) float64 {
		if m := math.Floor(at / 60); m != now {
			now = m
			for i := range minute {
				minute[i] = 100 * math.Exp(0.8*random.NormFloat64()-0.32)
			}
		}
		return minute[p]
	}
	drift := make([]float64, 60)
	wander := func(p int, _ float64) float64 {
		drift[p] = 0.998*drift[p] + 0.3*math.Sqrt(1-0.998*0.998)*random.NormFloat64()
		return 100 * math.Exp(drift[p])
	}
	if x, _ := tideOf(4, weather); x.stays() > 0.35 {
		t.Errorf("minutes that are drawn anew: want little to stay, have %.2f", x.stays())
	}
	if x, _ := tideOf(4, wander); x.stays() < 0.6 {
		t.Errorf("loads that wander: want most to stay, have %.2f", x.stays())
	}
	now = -1
	x, parts := tideOf(4, func(p int, at float64) float64 {
		if p == 0 && at > 4*3600-120 {
			return 5000
		}
		return weather(p, at)
	})
	if x.stays() < 0.45 || parts[0].due < 1000 {
		t.Errorf("a hot spot of two minutes: want it to stay, have %.2f and %.0f due", x.stays(), parts[0].due)
	}
}
