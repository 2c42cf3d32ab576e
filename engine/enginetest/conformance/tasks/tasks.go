package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"procaas/engine/enginetest/patience"
	"procaas/engine/store"
)

// Conformance checks that a task store meets its contract, or all of it but some cases. open returns an empty store for each
// call.
func Conformance(t *testing.T, open func(t *testing.T) *store.TaskStore, but ...string) {
	for name, check := range map[string]func(t *testing.T, s *store.TaskStore){
		"Model":               checkTaskModel,
		"EachOnce":            checkEachTaskOnce,
		"UniqueUnderRaces":    checkUniqueUnderRaces,
		"PromotesDue":         checkPromotesDue,
		"GivesUpPoisonous":    checkGivesUpPoisonous,
		"RetriesLoseNone":     checkRetriesLoseNone,
		"Modes":               checkTaskModes,
		"RefusesBadTasks":     checkRefusesBadTasks,
		"PeeksAndMoves":       checkPeeksAndMoves,
		"WakesWatchers":       checkWakesWatchers,
		"BeatsKeep":           checkBeatsKeep,
		"FollowersWaitTheirs": checkFollowersWait,
		"RaisesLate":          checkRaisesLate,
		"RaisesOfKeys":        checkRaisesThoseThatWaitForTheirKey,
		"TellsWhoAsks":        checkTellsWhoAsks,
		"ClaimsATypeTwice":    checkClaimsATypeTwice,
		"ClaimsManyTypes":     checkClaimsManyTypes,
		"CutsErrors":          checkCutsErrors,
		"ErasesAKey":          checkErasesAKey,
		"KeepsResults":        checkKeepsResults,
	} {
		if slices.Contains(but, name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(t, open(t))
		})
	}
	t.Run("TakesNoWordOfAnother", func(t *testing.T) { checkForgets(t, open(t), open(t)) })
}

// checkForgets checks that a store without memory accepts reports of tasks that another one handed
// out, because a server that was set back issues its ids again.
func checkForgets(t *testing.T, before, after *store.TaskStore) {
	t.Parallel()
	spec := store.TaskSpec{Type: "w"}
	putTask(t, before, spec)
	putTask(t, after, spec)
	first := claimTasks(t, before, 1, "w")[0]
	second := claimTasks(t, after, 1, "w")[0]
	if first.Epoch == second.Epoch {
		t.Fatalf("both stores have given epoch %d", first.Epoch)
	}
	stale := store.TaskRef{ID: second.ID, Epoch: first.Epoch}
	lost, err := after.Work.ReportTasks(t.Context(), store.TaskReport{Completed: []store.TaskRef{stale}})
	if err != nil || len(lost) != 1 || lost[0] != stale {
		t.Errorf("want the report of who had the task before refused, have %v, %v", lost, err)
	}
}

// joinPayloads is how the tests merge payloads.
func joinPayloads(first, second json.RawMessage) (json.RawMessage, error) {
	return json.RawMessage(strings.TrimSuffix(string(first), "]") + "," + strings.TrimPrefix(string(second), "[")), nil
}

func putTask(t testing.TB, s *store.TaskStore, specs ...store.TaskSpec) []store.TaskPut {
	t.Helper()
	out, err := s.Queue.PutTasks(context.Background(), specs)
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range out {
		if one.Err != nil {
			t.Fatal(one.Err)
		}
	}
	return out
}

func claimTasks(t testing.TB, s *store.TaskStore, limit int, types ...string) []store.QueuedTask {
	t.Helper()
	c := store.TaskClaim{Worker: "worker", Lease: time.Hour}
	for _, kind := range types {
		c.Types = append(c.Types, store.TaskWant{Type: kind, Limit: limit})
	}
	tasks, err := s.Work.ClaimTasks(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	return tasks
}

func reportTasks(t testing.TB, s *store.TaskStore, r store.TaskReport, wantLost ...store.TaskRef) {
	t.Helper()
	lost, err := s.Work.ReportTasks(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(lost, wantLost) {
		t.Fatalf("lost %v, want %v", lost, wantLost)
	}
}

// checkEachTaskOnce lets several workers take tasks at once.
func checkEachTaskOnce(t *testing.T, s *store.TaskStore) {
	const tasks, workers = 300, 4
	specs := make([]store.TaskSpec, tasks)
	for i := range specs {
		specs[i] = store.TaskSpec{Type: "once", Key: fmt.Sprint("k", i%7)}
	}
	putTask(t, s, specs...)
	var (
		mu   sync.Mutex
		seen = map[int64]int{}
		wg   sync.WaitGroup
	)
	done := func() bool { mu.Lock(); defer mu.Unlock(); return len(seen) == tasks }
	ctx, cancel := patience.Context(t.Context(), time.Minute)
	defer cancel()
	for i := range workers {
		wg.Go(func() {
			var r store.TaskReport
			for !done() || r.Len() > 0 {
				got, lost, err := s.Work.ExchangeTasks(ctx, r, store.TaskClaim{
					Worker: fmt.Sprint("w", i), Types: []store.TaskWant{{Type: "once", Limit: 5}}, Lease: time.Hour,
				})
				if err != nil || len(lost) > 0 {
					t.Errorf("lost %v: %v", lost, err)
					return
				}
				r = store.TaskReport{}
				mu.Lock()
				for _, one := range got {
					seen[one.ID]++
					r.Completed = append(r.Completed, one.Ref())
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for id, n := range seen {
		if n != 1 {
			t.Errorf("task %d was taken %d times", id, n)
		}
	}
	if rest, err := s.Admin.PeekTasks(t.Context(), store.TaskFilter{}); err != nil || len(rest) != 0 || len(seen) != tasks {
		t.Errorf("seen %d, left %v, %v", len(seen), rest, err)
	}
}

// checkUniqueUnderRaces lets some goroutines put duplicates while others take and complete them.
func checkUniqueUnderRaces(t *testing.T, s *store.TaskStore) {
	const putters, rounds = 3, 40
	var (
		mu             sync.Mutex
		added, follows int
		taken, ended   int
		holding        = map[string]bool{}
		putting        sync.WaitGroup
		working        sync.WaitGroup
		stop           = make(chan struct{})
	)
	for p := range putters {
		putting.Go(func() {
			for i := range rounds {
				specs := []store.TaskSpec{
					{Type: "race", Unique: fmt.Sprint("u", i%3), OnDuplicate: store.DuplicateRerun},
					{Type: "race", Unique: fmt.Sprint("u", (i+p)%3), OnDuplicate: store.DuplicateKeep},
				}
				out, err := s.Queue.PutTasks(context.Background(), specs)
				if err != nil {
					t.Errorf("put: %v", err)
					return
				}
				mu.Lock()
				for _, one := range out {
					switch one.Outcome {
					case store.PutAdded:
						added++
					case store.PutFollows:
						follows++
					}
				}
				mu.Unlock()
			}
		})
	}
	for range 2 {
		working.Go(func() {
			for {
				last := false // nothing is put after it
				select {
				case <-stop:
					last = true
				default:
				}
				got, err := s.Work.ClaimTasks(context.Background(), store.TaskClaim{
					Worker: "worker", Types: []store.TaskWant{{Type: "race", Limit: 2}}, Lease: time.Hour,
				})
				if err != nil {
					t.Errorf("claim: %v", err)
					return
				}
				if last && len(got) == 0 {
					return
				}
				for _, one := range got {
					mu.Lock()
					if holding[one.Unique] {
						t.Errorf("two tasks with the unique key %s are taken at once", one.Unique)
					}
					holding[one.Unique] = true
					taken++
					mu.Unlock()
					mu.Lock()
					delete(holding, one.Unique)
					mu.Unlock()
					lost, err := s.Work.ReportTasks(context.Background(), store.TaskReport{Completed: []store.TaskRef{one.Ref()}})
					if err != nil || len(lost) > 0 {
						t.Errorf("complete: lost %v, %v", lost, err)
						return
					}
					mu.Lock()
					ended++
					mu.Unlock()
				}
			}
		})
	}
	putting.Wait()
	close(stop)
	working.Wait()
	// Any number of duplicates of one taken task add one more task.
	if taken < added || taken > added+follows || taken != ended {
		t.Errorf("added %d, following %d, taken %d, ended %d", added, follows, taken, ended)
	}
	if rest, err := s.Admin.PeekTasks(t.Context(), store.TaskFilter{}); err != nil || len(rest) != 0 {
		t.Errorf("left %v, %v", rest, err)
	}
}

func checkPromotesDue(t *testing.T, s *store.TaskStore) {
	ctx := t.Context()
	putTask(t, s, store.TaskSpec{Type: "later", Delay: 100 * time.Millisecond}, store.TaskSpec{Type: "later", Delay: time.Hour},
		store.TaskSpec{Type: "later", At: time.Now().Add(-time.Hour)})
	if got := claimTasks(t, s, 1, "later"); len(got) != 1 {
		t.Fatalf("a task whose time is past: have %v, want it taken", got)
	}
	for over := patience.Over(time.Minute); ; {
		_, next, err := s.Maintenance.PromoteTasks(ctx, 10)
		if err != nil {
			t.Fatal(err)
		}
		got := claimTasks(t, s, 10, "later")
		if len(got) == 1 {
			if got[0].Due.Before(got[0].Created) || next < time.Minute || next > time.Hour {
				t.Errorf("have %+v, next in %v", got[0], next)
			}
			return
		}
		if len(got) > 1 || over() {
			t.Fatalf("have %v, want one", got)
		}
	}
}

func checkGivesUpPoisonous(t *testing.T, s *store.TaskStore) {
	ctx := t.Context()
	putTask(t, s, store.TaskSpec{Type: "poison", Unique: "u", Payload: json.RawMessage(`{"a":1}`)})
	var last store.TaskRef
	for i := range 3 {
		var got []store.QueuedTask
		for over := patience.Over(time.Minute); len(got) == 0 && !over(); { // the second loss makes it wait
			_, _, err := s.Maintenance.PromoteTasks(ctx, 10)
			if err == nil {
				got, err = s.Work.ClaimTasks(ctx, store.TaskClaim{Worker: "w", Types: []store.TaskWant{{Type: "poison", Limit: 1}}})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if len(got) != 1 || got[0].Lost != i {
			t.Fatalf("claim %d: %+v", i, got)
		}
		last = got[0].Ref()
		if n, err := s.Maintenance.ReclaimTasks(ctx, 10, 2); err != nil || n != 1 {
			t.Fatalf("reclaim: %d, %v", n, err)
		}
	}
	reportTasks(t, s, store.TaskReport{Completed: []store.TaskRef{last}}, last)
	dead, err := s.Admin.PeekTasks(ctx, store.TaskFilter{State: store.TaskFailed})
	if err != nil || len(dead) != 1 || !strings.Contains(dead[0].Error, "not heard of") || dead[0].Ended.IsZero() {
		t.Fatalf("have %+v, %v, want one that failed", dead, err)
	}
	other := store.TaskFilter{Type: "poison", State: store.TaskFailed, Error: "no space"}
	mine := store.TaskFilter{Type: "poison", Error: "not heard of"}
	left, err := s.Admin.PeekTasks(ctx, other)
	seals := errors.Is(err, store.ErrSealed)
	if seals {
		mine.Error = "" // it cannot search in errors
	} else if err != nil || len(left) > 0 {
		t.Fatalf("have %+v, %v, want none with another error", left, err)
	}
	if done, err := s.Admin.RetryTasks(ctx, other); !seals && err != nil || len(done) > 0 {
		t.Fatalf("retried %+v, %v, want none with another error", done, err)
	}
	done, err := s.Admin.RetryTasks(ctx, mine)
	if err != nil || len(done) != 1 || done[0].Task != dead[0].ID {
		t.Fatalf("retried %+v, %v, want %d", done, err, dead[0].ID)
	}
	got := claimTasks(t, s, 5, "poison")
	if len(got) != 1 || got[0].ID != done[0].As || got[0].Unique != "u" || string(got[0].Payload) != `{"a":1}` {
		t.Fatalf("have %+v, want it again", got)
	}
	reportTasks(t, s, store.TaskReport{Failed: []store.TaskFailure{{TaskRef: got[0].Ref(), Error: "bad"}}})
	for over := patience.Over(time.Minute); ; { // until it is older than a millisecond
		n, err := s.Maintenance.ExpireTasks(ctx, time.Hour, time.Millisecond)
		if n == 1 && err == nil {
			break
		}
		if err != nil || over() {
			t.Fatalf("expire: %d, %v", n, err)
		}
	}
	if err := s.Maintenance.VacuumTasks(ctx); err != nil {
		t.Error(err)
	}
}

// checkRetriesLoseNone retries failed tasks whose unique keys others have: a task outside of them, or one of the same call.
func checkRetriesLoseNone(t *testing.T, s *store.TaskStore) {
	ctx := t.Context()
	fail := func(unique, payload string) int64 {
		t.Helper()
		putTask(t, s, store.TaskSpec{Type: "r", Unique: unique, Payload: json.RawMessage(payload)})
		got := claimTasks(t, s, 1, "r")
		if len(got) != 1 {
			t.Fatalf("have %+v, want the task", got)
		}
		reportTasks(t, s, store.TaskReport{Failed: []store.TaskFailure{{TaskRef: got[0].Ref(), Error: "bad"}}})
		return got[0].ID
	}
	first, second := fail("u", "1"), fail("v", "2")
	third, fourth := fail("v", "3"), fail("", "4")
	holder := putTask(t, s, store.TaskSpec{Type: "r", Unique: "u", Payload: json.RawMessage("5"), Delay: time.Hour})[0].ID
	retry := func(limit int, want ...store.TaskRetry) []store.TaskRetry {
		t.Helper()
		have, err := s.Admin.RetryTasks(ctx, store.TaskFilter{Type: "r", Limit: limit})
		if err != nil || len(have) != len(want) {
			t.Fatalf("retried %+v, %v, want %+v", have, err, want)
		}
		for i := range want {
			if want[i].As == 0 {
				want[i].As = have[i].As // a new task
			}
			if have[i] != want[i] {
				t.Errorf("retried %+v, want %+v", have[i], want[i])
			}
		}
		return have
	}
	dead := func(want ...string) {
		t.Helper()
		left, err := s.Admin.PeekTasks(ctx, store.TaskFilter{Type: "r", State: store.TaskFailed})
		var have []string
		for _, one := range left {
			have = append(have, string(one.Payload))
		}
		slices.Sort(have)
		if err != nil || !slices.Equal(have, want) {
			t.Errorf("failed tasks have the payloads %v, %v, want %v", have, err, want)
		}
	}
	// What stays does not use up the limit.
	as := retry(1, store.TaskRetry{Task: first, As: holder, Blocked: true}, store.TaskRetry{Task: second})[1].As
	dead("1", "3", "4")
	retry(0, store.TaskRetry{Task: first, As: holder, Blocked: true}, store.TaskRetry{Task: third, As: as, Blocked: true},
		store.TaskRetry{Task: fourth})
	dead("1", "3")
	// Of several with the same name, one is retried.
	if n, err := s.Queue.CancelTasks(ctx, store.TaskFilter{IDs: []int64{holder, as}}); err != nil || n != 2 {
		t.Fatalf("cancelled %d, %v", n, err)
	}
	if got := claimTasks(t, s, 5, "r"); len(got) != 1 || string(got[0].Payload) != "4" {
		t.Fatalf("have %+v, want the one without a name", got)
	}
	fifth := fail("u", "6")
	last := retry(0, store.TaskRetry{Task: first}, store.TaskRetry{Task: third}, store.TaskRetry{Task: fifth, Blocked: true})
	if last[2].As != last[0].As {
		t.Errorf("have %+v, want the last blocked by the first", last)
	}
	dead("6")
	got := claimTasks(t, s, 5, "r")
	if len(got) != 2 || string(got[0].Payload)+string(got[1].Payload) != "13" {
		t.Errorf("have %+v, want both payloads", got)
	}
}

func checkTaskModes(t *testing.T, s *store.TaskStore) {
	ctx := t.Context()
	putTask(t, s, store.TaskSpec{Type: "m"}, store.TaskSpec{Type: "n"})
	if err := s.Admin.SetTaskMode(ctx, "m", store.TasksPaused, "why"); err != nil {
		t.Fatal(err)
	}
	if got := claimTasks(t, s, 5, "m", "n"); len(got) != 1 || got[0].Type != "n" {
		t.Errorf("have %+v, want only the one that is not paused", got)
	}
	if err := s.Admin.SetTaskMode(ctx, "m", store.TasksDraining, "why"); err != nil {
		t.Fatal(err)
	}
	out, err := s.Queue.PutTasks(ctx, []store.TaskSpec{
		{Type: "m"},
		{Type: "m", Unique: "u"},
		{Type: "n", Unique: "u"},
		{Type: "n"},
		{Type: "m", Delay: time.Hour},
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, refused := range []bool{true, true, false, false, true} {
		if errors.Is(out[i].Err, store.ErrDraining) != refused {
			t.Errorf("put %d: %+v", i, out[i])
		}
	}
	stats, err := s.Admin.TaskStats(ctx)
	if err != nil || len(stats) != 2 || stats[0].Mode != store.TasksDraining || stats[0].Ready != 1 || stats[0].Reason != "why" ||
		stats[1].Ready != 2 || stats[1].Running != 1 || stats[1].Oldest.IsZero() {
		t.Errorf("stats %+v, %v", stats, err)
	}
	if got := claimTasks(t, s, 5, "m"); len(got) != 1 {
		t.Errorf("have %+v, want what is left of the draining type", got)
	}
	if err := s.Admin.SetTaskMode(ctx, "m", store.TasksOpen, ""); err != nil {
		t.Fatal(err)
	}
	putTask(t, s, store.TaskSpec{Type: "m", Unique: "u"})
}

func checkRefusesBadTasks(t *testing.T, s *store.TaskStore) {
	bad := []store.TaskSpec{
		{},
		{Type: strings.Repeat("x", 600)},
		{Type: "b", Payload: json.RawMessage("{")},
		{Type: "b", Delay: -1},
		{Type: "b", OnDuplicate: store.DuplicateKeep},
		{Type: "b", Unique: "u", OnDuplicate: "often"},
		{Type: "b", Unique: "u", OnDuplicate: store.DuplicateMerge},
		{Type: "b", Priority: 1 << 40},
		{Type: "b", Payload: json.RawMessage(`"` + strings.Repeat("x", store.MaxTaskPayload) + `"`)},
	}
	out, err := s.Queue.PutTasks(t.Context(), append(bad, store.TaskSpec{Type: "good"}))
	if err != nil {
		t.Fatal(err)
	}
	for i := range bad {
		if !errors.Is(out[i].Err, store.ErrTask) || out[i].Outcome != store.PutRefused {
			t.Errorf("put %d: have %+v, want it refused", i, out[i])
		}
	}
	if out[len(bad)].Err != nil {
		t.Errorf("the good one: %v", out[len(bad)].Err)
	}
	broken := func(first, second json.RawMessage) (json.RawMessage, error) { return nil, errors.New("no") }
	one := store.TaskSpec{Type: "merge", Unique: "u", OnDuplicate: store.DuplicateMerge, Merge: broken}
	if out, err = s.Queue.PutTasks(t.Context(), []store.TaskSpec{one, one}); err != nil || out[0].Err != nil ||
		!errors.Is(out[1].Err, store.ErrTask) {
		t.Errorf("a merge that fails: %+v, %v", out, err)
	}
}

func checkPeeksAndMoves(t *testing.T, s *store.TaskStore) {
	ctx := t.Context()
	large := json.RawMessage(`"` + strings.Repeat("ü", 100_000) + `"`)
	put := putTask(t, s, store.TaskSpec{Type: "p", Priority: 1, Payload: large}, store.TaskSpec{Type: "p", Key: "k", Priority: 2},
		store.TaskSpec{Type: "p", Delay: time.Hour}, store.TaskSpec{Type: "p", Unique: "u", Delay: time.Hour})
	got, err := s.Admin.PeekTasks(ctx, store.TaskFilter{Type: "p"})
	if err != nil || len(got) != 4 || got[0].ID != put[1].ID || string(got[1].Payload) != string(large) ||
		got[2].State != store.TaskScheduled {
		t.Fatalf("have %d tasks, %v", len(got), err)
	}
	if n, err := s.Admin.MoveTasks(ctx, store.TaskFilter{Type: "p"}, "q"); err != nil || n != 3 {
		t.Errorf("moved %d, %v, want all that are not unique", n, err)
	}
	taken := claimTasks(t, s, 1, "q")
	if len(taken) != 1 || taken[0].ID != put[1].ID || taken[0].Slot < 0 || taken[0].Slot >= store.TaskSlots {
		t.Fatalf("have %+v", taken)
	}
	reportTasks(t, s, store.TaskReport{Completed: []store.TaskRef{taken[0].Ref()}})
	if n, err := s.Queue.CancelTasks(ctx, store.TaskFilter{IDs: []int64{put[0].ID, put[1].ID, put[3].ID}}); err != nil || n != 2 {
		t.Errorf("cancelled %d, %v, want 2", n, err)
	}
	for state, want := range map[store.TaskState]int64{
		store.TaskCompleted: put[1].ID, store.TaskCancelled: put[0].ID, store.TaskScheduled: put[2].ID,
	} {
		got, err := s.Admin.PeekTasks(ctx, store.TaskFilter{Type: "q", State: state})
		if err != nil || len(got) != 1 || got[0].ID != want || got[0].State != state {
			t.Errorf("%s: have %+v, %v, want task %d", state, got, err, want)
		}
	}
	if _, err := s.Queue.CancelTasks(ctx, store.TaskFilter{State: store.TaskRunning}); !errors.Is(err, store.ErrConflict) {
		t.Errorf("cancel what runs: have %v, want a conflict", err)
	}
}

func checkWakesWatchers(t *testing.T, s *store.TaskStore) {
	woken, stop := s.Work.WatchTasks([]string{"w"})
	defer stop()
	drain := func() {
		select {
		case <-woken: // one that came when the store began to listen
		default:
		}
	}
	drain()
	putTask(t, s, store.TaskSpec{Type: "w"})
	select {
	case <-woken:
	case <-patience.After(t, time.Minute):
		t.Error("nobody is woken by a task")
	}
}

func checkBeatsKeep(t *testing.T, s *store.TaskStore) {
	ctx := t.Context()
	putTask(t, s, store.TaskSpec{Type: "b"})
	got, err := s.Work.ClaimTasks(ctx, store.TaskClaim{Worker: "w", Types: []store.TaskWant{{Type: "b", Limit: 1}}, Prefetch: true})
	if err != nil || len(got) != 1 || got[0].State != store.TaskStarting {
		t.Fatalf("have %+v, %v", got, err)
	}
	stale := store.TaskRef{ID: got[0].ID, Epoch: got[0].Epoch - 1}
	lost, err := s.Work.BeatTasks(ctx, []store.TaskBeat{
		{TaskRef: got[0].Ref(), Running: true, Lease: time.Hour},
		{TaskRef: stale, Lease: time.Hour},
	})
	if err != nil || len(lost) != 1 || lost[0] != stale {
		t.Errorf("lost %v, %v, want the stale one", lost, err)
	}
	if n, err := s.Maintenance.ReclaimTasks(ctx, 10, 10); err != nil || n != 0 {
		t.Errorf("reclaimed %d, %v, want none", n, err)
	}
	if now, err := s.Admin.PeekTasks(ctx, store.TaskFilter{State: store.TaskRunning}); err != nil || len(now) != 1 {
		t.Errorf("have %+v, %v, want it running", now, err)
	}
}

func checkFollowersWait(t *testing.T, s *store.TaskStore) {
	spec := store.TaskSpec{Type: "f", Unique: "u", OnDuplicate: store.DuplicateRerun}
	putTask(t, s, spec)
	first := claimTasks(t, s, 5, "f")
	later := spec
	later.Delay, later.Payload = time.Hour, json.RawMessage("2")
	if out := putTask(t, s, spec, later, later); out[2].Outcome != store.PutFollows || out[2].ID != first[0].ID {
		t.Errorf("have %+v, want it to follow", out)
	}
	if got := claimTasks(t, s, 5, "f"); len(got) != 0 {
		t.Fatalf("have %+v while the first runs", got)
	}
	reportTasks(t, s, store.TaskReport{Completed: []store.TaskRef{first[0].Ref()}})
	got, err := s.Admin.PeekTasks(t.Context(), store.TaskFilter{Type: "f"})
	if err != nil || len(got) != 1 || got[0].State != store.TaskScheduled || string(got[0].Payload) != "2" || got[0].ID == first[0].ID {
		t.Errorf("have %+v, %v, want one task at its time", got, err)
	}
}

// Tasks that have waited too long go before those of any priority, the latest one first, also for
// workers that have claimed before. All others keep their order.
func checkRaisesLate(t *testing.T, s *store.TaskStore) {
	ctx := t.Context()
	spec := func(priority int, tolerance time.Duration) store.TaskSpec {
		return store.TaskSpec{Type: "guarded", Priority: priority, Tolerance: tolerance}
	}
	raise := func(wait time.Duration, limit, want int) {
		t.Helper()
		if n, err := s.Maintenance.RaiseTasks(ctx, "guarded", wait, limit); err != nil || n != want {
			t.Fatalf("raise what waits for %v: have %d, %v, want %d", wait, n, err, want)
		}
	}
	raise(0, 10, 0) // nothing there yet
	put := putTask(t, s, spec(-5, 0), spec(-1, 0), spec(-1, 0), spec(0, 24*time.Hour), spec(-8, 24*time.Hour))
	put = append(put, putTask(t, s, spec(9, 0), spec(9, 0), spec(9, 0))...)
	other := putTask(t, s, store.TaskSpec{Type: "other", Priority: 1}, store.TaskSpec{Type: "other", Priority: -1})
	next := func(which ...int) {
		t.Helper()
		for _, want := range which {
			if got := claimTasks(t, s, 1, "guarded"); len(got) != 1 || got[0].ID != put[want].ID {
				t.Fatalf("have %+v, want task %d of %+v", got, want, put)
			}
		}
	}
	next(5, 6) // claims begin behind these from now on
	raise(24*time.Hour, 10, 0)
	raise(0, 2, 2)
	raise(0, 10, 1)
	raise(0, 10, 0)
	next(0, 1, 2, 7, 3, 4)
	if got := claimTasks(t, s, 2, "other"); len(got) != 2 || got[0].ID != other[0].ID || got[1].Priority != -1 {
		t.Errorf("have %+v, want the other type as it was", got)
	}
	if one, _ := statsOf(t, s, "guarded"); one.Raised != 3 {
		t.Errorf("have %d tasks counted as raised, want 3", one.Raised)
	}
}
