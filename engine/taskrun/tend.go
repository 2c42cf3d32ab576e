package taskrun

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"procaas/engine/clock"
	"procaas/engine/store"
)

// How tasks are cared for by every process that serves them.
const (
	tendAtOnce = 1000
	tendMost   = time.Second // between two looks
	tendLeast  = 10 * time.Millisecond

	// MaxTaskLost is how often the worker of a task may be lost before the task
	// fails for good.
	MaxTaskLost = 5
)

// Ended tasks are forgotten that often, for the first time after a part of it that is drawn
// by lot: nodes are often started together.
const (
	expirePause = time.Hour
	expireFirst = 10 * time.Minute
	expireTime  = 10 * time.Minute // that it may take
)

// TendTasks makes tasks ready whose time has come, takes those back whose worker is not
// heard of any more, and forgets those that ended well longer ago than keep, until ctx
// ends; 0 keeps them forever. Dead letters stay until somebody decides.
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

// expireTasks forgets tasks, apart from what is done each second: it may take long. A store
// makes room for the coming days then, too, so it is called though all is kept.
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

// The least and the longest time between two looks for tasks that wait for too long,
// and what part of that wait it is.
const (
	raiseLeast = time.Second
	raiseMost  = time.Minute
	raisePart  = 8
)

// RaisePause says after what time to look again for ready tasks that have waited for
// too long, see [store.TaskMaintenance]; more says that there may be more of them now.
func RaisePause(wait time.Duration, more bool) time.Duration {
	if more {
		return tendLeast
	}
	return min(max(wait/raisePart, raiseLeast), raiseMost)
}

// tendTasks looks once, and says for how long to wait.
func tendTasks(ctx context.Context, tasks store.TaskMaintenance) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*taskCallMost)
	defer cancel()
	n, next, err := tasks.PromoteTasks(ctx, tendAtOnce)
	if err != nil {
		return tendMost, err
	}
	reclaimed, err := tasks.ReclaimTasks(ctx, tendAtOnce, MaxTaskLost)
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
