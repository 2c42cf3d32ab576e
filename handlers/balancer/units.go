package balancer

import (
	"math"
	"slices"
)

// units learns what the weights of partitions count: all requests, or only served ones. Their units
// may differ from those of workers' requests.
type units struct {
	ratio      float64 // of the weights of a worker to its requests, without drops
	all, parts float64 // decayed evidence: distance of the weights of dropping workers from each assumption
}

const (
	telling = 0.05 // drops, as a share of served requests, that distinguish the two
	quiet   = 0.005
)

// see compares weights with requests.
func (u *units) see(r *Report, aboard [][]int, step float64) {
	var ratios []float64
	sums := make([]float64, len(r.Up))
	for w, up := range r.Up {
		served, dropped := clean(r.Requests[w]), clean(r.Drops[w])
		sums[w] = math.NaN()
		if !up || served <= 0 {
			continue
		}
		sum, known := 0.0, true
		for _, p := range aboard[w] {
			known = known && !math.IsNaN(r.Weights[p])
			sum += clean(r.Weights[p])
		}
		if !known || sum <= 0 {
			continue
		}
		sums[w] = sum
		if dropped <= quiet*served {
			ratios = append(ratios, sum/served)
		}
	}
	if len(ratios) > 0 {
		slices.Sort(ratios)
		middle := ratios[len(ratios)/2]
		if u.ratio == 0 {
			u.ratio = middle
		}
		u.ratio += (1 - math.Exp2(-step/capacityHalf)) * (middle - u.ratio)
	}
	if u.ratio == 0 {
		return
	}
	fade := math.Exp2(-step / varianceHalf)
	u.all *= fade
	u.parts *= fade
	for w, sum := range sums {
		served, dropped := clean(r.Requests[w]), clean(r.Drops[w])
		if math.IsNaN(sum) || dropped < telling*served {
			continue
		}
		share := sum / u.ratio / (served + dropped) // 1 if all requests are counted
		u.all += math.Abs(1 - share)
		u.parts += math.Abs(served/(served+dropped) - share)
	}
}

// servedOnly reports whether weights leave out dropped requests.
func (u *units) servedOnly() bool { return u.parts < 0.5*u.all && u.all > 0.1 }
