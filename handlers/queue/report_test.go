package queue_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"procaas/engine/enginetest"
	"procaas/engine/store"
	"procaas/handlers/queue"
)

// A report ends the attempts that it names and no others, however their ids lie.
func TestAReportEndsTheAttemptsThatItNames(t *testing.T) {
	t.Parallel()
	s := open(t, enginetest.MigratedPostgres(t))
	const tasks = 6
	for _, c := range []struct {
		name string
		refs func(taken []queue.Ref) (done, lost []queue.Ref)
		left []int // of the taken tasks
	}{
		{name: "side by side", refs: func(r []queue.Ref) (done, lost []queue.Ref) { return r, nil }},
		{name: "with some between them", left: []int{1, 2, 4}, refs: func(r []queue.Ref) (done, lost []queue.Ref) {
			return []queue.Ref{r[5], r[0], r[3]}, nil
		}},
		{name: "far apart", left: []int{1, 2, 3, 4, 5}, refs: func(r []queue.Ref) (done, lost []queue.Ref) {
			far := queue.Ref{ID: math.MaxInt64, Epoch: 7}
			return []queue.Ref{far, r[0]}, []queue.Ref{far}
		}},
		{name: "the last id of all", left: []int{0, 1, 2, 3, 4, 5}, refs: func([]queue.Ref) (done, lost []queue.Ref) {
			done = []queue.Ref{{ID: math.MaxInt64 - 1, Epoch: 7}, {ID: math.MaxInt64, Epoch: 7}}
			return done, done
		}},
		{name: "an attempt before the present one", left: []int{2, 3, 4, 5}, refs: func(r []queue.Ref) (done, lost []queue.Ref) {
			stale := queue.Ref{ID: r[2].ID, Epoch: r[2].Epoch ^ 1}
			return []queue.Ref{r[0], r[1], stale}, []queue.Ref{stale}
		}},
		{name: "two attempts of one task", left: []int{1, 2, 3, 4, 5}, refs: func(r []queue.Ref) (done, lost []queue.Ref) {
			stale := queue.Ref{ID: r[0].ID, Epoch: r[0].Epoch ^ 1}
			return []queue.Ref{stale, r[0]}, []queue.Ref{stale}
		}},
		{name: "an epoch that no attempt has", left: []int{1, 2, 3, 4, 5}, refs: func(r []queue.Ref) (done, lost []queue.Ref) {
			none := queue.Ref{ID: r[1].ID, Epoch: -1}
			return []queue.Ref{r[0], none}, []queue.Ref{none}
		}},
	} {
		specs := slices.Repeat([]queue.Spec{{Type: c.name}}, tasks)
		if _, err := s.PutTasks(t.Context(), specs); err != nil {
			t.Fatal(err)
		}
		got, err := s.ClaimTasks(t.Context(), queue.Claim{Worker: "w", Lease: time.Hour, Types: []queue.Want{{Type: c.name, Limit: tasks}}})
		if err != nil || len(got) != tasks {
			t.Fatalf("%s: want %d tasks, have %d: %v", c.name, tasks, len(got), err)
		}
		var taken []queue.Ref
		for i := range got {
			taken = append(taken, got[i].Ref())
		}
		done, want := c.refs(taken)
		lost, err := s.ReportTasks(t.Context(), queue.Report{Completed: done})
		if err != nil || !slices.Equal(lost, want) {
			t.Errorf("%s: want %v lost, have %v: %v", c.name, want, lost, err)
		}
		rest, err := s.PeekTasks(t.Context(), queue.Filter{Type: c.name, State: store.TaskRunning})
		if err != nil {
			t.Fatal(err)
		}
		var left []int
		for i := range rest {
			left = append(left, slices.Index(taken, rest[i].Ref()))
		}
		slices.Sort(left)
		if !slices.Equal(left, c.left) {
			t.Errorf("%s: want the tasks %v left, have %v", c.name, c.left, left)
		}
	}
}
