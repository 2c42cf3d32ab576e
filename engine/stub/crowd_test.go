package stub

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// flood lets n requests come at once and returns how long the last one took.
func flood(ctx context.Context, c *crowd, n int) time.Duration {
	began := time.Now()
	var all sync.WaitGroup
	for range n {
		all.Go(func() { c.wait(ctx, 100*time.Millisecond, false) })
	}
	all.Wait()
	return time.Since(began)
}

func TestOverloadMakesARouteSlower(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{spec: &Overload{Above: 10, Factor: 2, Per: 10}}
		defer c.close()
		if took := flood(t.Context(), c, 10); took != 100*time.Millisecond {
			t.Errorf("as many as it bears: want 100ms, have %s", took)
		}
		if took := flood(t.Context(), c, 30); took != 400*time.Millisecond {
			t.Errorf("20 more than it bears: want four times as long, have %s", took)
		}
	})
}

func TestRequestsOfThoseWhoHaveLeftKeepARouteSlow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{spec: &Overload{Above: 10, Factor: 2, Per: 10}}
		defer c.close()
		impatient, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		flood(impatient, c, 60)
		if took := flood(t.Context(), c, 1); took < time.Second {
			t.Errorf("want an answer only when 60 others have got theirs, have one after %s", took)
		}
		if took := flood(t.Context(), c, 1); took != 100*time.Millisecond {
			t.Errorf("want an answer at once when they are gone, have one after %s", took)
		}
	})
}

func TestRequestsThatHangAreNotStretched(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{spec: &Overload{Above: 0, Factor: 1000, Per: 1}}
		defer c.close()
		began := time.Now()
		c.wait(t.Context(), time.Second, true)
		if took := time.Since(began); took != time.Second {
			t.Errorf("want 1s, have %s", took)
		}
	})
}
