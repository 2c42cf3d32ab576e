package balancer

import "slices"

const (
	budgetTime  = 60 // seconds that a budget covers
	leastBudget = 5  // fewest voluntary moves in that time, for small clusters
	troubled    = 3  // factor while the cluster drops
	troubleFrom = 0.01
)

// A budget limits the voluntary moves of the last minute. It uses a sliding window, not a bucket. A
// bucket could save up moves, and allow twelve in a minute with a limit of six.
type budget struct {
	spent []float64 // times of the moves, oldest first
}

// spend counts a move.
func (b *budget) spend(now float64) { b.spent = append(b.spent, now) }

// refund takes back the last moves, because they were not made.
func (b *budget) refund(moves int) { b.spent = b.spent[:max(0, len(b.spent)-moves)] }

// left returns how many moves are left of a limit per minute.
func (b *budget) left(limit int, now float64) int {
	b.spent = slices.DeleteFunc(b.spent, func(at float64) bool { return at <= now-budgetTime })
	return max(0, limit-len(b.spent))
}

// budgetOf returns the limit of voluntary moves per minute for a report.
func (e *economist) budgetOf(r *Report) int {
	served, dropped := 0.0, 0.0
	for w, up := range r.Up {
		if up {
			served += clean(r.Requests[w])
			dropped += clean(r.Drops[w])
		}
	}
	limit := max(leastBudget, e.params.Budget*float64(e.cluster.Partitions))
	if dropped > troubleFrom*(served+dropped) {
		limit *= troubled
	}
	return int(min(limit, float64(troubled*e.cluster.Partitions))) // more would be no limit
}
