package guard_test

import (
	"testing"
	"time"

	"procaas/engine/guard"
)

// inFlight is how many calls were in flight when the node died.
const inFlight = 500

// takeOver makes room for all calls of a node that died, and starts those that find some.
func takeOver(g *guard.Gradient, now time.Time) (started int) {
	for range inFlight {
		g.TakeOver()
		if g.Start(now) {
			started++
		}
	}
	return started
}

// A service that answers gets all calls again that it had when the node died, before it answers the
// first of them.
func TestCallsOfADeadNodeStartAtOnce(t *testing.T) {
	t.Parallel()
	g, now := guard.NewGradient(0), time.Unix(1_800_000_000, 0)
	g.Bound(1024, 0, 0)
	if started := takeOver(g, now); started != inFlight || g.Start(now) {
		t.Errorf("want the %d calls that were in flight to start, and no other; have %d, and a limit of %d", inFlight, started, g.Limit())
	}
	for range inFlight {
		g.End("", true, time.Second, now.Add(time.Second))
		g.Start(now.Add(time.Second))
	}
	if g.Limit() <= inFlight {
		t.Errorf("all of them succeeded: want a higher limit, have %d", g.Limit())
	}
}

// The files bound the calls, however many were in flight.
func TestCallsOfADeadNodeKeepTheBound(t *testing.T) {
	t.Parallel()
	g := guard.NewGradient(0)
	g.Bound(30, 0, 0)
	if started := takeOver(g, time.Unix(1_800_000_000, 0)); started != 30 {
		t.Errorf("want 30 calls, have %d", started)
	}
}

// A service that is down gets a few calls at a time, as if no node had died.
func TestCallsOfADeadNodeSpareAServiceThatIsDown(t *testing.T) {
	t.Parallel()
	for name, all := range map[string]bool{"refuses each call before the next one comes": false, "refuses all at once": true} {
		g, now := guard.NewGradient(0), time.Unix(1_800_000_000, 0)
		g.Bound(1024, 0, 0)
		reached := 0
		for range inFlight {
			g.TakeOver()
			if g.Start(now) {
				reached++
				if !all {
					g.End("", false, time.Millisecond, now)
				}
			}
		}
		if !all {
			if reached > inFlight || g.Limit() > 20 {
				t.Errorf("%s: %d calls reached it, and the limit is %d, want at most 20", name, reached, g.Limit())
			}
			continue
		}
		for range 10 {
			g.End("", false, time.Millisecond, now)
		}
		if !g.Failing() || g.Limit() > 10 || g.Start(now) {
			t.Errorf("%s: after 10 failures, want a limit of at most 10 and no further call, have %d", name, g.Limit())
		}
		for range reached - 10 {
			g.End("", false, time.Millisecond, now)
		}
		now = now.Add(time.Second)
		before := g.Limit()
		g.TakeOver()
		if g.Limit() > before {
			t.Errorf("%s: further calls of the node raise the limit from %d to %d", name, before, g.Limit())
		}
	}
}

// A service that is coming back gets no burst when runs of a dead node come to it.
func TestCallsOfADeadNodeSpareAServiceThatComesBack(t *testing.T) {
	t.Parallel()
	g, now := guard.NewGradient(0), time.Unix(1_800_000_000, 0)
	press(g, &now, 20*time.Second, time.Second, func(int) bool { return false })
	press(g, &now, 2*time.Second, 100*time.Millisecond, func(int) bool { return true })
	before := g.Limit()
	if before >= 20 || g.Failing() {
		t.Fatalf("want a service that is coming back, have a limit of %d", before)
	}
	if takeOver(g, now); g.Limit() != before {
		t.Errorf("want the limit of before, %d, have %d", before, g.Limit())
	}
}
