package taskrun

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"procaas/engine/store"
)

// A taskCare counts what is done for the queue.
type taskCare struct {
	store.TaskMaintenance
	promoted, reclaimed, expired int
	keep                         time.Duration
}

func (c *taskCare) PromoteTasks(context.Context, int) (int, time.Duration, error) {
	c.promoted++
	return 0, 0, nil
}

func (c *taskCare) ReclaimTasks(context.Context, int, int) (int, error) {
	c.reclaimed++
	return 0, nil
}

func (c *taskCare) ExpireTasks(_ context.Context, ended, failed time.Duration) (int, error) {
	c.expired, c.keep = c.expired+1, ended
	if failed != 0 {
		return 0, errors.New("dead letters stay")
	}
	time.Sleep(5 * time.Minute) // the others do not wait for it
	return 0, nil
}

// A node that has no pipelines for it cares for the queue, too: without that the history of
// tasks would grow forever.
func TestNodesCareForTasks(t *testing.T) {
	t.Parallel()
	for keep, want := range map[time.Duration]time.Duration{time.Hour: time.Hour, 0: store.MaxTaskAhead} {
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithTimeout(t.Context(), 150*time.Minute)
			defer stop()
			var care taskCare
			TendTasks(ctx, &care, keep, slog.New(slog.DiscardHandler))
			if least := int(149 * time.Minute / time.Second); care.promoted < least || care.reclaimed < least {
				t.Errorf("have %+v, want tasks promoted and taken back each second", care)
			}
			if care.expired < 2 || care.expired > 3 || care.keep != want {
				t.Errorf("have %+v, want those forgotten each hour that ended longer ago than %v", care, want)
			}
		})
	}
}
