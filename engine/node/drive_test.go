package node

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"procaas/engine/definitions"
	"procaas/engine/store"
)

// A run must have one driver at a time, and no news may be lost: not one that comes while the
// driver ends its turn.
func TestOneGoroutineDrivesARunAndHearsAllNews(t *testing.T) {
	t.Parallel()
	const each = 2_000
	var turn turn
	var drivers, heard, stirred atomic.Int64
	var drive func()
	var driving sync.WaitGroup
	drive = func() {
		defer driving.Done()
		if drivers.Add(1) > 1 {
			t.Error("two goroutines drive the run")
		}
		for {
			calls, stir := turn.collect()
			heard.Add(int64(len(calls)))
			if stir {
				stirred.Add(1)
			}
			drivers.Add(-1)
			if turn.rest(0, false, nil) {
				return
			}
			if drivers.Add(1) > 1 {
				t.Error("two goroutines drive the run")
			}
		}
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for i := range each {
				tell := func() bool { return turn.end(&ended{}) }
				if i%10 == 0 {
					tell = turn.stir
				}
				if tell() {
					driving.Add(1)
					drive()
				}
			}
		})
	}
	all.Wait()
	driving.Wait()
	if want := int64(4 * each * 9 / 10); heard.Load() != want || stirred.Load() == 0 {
		t.Errorf("want %d ends heard and some stirs, have %d and %d", want, heard.Load(), stirred.Load())
	}
}

type ringFunc func()

func (f ringFunc) ring() { f() }

func TestATimerStirsARunThatRests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var turn turn
		began, rung := time.Now(), []time.Duration{}
		ring := ringFunc(func() {
			turn.rang()
			if turn.stir() {
				rung = append(rung, time.Since(began))
				turn.collect()
			}
		})
		rest := func(delay time.Duration) {
			turn.collect()
			if !turn.rest(delay, true, ring) {
				t.Fatal("want the run to rest, have news")
			}
		}
		turn.stir()
		rest(100 * time.Millisecond)
		time.Sleep(50 * time.Millisecond)
		turn.stir()
		rest(time.Second) // the earlier time stays
		time.Sleep(60 * time.Millisecond)
		rest(20 * time.Millisecond)
		time.Sleep(30 * time.Millisecond)
		rest(time.Second)
		turn.over()
		time.Sleep(2 * time.Second)
		if len(rung) != 2 || rung[0] != 100*time.Millisecond || rung[1] != 130*time.Millisecond {
			t.Errorf("want the timer after 100ms and 130ms, have %v", rung)
		}
	})
}

// A node must let go of a run whose core panics. Otherwise the run would keep its room until the node stops.
func TestARunThatPanicsIsOver(t *testing.T) {
	t.Parallel()
	ended, end := context.WithCancel(t.Context())
	end() // the failure of the run need not be saved
	n := &node{ctx: t.Context(), draining: make(chan struct{}), steps: committer{ctx: ended}}
	n.steps.start()
	var text strings.Builder
	j := &job{n: n, claimed: &store.Claimed{}, begun: true, def: &definitions.Definition{}, log: slog.New(slog.NewTextHandler(&text, nil))} // it has no run
	if j.round() || !strings.Contains(text.String(), "run panicked") {
		t.Errorf("want the run to be over after its panic, have more to do, and the log %q", text.String())
	}
}
