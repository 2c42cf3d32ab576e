package engine

import (
	"context"
	"time"

	"procaas/engine/clock"
	"procaas/engine/stats"
	"procaas/engine/store"
)

// measure keeps the gauges of the inbox up to date, and what is counted at the
// handlers and pipelines of the present definition, and watches services. However
// slow counting what waits is, it takes a small part of the time.
func (e *Engine) measure(ctx context.Context) {
	const share = 50
	count, next, down := time.Now(), time.Duration(0), map[string]bool{}
	for ; clock.Pause(ctx, next); next = store.BeatEvery {
		began := time.Now()
		e.stats.Follow(e.library.Present(), began)
		e.watchServices(down)
		if began.Before(count) {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, clock.StoreTimeout)
		d, err := e.depth(limited)
		cancel()
		if err == nil {
			e.metrics.Inbox(d, e.clock.Now())
			e.backlog.Store(stats.NewBacklog(d, e.clock.Now()))
		}
		count = time.Now()
		if took := count.Sub(began); e.o.Store.Gauge == nil {
			count = count.Add(share * took)
		}
	}
}

// depth tells how much waits.
func (e *Engine) depth(ctx context.Context) (store.Depth, error) {
	if e.o.Store.Gauge != nil {
		return e.o.Store.Gauge.GaugeDepth(ctx)
	}
	return e.o.Store.Inbox.Depth(ctx)
}

// Backlog tells what waits on all nodes, as it was counted last.
func (e *Engine) Backlog() stats.BacklogView {
	return e.backlog.Load().View(e.settings.Controls(), e.clock.Now())
}
