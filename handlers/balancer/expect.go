package balancer

import "math"

// Loads of a worker vary from step to step, so it drops some requests before its
// mean load reaches its capacity. What it drops is the expectation of the part of a
// normal distribution beyond the capacity.

// The unit loss function g(z) = E[max(0, Z+z)] of a standard normal Z is looked up;
// it is asked some hundred thousand times for a decision.
const (
	lossFrom = -6.0
	lossTo   = 6.0
	lossPer  = 64 // entries in a unit of z
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

// at gives g(z).
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

// headroom is the share of its capacity that a worker should keep free; what is used
// of it counts a little, so that load is spread before anything is dropped.
const headroom = 0.2

// pain is what a worker of a capacity drops in a step at a mean load with a variance,
// with a part of the headroom that it uses. Loads of the partitions of a cluster
// rise and fall together, too: a twentieth of them is common.
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
