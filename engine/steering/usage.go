package steering

import (
	"context"
	"time"

	"procaas/engine/clock"
	"procaas/engine/stats"
	"procaas/engine/store"
)

// UsageEvery is how often a node adds to the store what its paths have used. A node that dies loses what it has counted since.
const UsageEvery = time.Minute

// KeepUsage adds to the store what paths use, and reads the error budgets of all nodes, until ctx ends.
func (st *Steering) KeepUsage(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-st.Clock.Known: // before that, nobody knows the day
	}
	for next := time.Duration(0); clock.Pause(ctx, next); next = UsageEvery {
		st.SaveUsage(ctx)
	}
}

// SaveUsage adds to the store what paths have used since the last time. What the store does not take stays for the next time.
// If only its answer is lost, the store counts these calls twice.
func (st *Steering) SaveUsage(ctx context.Context) {
	select {
	case <-st.Clock.Known:
	default:
		return
	}
	st.saving.Lock()
	defer st.saving.Unlock()
	ctx, cancel := context.WithTimeout(ctx, clock.StoreTimeout)
	defer cancel()
	now := st.Clock.Now()
	st.spendCPU(now)
	var week []store.Use
	err := st.Store.Usage.AddUsage(ctx, st.Stats.SendUsage(), stats.OldestUsage(now))
	if err != nil {
		st.Stats.ReturnUsage()
		st.Metrics.Failed("usage")
		return
	}
	st.Stats.UsageSent()
	if len(st.Targets()) == 0 {
		return
	}
	err = st.Store.Usage.TimedSince(ctx, stats.BudgetSince(now), func(u store.Use) { week = append(week, u) })
	if err != nil {
		st.Metrics.Failed("usage")
		return
	}
	st.Stats.SetBudgets(week)
}
