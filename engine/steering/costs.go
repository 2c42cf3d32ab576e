package steering

import (
	"context"
	"time"

	"procaas/engine/stats"
	"procaas/engine/store"
)

// Costs lists what pipelines, owners or handlers have cost on each of the last days, on all nodes. reads says which pipelines
// count. What nodes have not yet added to the store is missing.
func (st *Steering) Costs(ctx context.Context, by string, days int, reads func(path string) bool) ([]stats.Cost, error) {
	sum := stats.NewCostSum(st.Library.Present(), by)
	err := st.Store.Usage.UsageSince(ctx, stats.CostsSince(st.Clock.Now(), days), func(u store.Use) {
		if reads(u.Path) {
			sum.Add(u)
		}
	})
	return sum.Costs(), err
}

// spendCPU counts the processor time of this process since the last time.
func (st *Steering) spendCPU(now time.Time) {
	spent := cpuTime()
	if st.spent > 0 && spent > st.spent {
		st.Stats.SpendCPU(spent-st.spent, now)
	}
	st.spent = spent
}
