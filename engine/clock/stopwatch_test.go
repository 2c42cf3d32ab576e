package clock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"procaas/engine/clock"
)

// A call that waits for its own node has its whole time left afterwards, with all timeouts around it.
func TestSuspendStopsTheTimeOfACall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		outer, cancelOuter := clock.WithTimeout(t.Context(), 3*time.Second)
		defer cancelOuter()
		inner, cancelInner := clock.WithTimeout(outer, 2*time.Second)
		defer cancelInner()
		below, cancelBelow := context.WithCancel(inner)
		defer cancelBelow()
		time.Sleep(time.Second)
		resume := clock.Suspend(below)
		again := clock.Suspend(below) // two replies of one call
		if _, limited := inner.Deadline(); limited {
			t.Error("want no deadline while the time is stopped")
		}
		time.Sleep(time.Minute)
		resume()
		time.Sleep(time.Minute)
		again()
		if end, limited := below.Deadline(); !limited || time.Until(end) != time.Second {
			t.Errorf("want a second left, have %s, %v", time.Until(end), limited)
		}
		time.Sleep(time.Second - 1)
		synctest.Wait()
		if below.Err() != nil {
			t.Fatalf("want the call within its time, have %v", below.Err())
		}
		time.Sleep(1)
		synctest.Wait()
		for _, ctx := range []context.Context{inner, below} {
			if !errors.Is(ctx.Err(), context.DeadlineExceeded) || !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
				t.Errorf("want the end of the time, have %v, %v", ctx.Err(), context.Cause(ctx))
			}
		}
		if outer.Err() != nil {
			t.Errorf("want the time around it not over, have %v", outer.Err())
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if !errors.Is(outer.Err(), context.DeadlineExceeded) {
			t.Errorf("want the time around it over, too, have %v", outer.Err())
		}
		cancelled, cancel := clock.WithTimeout(t.Context(), time.Second)
		cancel()
		if !errors.Is(cancelled.Err(), context.Canceled) {
			t.Errorf("want a cancelled context, have %v", cancelled.Err())
		}
	})
}

// What ends the call ends what waits for it: the timeout, the context around it, and its own cancel.
func TestTheEndOfACallIsToldOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for name, end := range map[string]func(outer, own context.CancelFunc){
			"the time is up":                func(_, _ context.CancelFunc) { time.Sleep(time.Second); synctest.Wait() },
			"the context around it ends":    func(outer, _ context.CancelFunc) { outer() },
			"it is cancelled":               func(_, own context.CancelFunc) { own() },
			"it ends for all these reasons": func(outer, own context.CancelFunc) { time.Sleep(time.Second); outer(); own() },
		} {
			around, outer := context.WithCancel(t.Context())
			ctx, own := clock.WithTimeout(around, time.Second)
			below, cancelBelow := context.WithCancel(ctx)
			told, untold, late := 0, 0, 0
			context.AfterFunc(ctx, func() { told++ })
			stop := context.AfterFunc(ctx, func() { untold++ })
			if !stop() || stop() {
				t.Errorf("%s: want the first stop to be in time, and only that", name)
			}
			end(outer, own)
			if ctx.Err() == nil {
				t.Errorf("%s: want an error", name)
			}
			first := ctx.Err()
			<-ctx.Done()
			<-below.Done()
			synctest.Wait()
			context.AfterFunc(ctx, func() { late++ })
			outer()
			own()
			synctest.Wait()
			if told != 1 || untold != 0 || late != 1 || !errors.Is(ctx.Err(), first) {
				t.Errorf("%s: want one call each, none of the stopped one, and the same error; have %d, %d, %d, %v", name, told, late, untold, ctx.Err())
			}
			cancelBelow()
		}
	})
}

// The end of a run ends its calls, also those whose context has values, and those that begin afterwards. A call that has
// ended is forgotten, and the others still hear of the end.
func TestTheEndOfARunEndsItsCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		calls, over := clock.WithCancel(t.Context())
		if _, limited := calls.Deadline(); limited {
			t.Error("want no deadline of a run")
		}
		resume := clock.Suspend(calls)
		resume()
		var open []context.Context
		var ended []context.CancelFunc
		for i := range 6 {
			around := calls
			if i%2 == 0 {
				around = context.WithValue(calls, key{}, i)
			}
			call, cancel := clock.WithTimeout(around, time.Minute)
			inside, cancelInside := clock.WithTimeout(call, time.Hour)
			defer cancelInside()
			if i%3 == 0 {
				ended = append(ended, cancel)
				continue
			}
			defer cancel()
			open = append(open, call, inside)
		}
		for _, end := range ended {
			end()
		}
		told := 0
		context.AfterFunc(open[1], func() { told++ })
		for _, ctx := range open {
			if ctx.Err() != nil {
				t.Errorf("want the call open, have %v", ctx.Err())
			}
		}
		over()
		over()
		synctest.Wait()
		late, cancelLate := clock.WithTimeout(calls, time.Minute)
		defer cancelLate()
		for _, ctx := range append(open, late) {
			<-ctx.Done()
			if !errors.Is(ctx.Err(), context.Canceled) {
				t.Errorf("want the call cancelled, have %v", ctx.Err())
			}
		}
		if told != 1 {
			t.Errorf("want the end told once, have %d", told)
		}
	})
}

// Calls of one run begin and end at once, while the run ends.
func TestCallsBeginAndEndWhileTheirRunEnds(t *testing.T) {
	t.Parallel()
	for range 200 {
		calls, over := clock.WithCancel(t.Context())
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				call, cancel := clock.WithTimeout(calls, time.Minute)
				inside, cancelInside := clock.WithTimeout(call, time.Minute)
				cancel()
				<-inside.Done()
				cancelInside()
				waits, cancelWaits := clock.WithTimeout(calls, time.Minute)
				defer cancelWaits()
				<-waits.Done()
			})
		}
		all.Go(over)
		all.Wait()
	}
}
