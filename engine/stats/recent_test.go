package stats_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"procaas/engine/stats"
)

// Handlers are active for a minute after an attempt, and again after the next one. Handlers without an attempt are not.
func TestActiveHandlersAreThoseOfTheLastMinute(t *testing.T) {
	t.Parallel()
	s := &stats.Stats{Metrics: stats.NewMetrics(prometheus.NewRegistry())}
	now := time.Now()
	s.Path("p/s/idle")
	call := func(err error) { s.Path("p/s/h").Ended(err, time.Millisecond, now, "") }
	want := func(active bool) {
		t.Helper()
		if all := s.Active(now); all["p/s/h"] != active || all["p/s/idle"] {
			t.Errorf("want p/s/h active: %t, and not the handler without an attempt; have %v", active, all)
		}
	}
	want(false)
	call(nil)
	want(true)
	now = now.Add(59 * time.Second)
	want(true)
	now = now.Add(2 * time.Second)
	want(false)
	call(errors.New("down"))
	want(true)
	now = now.Add(2 * time.Minute)
	want(false)
}

// An attempt that ends while somebody looks is not missed.
func TestNoActiveHandlerIsMissed(t *testing.T) {
	t.Parallel()
	s := &stats.Stats{Metrics: stats.NewMetrics(prometheus.NewRegistry())}
	now := time.Now()
	for round := range 200 {
		now = now.Add(2 * time.Minute) // all are stale: the look below forgets them
		var both sync.WaitGroup
		both.Go(func() { s.Active(now) })
		for i := range 4 {
			both.Go(func() { s.Path(fmt.Sprint("p/s/", i)).Ended(nil, time.Millisecond, now, "") })
		}
		both.Wait()
		if n := len(s.Active(now)); n != 4 {
			t.Fatalf("round %d: want 4 active handlers, have %d", round, n)
		}
	}
}
