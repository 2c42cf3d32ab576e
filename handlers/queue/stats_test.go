package queue

import (
	"fmt"
	"testing"
	"time"

	"procaas/engine/enginetest"
	"procaas/engine/postgres"
	"procaas/engine/store"
)

// opened returns a store with a schema of its own, until the test ends.
func opened(t *testing.T) *Store {
	t.Helper()
	dsn := enginetest.MigratedPostgres(t)
	if _, err := postgres.Migrate(t.Context(), dsn); err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.Context(), dsn, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Of a table that is large, a sample is counted: what the sample cannot miss is exact
// all the same.
func TestStatsOfLargeTables(t *testing.T) {
	t.Parallel()
	s := opened(t)
	var many []Spec
	for i := range 4000 {
		many = append(many, Spec{Type: "many", Priority: i % 3, Tolerance: time.Hour, Key: fmt.Sprint(i)})
	}
	few := []Spec{
		{Type: "few"},
		{Type: "few", Priority: -1},
		{Type: "few", Delay: time.Hour},
		{Type: "taken"},
		{Type: "taken"},
		{Type: "taken"},
		{Type: "dead"},
		{Type: "keyed", Key: "k"},
		{Type: "keyed", Key: "k"},
		{Type: "keyed", Key: "k"},
	}
	for _, specs := range [][]Spec{many, few} {
		if _, err := s.Enqueue(t.Context(), nil, specs...); err != nil {
			t.Fatal(err)
		}
	}
	claim := func(kind string, per int, prefetch bool) []Task {
		got, err := s.ClaimTasks(t.Context(), Claim{
			Worker: "w", Types: []Want{{Type: kind, Limit: 1, MaxPerKey: per}}, Lease: time.Hour, Prefetch: prefetch,
		})
		if err != nil || len(got) != 1 {
			t.Fatalf("claim %s: have %v, %v", kind, got, err)
		}
		return got
	}
	claim("taken", 0, true)
	claim("taken", 0, false)
	claim("keyed", 1, false) // puts the others aside
	if _, err := s.ReportTasks(t.Context(), Report{Failed: []Failure{{TaskRef: claim("dead", 0, false)[0].Ref()}}}); err != nil {
		t.Fatal(err)
	}
	const exact, sampled = countedPages, 1
	for _, pages := range []int64{exact, sampled} {
		t.Run(fmt.Sprint(pages, " pages"), func(t *testing.T) {
			s.countedPages = pages
			stats, err := s.TaskStats(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			of := map[string]TypeStats{}
			for _, one := range stats {
				of[one.Type] = one
				if guessed := one.IsEstimated(store.TaskReady); guessed != (pages == sampled && one.Type == "many") {
					t.Errorf("%s: the number of ready tasks is estimated: have %v", one.Type, guessed)
				}
				for _, state := range []store.TaskState{
					store.TaskWaiting, store.TaskStarting, store.TaskRunning, store.TaskScheduled,
					store.TaskFailed,
				} {
					// Few others fit in a page, which is counted whole.
					if one.IsEstimated(state) {
						t.Errorf("%s: the number of %s tasks is estimated", one.Type, state)
					}
				}
			}
			if n := of["many"].Ready; pages == exact && n != 4000 || n <= countedExactly {
				t.Errorf("want 4000 ready tasks of the large type, have %d", n)
			}
			if of["many"].Lag != 0 || of["many"].Oldest.IsZero() {
				t.Errorf("want the large type not late, have %+v", of["many"])
			}
			if one := of["few"]; one.Ready != 2 || one.Lag <= 0 || one.Oldest.IsZero() || one.Scheduled != 1 {
				t.Errorf("want 2 ready tasks that are late, have %+v", one)
			}
			if one := of["taken"]; one.Ready != 1 || one.Starting != 1 || one.Running != 1 {
				t.Errorf("want a task in each state, have %+v", one)
			}
			if one := of["keyed"]; one.Ready != 0 || one.Waiting != 2 || one.Running != 1 {
				t.Errorf("want 2 tasks that wait for their key, have %+v", one)
			}
			if one := of["dead"]; one.Ready != 0 || one.Failed != 1 {
				t.Errorf("want a dead letter, have %+v", one)
			}
		})
	}
	t.Run("of other tables", func(t *testing.T) {
		var later []Spec
		for range 1500 {
			later = append(later, Spec{Type: "later", Delay: time.Hour}, Spec{Type: "many dead"})
		}
		if _, err := s.Enqueue(t.Context(), nil, later...); err != nil {
			t.Fatal(err)
		}
		got, err := s.ClaimTasks(t.Context(), Claim{Worker: "w", Types: []Want{{Type: "many dead", Limit: 2000}}, Lease: time.Hour})
		if err != nil || len(got) != 1500 {
			t.Fatalf("have %d, %v, want all", len(got), err)
		}
		var ends Report
		for i := range got {
			ends.Failed = append(ends.Failed, Failure{TaskRef: got[i].Ref()})
		}
		if _, err := s.ReportTasks(t.Context(), ends); err != nil {
			t.Fatal(err)
		}
		s.countedPages = sampled
		stats, err := s.TaskStats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range stats {
			if !one.IsEstimated(store.TaskScheduled) || one.IsEstimated(store.TaskFailed) != (one.Type == "many dead") {
				t.Errorf("%s: have estimates of %v", one.Type, one.Estimated)
			}
			if want := map[string]int64{"dead": 1}[one.Type]; one.Type != "many dead" && one.Failed != want {
				t.Errorf("%s: have %d dead letters, want %d", one.Type, one.Failed, want)
			}
			if one.Type == "many dead" && one.Failed <= countedExactly {
				t.Errorf("have %d dead letters, want about 1500", one.Failed)
			}
		}
	})
}

// What is estimated of many tasks is about right.
func TestStatsScaleSamples(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		n     int64
		share float64
		want  int64
	}{{0, 0.01, 0}, {10, 1, 10}, {10, 0.25, 40}, {1, 0.3, 3}} {
		if have := scaled(c.n, c.share); have != c.want {
			t.Errorf("%d of a share of %v: want %d, have %d", c.n, c.share, c.want, have)
		}
	}
}
