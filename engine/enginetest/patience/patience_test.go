package patience_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"procaas/engine/enginetest/patience"
)

func TestPatienceEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began, over := time.Now(), patience.Over(time.Minute)
		if over() {
			t.Error("it is over before it has begun")
		}
		ctx, cancel := patience.Context(t.Context(), time.Minute)
		defer cancel()
		<-ctx.Done()
		if !errors.Is(context.Cause(ctx), context.DeadlineExceeded) || time.Since(began) < time.Minute {
			t.Errorf("have %v after %v, want it to end behind a minute", context.Cause(ctx), time.Since(began))
		}
	})
}

func TestUntilAsksAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		patience.Until(t, "the third answer", func() bool { asked++; return asked == 3 })
		if asked != 3 {
			t.Errorf("it was asked %d times", asked)
		}
	})
}

func TestUntilAsksLessAndLess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked, began := 0, time.Now()
		patience.Until(t, "ten seconds", func() bool { asked++; return time.Since(began) >= 10*time.Second })
		if late := time.Since(began) - 10*time.Second; asked > 300 || late > 50*time.Millisecond {
			t.Errorf("it was asked %d times, and returned %s late", asked, late)
		}
	})
}
