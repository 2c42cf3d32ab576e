package balancer

import "math"

// Loads of a worker vary from step to step, so it drops some requests before its mean load reaches
// its capacity. The expected drops are the part of a normal distribution beyond the capacity.

// The unit loss function g(z) = E[max(0, Z+z)] of a standard normal Z is tabulated, because a
// decision evaluates it some hundred thousand times.
const (
	lossFrom = -6.0
	lossTo   = 6.0
	lossPer  = 64 // entries per unit of z
)

type lossTable [int((lossTo-lossFrom)*lossPer) + 2]float64

func newLossTable() *lossTable {
	t := &lossTable{}
	for i := range t {
		z := lossFrom + float64(i)/lossPer
		t[i] = math.Exp(-z*z/2)/math.Sqrt(2*math.Pi) + z*0.5*math.Erfc(-z/math.Sqrt2)
	}
	return t
}

// at returns g(z).
func (t *lossTable) at(z float64) float64 {
	switch {
	case z <= lossFrom:
		return 0
	case z >= lossTo:
		return z
	}
	x := (z - lossFrom) * lossPer
	i := int(x)
	return t[i] + (x-float64(i))*(t[i+1]-t[i])
}

// headroom is the share of its capacity that a worker should keep free. Using it counts a little,
// so that load is spread before anything is dropped.
const headroom = 0.2

// pain returns the expected drops of a worker in a step, from mean and variance of its load, plus a
// part of the used headroom. Loads of partitions also rise and fall together: a twentieth of them
// is common.
func (t *lossTable) pain(mean, variance, capacity float64) float64 {
	common := 0.05 * mean
	deviation := math.Sqrt(variance + common*common)
	drops := mean - capacity
	if deviation > 0 {
		drops = deviation * t.at(drops/deviation)
	}
	if free := mean - (1-headroom)*capacity; free > 0 {
		return max(0, drops) + headroom*free*free/capacity
	}
	return max(0, drops)
}
