package tasks

import (
	"slices"
	"strings"
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
		if first = claim(); len(first) != 1 || first[0].ID != want {
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
