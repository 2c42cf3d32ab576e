package guard_test

import (
	"testing"
	"time"

	"procaas/engine/guard"

	"pgregory.net/rapid"
)

// highestLimit is the largest limit, unless the files say otherwise.
const highestLimit = 256

// press keeps a Gradient as full as it lets it, with calls that take a time.
func press(g *guard.Gradient, now *time.Time, length, took time.Duration, good func(call int) bool) {
	call := 0
	for end := now.Add(length); now.Before(end); *now = now.Add(took) {
		started := 0
		for g.Start(*now) {
			started++
		}
		for range started {
			g.End("", good(call), took, now.Add(took))
			call++
		}
	}
}

func TestGradientFallsToOneCallAndRises(t *testing.T) {
	t.Parallel()
	g, now := guard.NewGradient(0), time.Unix(1_800_000_000, 0)
	press(g, &now, 20*time.Second, 100*time.Millisecond, func(int) bool { return true })
	if g.Limit() != highestLimit {
		t.Errorf("healthy and full: have a limit of %d, want %d", g.Limit(), highestLimit)
	}
	press(g, &now, 20*time.Second, 2*time.Second, func(int) bool { return false })
	if g.Limit() != 1 {
		t.Errorf("down: have a limit of %d, want 1", g.Limit())
	}
	press(g, &now, 10*time.Second, 100*time.Millisecond, func(int) bool { return true })
	if g.Limit() < 50 {
		t.Errorf("up again for 10s: have a limit of %d, want 50 or more", g.Limit())
	}
}

// The job of a week fails now and then, and that says nothing about its service.
func TestGradientForgetsCallsOfLongAgo(t *testing.T) {
	t.Parallel()
	for apart, fails := range map[time.Duration]bool{time.Minute: true, 7 * 24 * time.Hour: false} {
		g, now := guard.NewGradient(0), time.Unix(1_800_000_000, 0)
		for range 30 {
			if !g.Start(now) {
				t.Fatal("one call at a time must start")
			}
			g.End("", false, time.Second, now)
			now = now.Add(apart)
		}
		if g.Failing() != fails || g.Down() != fails {
			t.Errorf("30 failed calls, each %s after another: failing is %v, down is %v, want %v", apart, g.Failing(), g.Down(), fails)
		}
	}
}

// pressOn makes calls that take a time, each as soon as another one ends.
func pressOn(g *guard.Gradient, now *time.Time, calls int, took time.Duration, good func(call int) bool) {
	var ends []time.Time
	for call := range calls {
		for g.Start(*now) {
			ends = append(ends, now.Add(took))
		}
		*now, ends = ends[0], ends[1:]
		g.End("", good(call), took, *now)
	}
	for range ends {
		g.Drop()
	}
}

// A process that starts anew meets all that it had in hand, and all that has come since.
func TestGradientDoublesUntilItMeetsWhatTheServiceBears(t *testing.T) {
	t.Parallel()
	all := func(int) bool { return true }
	g, now := guard.NewGradient(0), time.Unix(1_800_000_000, 0)
	began := now
	pressOn(g, &now, 20+40+80+160, 50*time.Millisecond, all)
	if g.Limit() != highestLimit || now.Sub(began) > 8*50*time.Millisecond {
		t.Errorf("rounds of calls that are as fast as before: have a limit of %d after %s, want %d", g.Limit(), now.Sub(began), highestLimit)
	}

	g = guard.NewGradient(0)
	pressOn(g, &now, 20+40, 50*time.Millisecond, func(call int) bool { return call < 20 || call%3 > 0 })
	if g.Limit() != 40 {
		t.Errorf("every third call fails in the second round: have a limit of %d, want 40", g.Limit())
	}
	pressOn(g, &now, 400, 50*time.Millisecond, all)
	if g.Limit() > 80 {
		t.Errorf("half a second after that: have a limit of %d, want slow growth", g.Limit())
	}

	g = guard.NewGradient(0)
	pressOn(g, &now, 20, 50*time.Millisecond, all)
	pressOn(g, &now, 40, 500*time.Millisecond, all)
	if g.Limit() != 20 {
		t.Errorf("ten times slower with twice as many calls: have a limit of %d, want 20", g.Limit())
	}
}

// Fewer calls do not help a service that refuses every third of them.
func TestGradientHoldsWhileSomeFail(t *testing.T) {
	t.Parallel()
	g, now := guard.NewGradient(0), time.Unix(1_800_000_000, 0)
	press(g, &now, time.Minute, 100*time.Millisecond, func(call int) bool { return call%3 > 0 })
	if g.Limit() != 20 {
		t.Errorf("have a limit of %d, want the first one, 20", g.Limit())
	}
}

func TestGradientYieldsToAServiceThatSlowsDown(t *testing.T) {
	t.Parallel()
	g, now := guard.NewGradient(0), time.Unix(1_800_000_000, 0)
	press(g, &now, 3*time.Second, 100*time.Millisecond, func(int) bool { return true })
	before := g.Limit()
	press(g, &now, 3*time.Second, 400*time.Millisecond, func(int) bool { return true })
	if g.Limit() > before/2 {
		t.Errorf("four times slower: have a limit of %d after %d", g.Limit(), before)
	}
}

func TestGradientDoesNotGrowUnused(t *testing.T) {
	t.Parallel()
	g, now := guard.NewGradient(0), time.Unix(1_800_000_000, 0)
	for range 1000 {
		if !g.Start(now) {
			t.Fatal("an idle limit lets nobody in")
		}
		now = now.Add(100 * time.Millisecond)
		g.End("", true, 100*time.Millisecond, now)
	}
	if g.Limit() != 20 {
		t.Errorf("one call at a time: have a limit of %d, want 20", g.Limit())
	}
}

// What is short in comparison with the time-out is never too slow, even if it was
// before: else a service that once answered from its cache would stay at its limit.
func TestGradientGrowsWhileCallsAreShort(t *testing.T) {
	t.Parallel()
	g, now := guard.NewGradient(0), time.Unix(1_800_000_000, 0)
	g.Bound(0, 100*time.Millisecond, 0)
	press(g, &now, 3*time.Second, time.Millisecond, func(int) bool { return true })
	press(g, &now, 5*time.Second, 2*time.Second, func(int) bool { return false })
	low := g.Limit()
	press(g, &now, 20*time.Second, 40*time.Millisecond, func(int) bool { return true })
	if g.Limit() != highestLimit {
		t.Errorf("40ms after 1ms: have a limit of %d after %d, want %d", g.Limit(), low, highestLimit)
	}
}

// A service that has become slower for good is as fast as it is now.
func TestGradientLearnsWhatIsNormal(t *testing.T) {
	t.Parallel()
	g, now := guard.NewGradient(0), time.Unix(1_800_000_000, 0)
	press(g, &now, 10*time.Second, 100*time.Millisecond, func(int) bool { return true })
	press(g, &now, time.Minute, 500*time.Millisecond, func(int) bool { return true })
	if g.Limit() < 50 {
		t.Errorf("five times slower for a minute: have a limit of %d, want 50 or more", g.Limit())
	}
}

// Calls of one handler that always take longer than those of another do not make
// the service slow.
func TestGradientComparesCallsOfAKind(t *testing.T) {
	t.Parallel()
	g, now := guard.NewGradient(0), time.Unix(1_800_000_000, 0)
	for i := range 200 {
		kind, took := "quick", 10*time.Millisecond
		if i/20%2 == 1 { // in turns, each for longer than a window
			kind, took = "slow", time.Second
		}
		for g.Start(now) {
		}
		for range g.Limit() {
			g.End(kind, true, took, now.Add(100*time.Millisecond))
		}
		now = now.Add(100 * time.Millisecond)
	}
	if g.Limit() != highestLimit {
		t.Errorf("have a limit of %d, want %d", g.Limit(), highestLimit)
	}
}

// Never more calls than the limit start, and never none but in the pauses of a
// service that is down.
func TestGradientInvariants(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g, now, underway := guard.NewGradient(0), time.Unix(1_800_000_000, 0), 0
		for range rapid.IntRange(1, 500).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "start") {
				before, limit, down, next := underway, g.Limit(), g.Down(), g.Next()
				if g.Start(now) {
					underway++
				}
				free := before < limit && (!down || !now.Before(next))
				if started := underway > before; started != free {
					t.Fatalf("%d under way, limit %d, down %v, next call in %s: started is %v", before, limit, down, next.Sub(now), started)
				}
			} else if underway > 0 {
				now = now.Add(time.Duration(rapid.IntRange(0, 3000).Draw(t, "ms")) * time.Millisecond)
				g.End("", rapid.Bool().Draw(t, "good"), time.Duration(rapid.IntRange(0, 5000).Draw(t, "took"))*time.Millisecond, now)
				underway--
			}
			if g.Limit() < 1 || g.Limit() > highestLimit {
				t.Fatalf("limit %d", g.Limit())
			}
		}
	})
}
