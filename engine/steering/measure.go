package steering

import (
	"context"
	"time"

	"procaas/engine/clock"
	"procaas/engine/stats"
	"procaas/engine/store"
)

// Measure updates the gauges of the inbox and the counts of handlers and pipelines of the current
// definition, and watches services. If counting is slow, it counts less often.
func (st *Steering) Measure(ctx context.Context) {
	const share, least = 50, time.Second
	count, next, down := time.Now(), time.Duration(0), map[string]bool{}
	full := false
	for ; clock.Pause(ctx, next); next = store.BeatEvery {
		began := time.Now()
		st.Stats.Follow(st.Library.Present(), began)
		if !full && st.Stats.IsFull() {
			full = true
			st.Log.Warn("the metrics show no further handlers; the others are counted together", "shown", stats.MostNamed)
		}
		st.watchServices(down)
		st.Library.Trim(began)
		if began.Before(count) {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, clock.StoreTimeout)
		d, err := st.depth(limited)
		cancel()
		if err == nil {
			st.Metrics.Inbox(d, st.Clock.Now())
			st.backlog.Store(stats.NewBacklog(d, st.Clock.Now()))
		}
		count = time.Now()
		if took := count.Sub(began); st.Store.Gauge == nil {
			count = count.Add(max(share*took, least))
		}
	}
}

// depth counts the waiting runs.
func (st *Steering) depth(ctx context.Context) (store.Depth, error) {
	if st.Store.Gauge != nil {
		return st.Store.Gauge.GaugeDepth(ctx)
	}
	return st.Store.Inbox.Depth(ctx)
}

// Backlog returns the latest count of waiting runs on all nodes.
func (st *Steering) Backlog() stats.BacklogView {
	v := st.backlog.Load().View(st.Settings.Controls(), st.Clock.Now())
	v.Behind, v.Refused = append(v.Behind, st.Behind()...), append(v.Refused, st.Overused()...)
	return v
}

// Parked lists for metrics what the parked runs of all nodes wait for.
func (st *Steering) Parked() []stats.ParkedRuns {
	return st.backlog.Load().ForMetrics(st.Settings.Controls(), st.Clock.Now())
}

// watchServices logs when a service goes down or comes back. known has those that were down before.
func (st *Steering) watchServices(known map[string]bool) {
	for _, s := range st.Services() {
		switch {
		case s.Down && !known[s.ID]:
			st.Log.Warn("service is down, one call at a time finds out when it is back", "service", s.ID, "waiting", s.Waiting)
		case !s.Down && known[s.ID]:
			st.Log.Info("service is back", "service", s.ID, "waiting", s.Waiting)
		}
		known[s.ID] = s.Down
	}
}
