package balancer

import "slices"

// Gini returns the index of inequality of C. Gini: 0 if all weights are equal, almost 1 if one has
// everything. It is 0 for fewer than two weights, and if all are 0.
func Gini(weights []float64) float64 {
	sorted := slices.Sorted(slices.Values(weights))
	sum, ranked, n := 0.0, 0.0, float64(len(sorted))
	for i, w := range sorted {
		sum += w
		ranked += float64(i+1) * w
	}
	if sum <= 0 || n < 2 {
		return 0
	}
	return max(0, 2*ranked/(n*sum)-(n+1)/n)
}
