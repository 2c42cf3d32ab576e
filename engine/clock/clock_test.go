package clock

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

// Beats may be slow in any part of their way. A wait that a node begins never ends before its
// time has passed at the store, nothing is due early, and no time goes back.
func TestClockIsOnTheSafeSideHoweverSlowBeatsAre(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		synctest.Test(t, func(t *testing.T) { tellTime(t, rand.New(rand.NewPCG(seed, 1))) })
	}
}

func tellTime(t *testing.T, random *rand.Rand) {
	ahead := time.Duration(random.Int64N(int64(2*time.Hour))) - time.Hour
	store := func() time.Time { return time.Now().Add(ahead) }
	c := Clock{Known: make(chan struct{})}
	type wait struct{ began, due time.Time }
	const long = 1500 * time.Millisecond
	var waits []wait
	var last time.Time
	for range 40 {
		asked := time.Now()
		time.Sleep(time.Duration(random.ExpFloat64() * float64(100*time.Millisecond)))
		read := store()
		if random.IntN(3) == 0 {
			time.Sleep(2 * time.Second)
		}
		c.Set(read, asked, time.Now())
		for range 10 {
			now, latest := c.Now(), c.Latest()
			if now.After(store()) || latest.Before(store()) {
				t.Fatalf("want %s within the bounds, have %s to %s", store(), now, latest)
			}
			if now.Before(last) {
				t.Fatalf("the time goes back from %s to %s", last, now)
			}
			last = now
			for _, w := range waits {
				if !w.due.After(now) && store().Sub(w.began) < long {
					t.Fatalf("a wait of %s took %s", long, store().Sub(w.began))
				}
			}
			waits = append(waits, wait{store(), latest.Add(long)})
			time.Sleep(80 * time.Millisecond)
		}
	}
	if width := c.Latest().Sub(c.Now()); width > 100*time.Millisecond {
		t.Errorf("after many answers the bounds are still %s apart", width)
	}
}

// A clock that is set is followed.
func TestClockFollowsAStoreWhoseClockIsSet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := Clock{Known: make(chan struct{})}
		for _, ahead := range []time.Duration{0, time.Hour, -time.Hour, -time.Hour} {
			time.Sleep(time.Second)
			c.Set(time.Now().Add(ahead), time.Now(), time.Now())
			if have := time.Until(c.Now()); have != ahead {
				t.Errorf("want the store's clock %s ahead, have %s", ahead, have)
			}
		}
	})
}
