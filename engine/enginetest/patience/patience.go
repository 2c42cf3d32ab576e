// Package patience says how long a test waits for what must come, on a machine that is busy with other work.
//
// A test waits for events; a bound is there only so that a test that waits in vain says for what. The bounds are given for
// an idle machine and grow with the load that the machine tells, also while a test waits.
package patience

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"
)

// usual is the bound of Until on an idle machine: far beyond what anything takes there.
const usual = time.Minute

// crowd returns how many tasks share a processor now, one at the least: the load of the last minute by processors. Where the
// system does not tell it, four are taken to.
func crowd() float64 {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 4
	}
	var load float64
	if _, err := fmt.Sscan(string(text), &load); err != nil {
		return 4
	}
	return max(1, load/float64(runtime.NumCPU()))
}

// For returns how long something takes at most now that takes less than d on an idle machine.
func For(d time.Duration) time.Duration { return time.Duration(float64(d) * crowd()) }

// Over begins to wait for something that takes less than d on an idle machine. What it returns tells whether the time is
// over; it grows when the machine gets busier meanwhile, and does not shrink.
func Over(d time.Duration) (over func() bool) {
	began, most := time.Now(), For(d)
	return func() bool {
		if time.Since(began) < most {
			return false
		}
		most = max(most, For(d))
		return time.Since(began) >= most
	}
}

// Context returns a context that ends as Over says.
func Context(parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	over := Over(d)
	tick := time.NewTicker(max(d/20, time.Millisecond))
	go func() {
		defer tick.Stop()
		for !over() {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
		cancel(context.DeadlineExceeded)
	}()
	return ctx, func() { cancel(context.Canceled) }
}

// After is what [time.After] is, with the time of Over.
func After(t testing.TB, d time.Duration) <-chan struct{} {
	ctx, cancel := Context(context.Background(), d)
	t.Cleanup(cancel)
	return ctx.Done()
}

// Until asks every few milliseconds until something holds. The test fails, saying what is missing, when an idle machine
// would have come to it ten times over.
func Until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	began := time.Now()
	for over := Over(usual); !holds(); <-tick.C {
		if over() {
			t.Fatalf("%s: not within %s", what, time.Since(began).Round(time.Second))
		}
	}
}
