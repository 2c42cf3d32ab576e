package tasks

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"procaas/engine/enginetest/patience"
	"procaas/engine/store"
)

// statsOf returns the counts of a type.
func statsOf(t testing.TB, s *store.TaskStore, kind string) (one store.TaskTypeStats, ok bool) {
	t.Helper()
	all, err := s.Admin.TaskStats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(one store.TaskTypeStats) bool { return one.Type == kind })
	if i < 0 {
		return one, false
	}
	return all[i], true
}

// The urgent tasks of a key do not make its other tasks wait forever: those that wait for others of
// their key are raised, too, and counted.
func checkRaisesThoseThatWaitForTheirKey(t *testing.T, s *store.TaskStore) {
	spec := func(key string, priority int) store.TaskSpec {
		return store.TaskSpec{Type: "keyed", Key: key, Priority: priority}
	}
	claim := func() []store.QueuedTask {
		t.Helper()
		got, err := s.Work.ClaimTasks(t.Context(), store.TaskClaim{
			Worker: "w", Lease: time.Hour, Types: []store.TaskWant{{Type: "keyed", Limit: 5, MaxTaken: 2, MaxPerKey: 1}},
		})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	put := putTask(t, s, spec("k", 9), spec("k", 5), spec("k", 1))
	first := claim() // and puts the others aside
	if len(first) != 1 || first[0].ID != put[0].ID {
		t.Fatalf("have %+v, want the first of the key", first)
	}
	if n, err := s.Maintenance.RaiseTasks(t.Context(), "keyed", 24*time.Hour, 10); err != nil || n != 0 {
		t.Fatalf("nobody is late: have %d, %v", n, err)
	}
	if n, err := s.Maintenance.RaiseTasks(t.Context(), "keyed", 0, 10); err != nil || n != 1 {
		t.Fatalf("have %d, %v, want the patient one raised", n, err)
	}
	urgent := putTask(t, s, spec("k", 5), spec("", 0))
	if got := claim(); len(got) != 1 || got[0].ID != urgent[1].ID {
		t.Fatalf("have %+v, want the task of no key", got)
	}
	for _, want := range []int64{put[1].ID, put[2].ID, urgent[0].ID} {
		reportTasks(t, s, store.TaskReport{Completed: []store.TaskRef{first[0].Ref()}})
		first = claim()
		if len(first) != 1 || first[0].ID != want {
			t.Fatalf("have %+v, want task %d", first, want)
		}
	}
	one, _ := statsOf(t, s, "keyed")
	if one.Raised != 1 || time.Since(one.RaisedLast).Abs() > time.Hour {
		t.Errorf("have %d raised, last at %v, want 1 just now", one.Raised, one.RaisedLast)
	}
}

// The store knows whether any worker ever asked for tasks of a type.
func checkTellsWhoAsks(t *testing.T, s *store.TaskStore) {
	putTask(t, s, store.TaskSpec{Type: "asked"}, store.TaskSpec{Type: "askde"}, store.TaskSpec{Type: "told"})
	claimTasks(t, s, 1, "asked", "idle")
	if _, err := s.Work.ClaimTasks(t.Context(), store.TaskClaim{Worker: "w", Types: []store.TaskWant{{Type: "told"}}}); err != nil {
		t.Fatal(err) // it takes none
	}
	if err := s.Admin.SetTaskMode(t.Context(), "steered", store.TasksOpen, ""); err != nil {
		t.Fatal(err)
	}
	var known []string
	for over := patience.Over(time.Minute); ; time.Sleep(time.Millisecond) {
		var err error
		if known, err = s.Admin.KnownTaskTypes(t.Context()); err != nil {
			t.Fatal(err)
		}
		slices.Sort(known)
		if slices.Equal(known, []string{"asked", "idle", "steered"}) {
			break
		}
		if over() {
			t.Fatalf("have %q, want the types that were asked for, and those that were steered", known)
		}
	}
	if one, ok := statsOf(t, s, "asked"); !ok || time.Since(one.Asked).Abs() > time.Hour || one.AskedBy == "" {
		t.Errorf("have %+v, want it asked for just now", one)
	}
	if one, ok := statsOf(t, s, "askde"); !ok || !one.Asked.IsZero() || one.AskedBy != "" || one.Ready != 1 {
		t.Errorf("have %+v, want a task that nobody has asked for", one)
	}
	if one, ok := statsOf(t, s, "idle"); ok {
		t.Errorf("have %+v, want nothing of a type without tasks", one)
	}
}

// A claim that names a type twice gets each task once, and holds it.
func checkClaimsATypeTwice(t *testing.T, s *store.TaskStore) {
	putTask(t, s, store.TaskSpec{Type: "twice"}, store.TaskSpec{Type: "twice"}, store.TaskSpec{Type: "twice"})
	got := claimTasks(t, s, 1, "twice", "twice")
	if len(got) == 0 || len(got) > 2 {
		t.Fatalf("have %+v, want one or two", got)
	}
	var refs []store.TaskRef
	for i := range got {
		refs = append(refs, got[i].Ref())
	}
	if len(refs) == 2 && refs[0].ID == refs[1].ID {
		t.Fatalf("have one task twice: %v", refs)
	}
	reportTasks(t, s, store.TaskReport{Completed: refs})
}

// One worker may serve thousands of types. Its claims take the most urgent tasks of all of them, and
// lock no more than they take, so that the claims of others find the rest.
func checkClaimsManyTypes(t *testing.T, s *store.TaskStore) {
	const types, most, workers = 5000, 40, 10
	ask := store.TaskClaim{Limit: most, Lease: time.Minute}
	var specs []store.TaskSpec
	for i := range types {
		name := fmt.Sprint("many-", i)
		want := store.TaskWant{Type: name, Limit: 10}
		switch i % 50 {
		case 0:
			specs = append(specs, store.TaskSpec{Type: name, Priority: i}, store.TaskSpec{Type: name, Priority: i})
		case 1:
			want.MaxTaken = 1
			specs = append(specs, store.TaskSpec{Type: name, Priority: i}, store.TaskSpec{Type: name, Priority: -1})
		case 2:
			specs = append(specs, store.TaskSpec{Type: name, Priority: types}) // paused below
		}
		ask.Types = append(ask.Types, want)
	}
	putTask(t, s, specs...)
	for i := 2; i < types; i += 50 {
		if err := s.Admin.SetTaskMode(t.Context(), fmt.Sprint("many-", i), store.TasksPaused, ""); err != nil {
			t.Fatal(err)
		}
	}
	claim := func(worker int) []store.QueuedTask {
		c := ask
		c.Worker, c.Types = fmt.Sprint("w", worker), slices.Clone(ask.Types)
		got, err := s.Work.ClaimTasks(t.Context(), c)
		if err != nil {
			t.Error(err)
		}
		return got
	}
	first := claim(0)
	for i := range first {
		want := types - 50*(1+i/3) // the tasks of a type that bounds how many are taken go before two of another
		if i%3 == 0 {
			want++
		}
		if first[i].Priority != want {
			t.Fatalf("task %d of the first claim has the priority %d, want %d", i, first[i].Priority, want)
		}
	}
	if len(first) != most {
		t.Fatalf("the first claim took %d, want %d", len(first), most)
	}
	all := make([][]store.QueuedTask, workers)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for {
				got := claim(w)
				if len(got) == 0 {
					return
				}
				all[w] = append(all[w], got...)
			}
		})
	}
	wg.Wait()
	seen := map[int64]bool{}
	for _, one := range slices.Concat(append(all, first)...) {
		if seen[one.ID] {
			t.Errorf("task %d was taken twice", one.ID)
		}
		seen[one.ID] = true
	}
	if want := 3 * types / 50; len(seen) != want {
		t.Errorf("have %d tasks, want all %d that may be taken", len(seen), want)
	}
}

// The error of an attempt is for people: it is shortened, and never the reason to refuse a report.
func checkCutsErrors(t *testing.T, s *store.TaskStore) {
	putTask(t, s, store.TaskSpec{Type: "verbose"}, store.TaskSpec{Type: "verbose"})
	got := claimTasks(t, s, 2, "verbose")
	long := "a\x00b\xff" + strings.Repeat("é", 5000)
	reportTasks(t, s, store.TaskReport{Failed: []store.TaskFailure{
		{TaskRef: got[0].Ref(), Error: long}, {TaskRef: got[1].Ref(), Error: long, Retry: true},
	}})
	for _, state := range []store.TaskState{store.TaskFailed, store.TaskReady} {
		rest, err := s.Admin.PeekTasks(t.Context(), store.TaskFilter{Type: "verbose", State: state})
		if err != nil || len(rest) != 1 || !strings.HasPrefix(rest[0].Error, "abé") || len(rest[0].Error) > 2000 {
			t.Errorf("%s: have %+v, %v, want the beginning of what was said", state, rest, err)
		}
	}
}
