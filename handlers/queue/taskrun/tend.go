package taskrun

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"procaas/engine/clock"
	"procaas/engine/guard"
	"procaas/engine/store"
)

// These bound the maintenance that every serving process does.
const (
	tendAtOnce = 1000
	tendMost   = time.Second // longest time between two looks
	tendLeast  = 10 * time.Millisecond
)

// Ended tasks are deleted at this interval, the first time after a random part of it, because nodes
// are often started together.
const (
	expirePause = time.Hour
	expireFirst = 10 * time.Minute
	expireTime  = 10 * time.Minute // timeout
)

// TendTasks maintains the queue until ctx ends. It makes due tasks ready, reclaims tasks whose
// worker no longer reports, and deletes tasks that succeeded longer ago than keep. 0 keeps them
// forever. Dead letters stay until somebody decides.
func TendTasks(ctx context.Context, tasks store.TaskMaintenance, keep time.Duration, log *slog.Logger) {
	var expiring sync.WaitGroup
	defer expiring.Wait()
	expiring.Go(func() { expireTasks(ctx, tasks, keep, log) })
	failing := false
	for {
		wait, err := tendTasks(ctx, tasks)
		if ctx.Err() != nil {
			return
		}
		if err != nil && !failing {
			log.Warn("tasks are not cared for", "error", err)
		}
		failing = err != nil
		if !clock.Pause(ctx, wait) {
			return
		}
	}
}

// expireTasks deletes tasks, separately from the frequent maintenance because it may take long. It
// is called even if all tasks are kept, because a store also creates partitions for the next days
// then.
func expireTasks(ctx context.Context, tasks store.TaskMaintenance, keep time.Duration, log *slog.Logger) {
	if keep <= 0 {
		keep = store.MaxTaskAhead
	}
	for wait := rand.N(expireFirst); clock.Pause(ctx, wait); wait = expirePause {
		bounded, cancel := context.WithTimeout(ctx, expireTime)
		_, err := tasks.ExpireTasks(bounded, keep, 0)
		cancel()
		if err != nil && ctx.Err() == nil {
			log.Warn("tasks that ended long ago cannot be forgotten, trying again later", "after", expirePause, "error", err)
		}
	}
}

// These are the shortest and longest time between two looks for tasks that wait too long, and its
// share of that wait.
const (
	raiseLeast = time.Second
	raiseMost  = time.Minute
	raisePart  = 8
)

// RaisePause returns when to look again for ready tasks that have waited too long. See
// [store.TaskMaintenance]. more says that there may be more of them now.
func RaisePause(wait time.Duration, more bool) time.Duration {
	if more {
		return tendLeast
	}
	return min(max(wait/raisePart, raiseLeast), raiseMost)
}

// tendTasks does one round, and returns how long to wait.
func tendTasks(ctx context.Context, tasks store.TaskMaintenance) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*taskCallMost)
	defer cancel()
	n, next, err := tasks.PromoteTasks(ctx, tendAtOnce)
	if err != nil {
		return tendMost, err
	}
	reclaimed, err := tasks.ReclaimTasks(ctx, tendAtOnce, guard.MaxLost)
	if err != nil {
		return tendMost, err
	}
	if n == tendAtOnce || reclaimed == tendAtOnce {
		return tendLeast, nil
	}
	if next == 0 {
		return tendMost, nil
	}
	return min(max(next, tendLeast), tendMost), nil
}
