package triggers_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"procaas/dsl/tree"
	"procaas/engine/clock"
	"procaas/engine/store"
	"procaas/engine/triggers"
)

// noHolds is that operators hold no path.
type noHolds struct{ triggers.Holds }

func (noHolds) Refresh(context.Context) error { return nil }

// A node whose definition has no triggers sleeps until another definition comes.
func TestANodeWithoutTriggersRests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var (
			ctx, stop = context.WithCancel(t.Context())
			reloaded  store.Broadcast
			bundle    = &tree.Bundle{}
			looks     int
		)
		f := &triggers.Firer{
			Clock: &clock.Clock{Known: make(chan struct{})}, Log: slog.New(slog.DiscardHandler), Holds: noHolds{}, Reloaded: reloaded.Next,
			Bundle: func() *tree.Bundle {
				looks++
				return bundle
			},
		}
		f.Clock.Set(time.Now(), time.Now(), time.Now())
		var firing sync.WaitGroup
		firing.Go(func() { f.Run(ctx) })
		time.Sleep(time.Hour)
		if looks > 2 {
			t.Errorf("want no looks while there is nothing to fire, have %d in an hour", looks)
		}
		before := looks
		bundle = &tree.Bundle{}
		reloaded.Send()
		synctest.Wait()
		if looks == before {
			t.Error("want another definition taken at once")
		}
		stop()
		firing.Wait()
	})
}
