package clock

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestBackoffDoublesUpToItsMost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		b := Backoff{First: 10 * time.Millisecond, Most: 35 * time.Millisecond}
		for i, want := range []time.Duration{10, 20, 35, 35, 10} {
			if i == 4 {
				b.Reset()
			}
			began := time.Now()
			if !b.Pause(ctx) || time.Since(began) != want*time.Millisecond {
				t.Errorf("pause %d: want %d ms, have %v", i, want, time.Since(began))
			}
		}
		cancel()
		if began := time.Now(); b.Pause(ctx) || time.Since(began) != 0 {
			t.Error("want no pause once the context has ended")
		}
	})
}
