package queue

import (
	"fmt"
	"testing"
	"time"

	"procaas/engine/enginetest"
	"procaas/engine/postgres"
)

// Of a table that is large, a sample is counted: what the sample cannot miss is exact
// all the same.
func TestStatsOfLargeTables(t *testing.T) {
	t.Parallel()
	dsn := enginetest.Postgres(t)
	if _, _, err := postgres.Migrate(t.Context(), dsn); err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.Context(), dsn, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	var many []Spec
	for i := range 4000 {
		many = append(many, Spec{Type: "many", Priority: i % 3, Tolerance: time.Hour})
	}
	few := []Spec{{Type: "few"}, {Type: "few", Priority: -1}, {Type: "few", Delay: time.Hour}, {Type: "taken"}, {Type: "taken"}, {Type: "taken"}}
	for _, specs := range [][]Spec{many, few} {
		if _, err := s.Enqueue(t.Context(), nil, specs...); err != nil {
			t.Fatal(err)
		}
	}
	for _, prefetch := range []bool{true, false} {
		if _, err := s.ClaimTasks(t.Context(), Claim{Worker: "w", Types: []Want{{Type: "taken", Limit: 1}}, Lease: time.Hour, Prefetch: prefetch}); err != nil {
			t.Fatal(err)
		}
	}
	for _, pages := range []int64{countedPages, 1} {
		t.Run(fmt.Sprint(pages, " pages"), func(t *testing.T) {
			s.countedPages = pages
			stats, err := s.TaskStats(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			of := map[string]TypeStats{}
			for _, one := range stats {
				of[one.Type] = one
			}
			if n := of["many"].Ready; pages > 1 && n != 4000 || n < countedReady {
				t.Errorf("want 4000 ready tasks of the large type, have %d", n)
			}
			if of["many"].Lag != 0 || of["many"].Oldest.IsZero() {
				t.Errorf("want the large type not late, have %+v", of["many"])
			}
			if one := of["few"]; one.Ready != 2 || one.Lag <= 0 || one.Oldest.IsZero() || pages > 1 && one.Scheduled != 1 {
				t.Errorf("want 2 ready tasks that are late, have %+v", one)
			}
			if one := of["taken"]; one.Ready != 1 || one.Starting != 1 || one.Running != 1 {
				t.Errorf("want a task in each state, have %+v", one)
			}
		})
	}
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
