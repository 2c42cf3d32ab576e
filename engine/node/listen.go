package node

import (
	"context"
	"time"

	"procaas/engine/clock"
	"procaas/engine/core"
)

// listenEvery is how often a run that waits for an event looks for it while calls of
// it are under way. A parked run is woken.
const listenEvery = time.Second

// offeredMost is how many pending events are looked at in one go.
const offeredMost = 100

// ready asks the core what may start, with the events that it waits for. An event that
// has come in time counts before a timeout.
func (j *job) ready() []core.Attempt {
	if reason := j.stopping.Load(); reason != nil {
		j.run.Stop(*reason, j.n.d.Clock.Now())
	}
	j.listen()
	tasks := j.run.Ready(j.live())
	for j.listen() {
		tasks = append(tasks, j.run.Ready(j.live())...)
	}
	return tasks
}

// listen hands the core what is pending of the events that it waits for, and tells
// whether it has taken any. While the store cannot tell, it waits.
func (j *job) listen() (taken bool) {
	for backoff := 10 * time.Millisecond; ; {
		a, ok := j.run.Awaits()
		if !ok {
			return taken
		}
		ctx, cancel := context.WithTimeout(j.n.ctx, clock.StoreTimeout)
		pending, err := j.n.d.Store.Inbox.Pending(ctx, j.claimed.Flow, j.claimed.Key, a.Types, a.Heard, offeredMost)
		cancel()
		if err != nil {
			j.at("").Warn("events that the run waits for cannot be read, trying again", "error", err)
			if !clock.Pause(j.n.calls, backoff) || j.n.isDraining() {
				return taken
			}
			backoff = min(2*backoff, clock.MaxBackoff)
			continue
		}
		taken = j.run.Offer(pending, j.live()) || taken
		if len(pending) < offeredMost {
			return taken
		}
	}
}
