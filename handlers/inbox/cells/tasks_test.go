package cells_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"procaas/engine/enginetest"
	"procaas/engine/enginetest/conformance/tasks"
	"procaas/engine/enginetest/patience"
	"procaas/engine/store"
	"procaas/handlers/inbox"
	"procaas/handlers/inbox/cells"
	"procaas/handlers/queue"
)

// halved makes a store of two cells that have half of the slots each.
func halved(t testing.TB) *cells.Store {
	t.Helper()
	s := open(t, enginetest.MigratedPostgres(t), map[string]string{"b": enginetest.MigratedPostgres(t)})
	move(t, s, cells.All()[store.InboxSlots/2:], "b")
	return s
}

func move(t testing.TB, s *cells.Store, slots []int, to string) inbox.Move {
	t.Helper()
	if err := s.MoveNow(t.Context(), cells.Order{Slots: slots, To: to, Wait: time.Minute}); err != nil {
		t.Fatal(err)
	}
	done := s.Chart().Done
	last := done[len(done)-1]
	if last.Error != "" {
		t.Fatalf("want the slots moved, have %+v", last)
	}
	return last
}

// A queue over several databases keeps the contract of one. Times are those of the database that takes a task in, so the
// order of tasks that were put at once is checked where one has them all. What only one database does by itself is checked at
// night.
func TestTasksOfSeveralCellsKeepTheContract(t *testing.T) {
	t.Parallel()
	byItself := []string{"GivesUpPoisonous", "RefusesBadTasks", "FollowersWaitTheirs", "RaisesLate", "ClaimsManyTypes", "CutsErrors"}
	if *whole {
		byItself = nil
	}
	tasks.Conformance(t, func(t *testing.T) *store.TaskStore { return away(t).Ports().Tasks }, byItself...)
}

func statsIn(t testing.TB, db *store.TaskStore) (all store.TaskTypeStats) {
	t.Helper()
	stats, err := db.Admin.TaskStats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range stats {
		all.Ready, all.Scheduled, all.Failed = all.Ready+one.Ready, all.Scheduled+one.Scheduled, all.Failed+one.Failed
		all.Running += one.Running
	}
	return all
}

func put(t testing.TB, db *store.TaskStore, specs ...store.TaskSpec) (ids []int64) {
	t.Helper()
	for _, one := range outcomes(t, db, specs) {
		if one.Err != nil {
			t.Fatal(one.Err)
		}
		ids = append(ids, one.ID)
	}
	return ids
}

func outcomes(t testing.TB, db *store.TaskStore, specs []store.TaskSpec) []store.TaskPut {
	t.Helper()
	out, err := db.Queue.PutTasks(t.Context(), specs)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func claimOf(n int) store.TaskClaim {
	return store.TaskClaim{Worker: "x", Types: []store.TaskWant{{Type: "w", Limit: n}}, Lease: time.Hour}
}

func named(from, to int, change func(*store.TaskSpec)) (specs []store.TaskSpec) {
	for i := from; i < to; i++ {
		spec := store.TaskSpec{Type: "w", Key: fmt.Sprint("k", i%97), Unique: fmt.Sprint("u", i), Payload: json.RawMessage(fmt.Sprint(i))}
		if change != nil {
			change(&spec)
		}
		specs = append(specs, spec)
	}
	return specs
}

// All that is known of tasks goes along when their slots move: also those that are taken, scheduled or dead, and names.
func TestTasksMoveWithTheirSlots(t *testing.T) {
	t.Parallel()
	s := open(t, enginetest.MigratedPostgres(t), map[string]string{"b": enginetest.MigratedPostgres(t)})
	db := s.Ports().Tasks
	ids := put(t, db, named(0, 2500, func(spec *store.TaskSpec) {
		if spec.Unique == "u7" {
			spec.Priority = 9
		}
		if spec.Unique == "u8" {
			spec.Priority = 8
		}
	})...)
	put(t, db, named(2500, 2600, func(spec *store.TaskSpec) { spec.Delay = time.Hour })...)
	taken, err := db.Work.ClaimTasks(t.Context(), claimOf(2))
	if err != nil || len(taken) != 2 || taken[0].Unique != "u7" {
		t.Fatal(taken, err)
	}
	dead := store.TaskReport{Failed: []store.TaskFailure{{TaskRef: taken[1].Ref(), Error: "no"}}}
	if lost, err := db.Work.ReportTasks(t.Context(), dead); err != nil || len(lost) > 0 {
		t.Fatal(lost, err)
	}
	done := move(t, s, cells.All(), "b")
	t.Logf("%d rows, stood still for %.1f ms", done.Rows, 1000*done.FrozenS)
	if have := statsIn(t, s.Home().Tasks); have.Ready+have.Scheduled+have.Failed+have.Running != 0 {
		t.Errorf("want nothing left, have %+v", have)
	}
	if have := statsIn(t, db); have.Ready != 2498 || have.Scheduled != 100 || have.Failed != 1 || have.Running != 1 {
		t.Errorf("want all tasks in b, have %+v", have)
	}
	for i, one := range outcomes(t, db, named(0, 2600, nil)) {
		if want := i == 8; (one.Outcome == store.PutAdded) != want || i < 2500 && !want && one.ID != ids[i] {
			t.Errorf("task %d was %s as %d, and is %d", i, one.Outcome, one.ID, ids[min(i, 2499)])
		}
	}
	report := store.TaskReport{Completed: []store.TaskRef{taken[0].Ref()}}
	if lost, err := db.Work.ReportTasks(t.Context(), report); err != nil || len(lost) > 0 {
		t.Errorf("want the task that has moved completed, have %v, %v", lost, err)
	}
}

// A mortalQueue kills the process that moves tasks, before a step or after it.
type mortalQueue struct {
	store.SharedTasks
	m *mortal
}

func (q mortalQueue) PackTasks(
	ctx context.Context, move, target string, slots []int, ids []int64, taken bool,
) (p store.TaskParcel, err error) {
	return p, q.m.step("pack", move, func() error {
		p, err = q.SharedTasks.PackTasks(ctx, move, target, slots, ids, taken)
		return err
	})
}

func (q mortalQueue) UnpackTasks(ctx context.Context, p store.TaskParcel) error {
	return q.m.step("unpack", "/tasks", func() error { return q.SharedTasks.UnpackTasks(ctx, p) })
}

// A move of tasks whose process dies is undone before the switch, and ended after it: no task is lost or doubled. What is left
// before an unpack is what is left after a pack.
func TestMoveOfTasksIsTakenOver(t *testing.T) {
	t.Parallel()
	for at, want := range map[string]string{
		"before freeze": cells.Home, "after freeze": cells.Home, "before pack": "b", "after pack": "b",
		"after unpack": "b", "before open": "b", "after open": "b", "after drop": "b",
	} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			home, others := enginetest.MigratedPostgres(t), map[string]string{"b": enginetest.MigratedPostgres(t)}
			var die atomic.Pointer[func()]
			dying := openAs(t, home, others, time.Second, func(_ string, db *store.Cell) *store.Cell {
				m := &mortal{SlotMoves: db.Moves, at: at, part: "/tasks", die: &die}
				db.Moves, db.Shared = m, mortalQueue{db.Shared, m}
				return db
			})
			put(t, dying.Ports().Tasks, named(0, 1500, nil)...)
			kill := func() { die.Store(nil); dying.Die() }
			die.Store(&kill)
			_ = dying.MoveNow(t.Context(), cells.Order{Slots: cells.All(), To: "b", Wait: time.Minute}) // its error is that of the one who dies
			other := openAs(t, home, others, time.Second, nil)
			waitFor(t, "the move to be taken over", func() bool {
				v, err := other.Inbox(t.Context())
				return err == nil && len(v.Moves) == 1 && v.Moves[0].Ended != nil
			})
			if have := len(other.Chart().SlotsOf(cells.Home)); have != store.InboxSlots {
				t.Errorf("want the keys at home, have %d slots", have)
			}
			if left := statsIn(t, other.Home().Tasks).Ready; (left == 0) != (want == "b") {
				t.Errorf("want the tasks in %s, have %d at home", want, left)
			}
			db := other.Ports().Tasks
			for _, one := range outcomes(t, db, named(0, 1500, nil)) {
				if one.Outcome != store.PutKept {
					t.Fatalf("a name was free: %+v", one)
				}
			}
			seen := map[string]bool{}
			for len(seen) < 1500 {
				got, err := db.Work.ClaimTasks(t.Context(), claimOf(500))
				if err != nil || len(got) == 0 {
					t.Fatalf("%d tasks of 1500 are there, %v", len(seen), err)
				}
				for _, task := range got {
					if seen[task.Unique] {
						t.Fatalf("task %s is there twice", task.Unique)
					}
					seen[task.Unique] = true
				}
			}
			if have := statsIn(t, db); have.Ready != 0 {
				t.Errorf("%d tasks too many", have.Ready)
			}
		})
	}
}

// Workers do each task once while slots go to and fro, and one task of a key at a time.
func TestTasksAreDoneOnceWhileTheyMove(t *testing.T) {
	t.Parallel()
	s := open(t, enginetest.MigratedPostgres(t), map[string]string{"b": enginetest.MigratedPostgres(t)})
	db := s.Ports().Tasks
	const tasks = 4000
	var done, wrong atomic.Int64
	counts := make([]atomic.Int64, tasks)
	var busy [97]atomic.Int64
	w := queue.NewWorker(struct {
		store.TaskWork
		store.TaskMaintenance
	}{db.Work, db.Maintenance}, queue.WorkerOptions{Poll: 50 * time.Millisecond})
	queue.Register(w, queue.Kind[int]{Name: "w", MaxPerKey: 1, Running: 32}, func(_ context.Context, job queue.Job[int]) error {
		n := job.Payload
		if busy[n%97].Add(1) > 1 {
			wrong.Add(1)
		}
		defer busy[n%97].Add(-1)
		counts[n].Add(1)
		done.Add(1)
		return nil
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	for i := 0; i < tasks; i += 200 {
		put(t, db, named(i, i+200, nil)...)
		if to := []string{"b", cells.Home}[i/1000%2]; i%1000 == 200 {
			move(t, s, cells.All(), to)
		}
	}
	waitFor(t, "all tasks", func() bool { return done.Load() >= tasks })
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if n := wrong.Load(); n > 0 {
		t.Errorf("%d tasks began while another one of their key was under way", n)
	}
	for i := range counts {
		if n := counts[i].Load(); n != 1 {
			t.Errorf("task %d was done %d times", i, n)
		}
	}
}

// Of several cells, claims take the most urgent tasks first, and keep the bound of a type over all.
func TestClaimsOfSeveralCellsGoByUrgency(t *testing.T) {
	t.Parallel()
	s := halved(t)
	db := s.Ports().Tasks
	var specs []store.TaskSpec
	for i := range 400 {
		specs = append(specs, store.TaskSpec{Type: "w", Key: fmt.Sprint(i), Priority: i * 7 % 400})
	}
	put(t, db, specs...)
	if here := statsIn(t, s.Home().Tasks).Ready; here < 100 || here > 300 {
		t.Errorf("%d of 400 tasks are at home", here)
	}
	next := 399
	for next >= 0 {
		got, err := db.Work.ClaimTasks(t.Context(), claimOf(30))
		if err != nil || len(got) == 0 {
			t.Fatal(len(got), err)
		}
		for _, task := range got {
			if task.Priority != next {
				t.Fatalf("want priority %d, have %d", next, task.Priority)
			}
			next--
		}
	}
	put(t, db, slices.Repeat([]store.TaskSpec{{Type: "few"}}, 50)...)
	all := 0
	for range 4 {
		got, err := db.Work.ClaimTasks(t.Context(), store.TaskClaim{
			Worker: "x", Types: []store.TaskWant{{Type: "few", Limit: 5, MaxTaken: 7}}, Lease: time.Hour,
		})
		if err != nil {
			t.Fatal(err)
		}
		all += len(got)
	}
	if all != 7 {
		t.Errorf("want 7 tasks of the type taken in both cells, have %d", all)
	}
}

// A database that is away stops its own keys only.
func TestTasksOfOthersAreDoneWhileACellIsAway(t *testing.T) {
	t.Parallel()
	ctx, cancel := patience.Context(t.Context(), 2*time.Minute)
	defer cancel()
	cluster := enginetest.OwnPostgres(t)
	s := open(t, enginetest.MigratedPostgres(t), map[string]string{"b": cluster.URL})
	move(t, s, cells.All()[store.InboxSlots/2:], "b")
	db := s.Ports().Tasks
	put(t, db, named(0, 200, nil)...)
	here := statsIn(t, s.Home().Tasks).Ready
	if err := cluster.Halt(enginetest.StopImmediate); err != nil {
		t.Fatal(err)
	}
	did := 0
	waitFor(t, "the tasks at home", func() bool {
		got, err := db.Work.ClaimTasks(ctx, claimOf(20))
		if err != nil && !errors.Is(err, store.ErrAway) {
			t.Fatal(err)
		}
		var r store.TaskReport
		for _, task := range got {
			r.Completed = append(r.Completed, task.Ref())
		}
		if lost, err := db.Work.ReportTasks(ctx, r); err != nil || len(lost) > 0 {
			t.Fatal(lost, err)
		}
		did += len(got)
		return int64(did) >= here
	})
	out, err := db.Queue.PutTasks(ctx, append(named(200, 300, nil), store.TaskSpec{Type: "w"}))
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for _, one := range out {
		if errors.Is(one.Err, store.ErrAway) {
			refused++
		} else if one.Err != nil {
			t.Error(one.Err)
		}
	}
	if refused == 0 || refused >= 100 || out[100].Err != nil {
		t.Errorf("want some of the tasks refused that have a name, have %d, and the one without a key: %v", refused, out[100].Err)
	}
	if err := cluster.Start(ctx); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the tasks that were away", func() bool {
		got, err := db.Work.ClaimTasks(ctx, claimOf(20))
		did += len(got)
		return err == nil && did == 301-refused
	})
}

// BenchmarkMoveOfTasks moves slots of waiting tasks. It tells for how long nobody could claim a task of a key: longest, of claims
// one after the other that bound how many tasks of a key are taken, and frozen, from the freeze to the first tasks at the target.
func BenchmarkMoveOfTasks(b *testing.B) {
	for _, n := range []int{1000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				moveTasks(b, n)
			}
		})
	}
}

func moveTasks(b *testing.B, n int) {
	b.StopTimer()
	// Keys of one slot.
	var keys []string
	const slot = 7
	for i := 0; len(keys) < 100; i++ {
		if spec := (store.TaskSpec{Key: fmt.Sprint("k", i)}); spec.Slot() == slot {
			keys = append(keys, spec.Key)
		}
	}
	s := open(b, enginetest.MigratedPostgres(b), map[string]string{"b": enginetest.MigratedPostgres(b)})
	db := s.Ports().Tasks
	for i := 0; i < n; i += 1000 {
		put(b, db, named(i, i+1000, func(spec *store.TaskSpec) { spec.Key, spec.Unique = keys[rand.N(len(keys))], "" })...)
	}
	ctx, stop := context.WithCancel(b.Context())
	longest := make(chan time.Duration)
	claims := 0
	go func() {
		longest0, last := time.Duration(0), time.Now()
		var r store.TaskReport
		for ; ctx.Err() == nil; claims++ {
			got, _, err := db.Work.ExchangeTasks(ctx, r, store.TaskClaim{
				Worker: "x", Types: []store.TaskWant{{Type: "w", Limit: 1, MaxPerKey: 1}}, Lease: time.Hour,
			})
			if err == nil {
				r.Completed = nil
			}
			if err != nil || len(got) == 0 {
				continue
			}
			longest0, last = max(longest0, time.Since(last)), time.Now()
			r.Completed = []store.TaskRef{got[0].Ref()}
		}
		longest <- longest0
	}()
	b.StartTimer()
	done := move(b, s, []int{slot * store.InboxSlots / store.TaskSlots}, "b")
	stop()
	b.ReportMetric(float64((<-longest).Milliseconds()), "longest-ms")
	b.ReportMetric(1000*done.FrozenS, "frozen-ms")
	b.ReportMetric(float64(claims), "claims")
}
