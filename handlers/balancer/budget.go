package balancer

import "slices"

const (
	budgetTime  = 60 // seconds in which a budget is spent
	leastBudget = 5  // voluntary moves in that time, where there are few partitions
	troubled    = 3  // times the budget while the cluster drops
	troubleFrom = 0.01
)

// A budget counts the voluntary moves of the last minute. It looks back over each minute
// rather than filling up from time to time: what had been saved would come on top, and a
// bound of six moves a minute would let twelve pass in one.
type budget struct {
	spent []float64 // when each was made, the oldest first
}

// spend counts a move.
func (b *budget) spend(now float64) { b.spent = append(b.spent, now) }

// refund takes back the last moves, which nobody has made.
func (b *budget) refund(moves int) { b.spent = b.spent[:max(0, len(b.spent)-moves)] }

// left returns how many of so many moves a minute may still be made.
func (b *budget) left(limit int, now float64) int {
	b.spent = slices.DeleteFunc(b.spent, func(at float64) bool { return at <= now-budgetTime })
	return max(0, limit-len(b.spent))
}

// budgetOf is how many voluntary moves a minute may have, by what a report tells.
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
	return int(min(limit, float64(troubled*e.cluster.Partitions))) // more would be no bound
}
