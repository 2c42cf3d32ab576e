// Package patience says how long a test waits for what must come on a busy machine.
//
// A test waits for events. A bound only makes a test that waits in vain report what it waits for.
// Bounds are given for an idle machine, and grow with the load of the machine, also during the
// wait.
package patience

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"
)

// usual is the bound of Until on an idle machine, far longer than anything takes there.
const usual = time.Minute

// crowd returns how many tasks share a processor now, at least one: the load of the last minute per
// processor. If the system does not report it, four are assumed.
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

// For returns how long something may take now if it takes less than d on an idle machine.
func For(d time.Duration) time.Duration { return time.Duration(float64(d) * crowd()) }

// Over starts a wait for something that takes less than d on an idle machine. over reports whether
// the time is over. The time grows if the machine gets busier meanwhile, and never shrinks.
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

// Context returns a context that ends when Over does.
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

// After is [time.After] with the time of Over.
func After(t testing.TB, d time.Duration) <-chan struct{} {
	ctx, cancel := Context(context.Background(), d)
	t.Cleanup(cancel)
	return ctx.Done()
}

// Until asks at once, and then ever more rarely, until something holds. Answers take processor time, which what is awaited needs, too.
// The test fails with a message after ten times what an idle machine needs.
func Until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	began := time.Now()
	for over := Over(usual); !holds(); time.Sleep(pause(time.Since(began))) {
		if over() {
			t.Fatalf("%s: not within %s", what, time.Since(began).Round(time.Second))
		}
	}
}

// pause returns how long to wait before the next question: a twentieth of the wait so far, so that the answer comes late by that much at most.
func pause(waited time.Duration) time.Duration {
	return min(max(waited/20, 5*time.Millisecond), 50*time.Millisecond)
}
