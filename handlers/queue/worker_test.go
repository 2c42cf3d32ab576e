package queue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/engine/model"
	"procaas/engine/store"
	"procaas/handlers/queue"
	"procaas/handlers/queue/taskrun"
)

// run runs a worker until the test, or stop, ends it.
func run(t *testing.T, w *queue.Worker) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func put(t *testing.T, s *queue.Store, tasks ...queue.Spec) {
	t.Helper()
	if _, err := s.Enqueue(t.Context(), nil, tasks...); err != nil {
		t.Fatal(err)
	}
}

func numbers(t *testing.T, k queue.Kind[int], n int) (out []queue.Spec) {
	t.Helper()
	for i := range n {
		task, err := k.Task(i)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, task)
	}
	return out
}

func left(t *testing.T, s *queue.Store) (n int64) {
	t.Helper()
	stats, err := s.TaskStats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range stats {
		n += one.Ready + one.Waiting + one.Starting + one.Running + one.Scheduled
	}
	return n
}

func TestWorkersDoEachTaskOnce(t *testing.T) {
	t.Parallel()
	s := open(t, enginetest.MigratedPostgres(t))
	kinds := []queue.Kind[int]{{Name: "fast"}, {Name: "bounded", Running: 2, MaxPerKey: 1, MaxTaken: 3}}
	var mu sync.Mutex
	times := map[string]int{}
	var now, most atomic.Int64
	for range 2 {
		w := queue.NewWorker(s, queue.WorkerOptions{Poll: 20 * time.Millisecond})
		for _, k := range kinds {
			queue.Register(w, k, func(_ context.Context, j queue.Job[int]) error {
				if j.Type == "bounded" {
					most.Store(max(most.Load(), now.Add(1)))
					defer now.Add(-1)
				}
				mu.Lock()
				times[fmt.Sprint(j.Type, j.Payload)]++
				mu.Unlock()
				return nil
			})
		}
		run(t, w)
	}
	put(t, s, numbers(t, kinds[0], 1500)...)
	some := numbers(t, kinds[1], 60)
	for i := range some {
		some[i].Key = fmt.Sprint("user-", i%5)
	}
	put(t, s, some...)
	patience.Until(t, "all tasks done", func() bool { return left(t, s) == 0 })
	mu.Lock()
	defer mu.Unlock()
	for task, n := range times {
		if n != 1 {
			t.Errorf("want %s done once, have %d times", task, n)
		}
	}
	if len(times) != 1560 || most.Load() > 3 {
		t.Errorf("want 1560 tasks, and 3 of the bounded type at once, have %d and %d", len(times), most.Load())
	}
}

func TestEndsOfAttempts(t *testing.T) {
	t.Parallel()
	s := open(t, enginetest.MigratedPostgres(t))
	k := queue.Kind[string]{Name: "work", Timeout: time.Hour, Retry: &taskrun.TaskPolicy{Attempts: 3, MinDelay: time.Millisecond, Factor: 1}}
	var mu sync.Mutex
	tries := map[string][]int{}
	w := queue.NewWorker(s, queue.WorkerOptions{Poll: 20 * time.Millisecond})
	queue.Register(w, k, func(ctx context.Context, j queue.Job[string]) error {
		mu.Lock()
		tries[j.Payload] = append(tries[j.Payload], j.Attempt())
		n := len(tries[j.Payload])
		mu.Unlock()
		switch {
		case j.Payload == "never":
			return errors.New("it does not work")
		case j.Payload == "permanent":
			return model.Permanent(errors.New("it cannot work"))
		case j.Payload == "panic":
			panic("it breaks")
		case j.Payload == "slow":
			<-ctx.Done()
			return ctx.Err()
		case j.Payload == "later" && n < 3:
			return queue.PutOff(time.Millisecond)
		case j.Payload == "again" && n < 2:
			return model.After(time.Millisecond, errors.New("not yet"))
		}
		return nil
	})
	for _, payload := range []string{"never", "permanent", "panic", "slow", "later", "again"} {
		task, err := k.Task(payload)
		if err != nil {
			t.Fatal(err)
		}
		if payload == "slow" {
			task.Timeout = 10 * time.Millisecond
		}
		put(t, s, task)
	}
	put(t, s, queue.Spec{Type: "work", Payload: []byte("7")})
	run(t, w)
	patience.Until(t, "all tasks ended", func() bool { return left(t, s) == 0 })

	dead, err := s.PeekTasks(t.Context(), queue.Filter{State: store.TaskFailed, Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]string{}
	for _, d := range dead {
		have[string(d.Payload)] = d.Error
	}
	for payload, says := range map[string]string{
		`"never"`: "it does not work", `"permanent"`: "it cannot work", `"panic"`: "attempt panicked: it breaks",
		`"slow"`: "context deadline exceeded: context deadline exceeded", "7": "payload is no string: json: cannot unmarshal number into Go " +
			"value of type string",
	} {
		if have[payload] != says {
			t.Errorf("%s: want the error %q kept, have %q", payload, says, have[payload])
		}
	}
	if len(have) != 5 {
		t.Errorf("want 5 dead letters, have %v", have)
	}
	mu.Lock()
	defer mu.Unlock()
	for payload, want := range map[string][]int{
		"never": {1, 2, 3}, "permanent": {1}, "panic": {1, 2, 3}, "slow": {1, 2, 3}, "later": {1, 1, 1}, "again": {1, 2},
	} {
		if !slices.Equal(tries[payload], want) {
			t.Errorf("%s: want the attempts %v, have %v", payload, want, tries[payload])
		}
	}
}

// A deaf store loses the beats of its worker, and hands it no second task, as when a
// process pauses.
type deaf struct {
	*queue.Store
	off, given atomic.Bool
}

func (d *deaf) BeatTasks(ctx context.Context, beats []queue.Beat) ([]queue.Ref, error) {
	if d.off.Load() {
		return nil, errors.New("nobody hears")
	}
	return d.Store.BeatTasks(ctx, beats)
}

func (d *deaf) ExchangeTasks(ctx context.Context, r queue.Report, c queue.Claim) ([]queue.Task, []queue.Ref, error) {
	if d.given.Load() {
		c.Types = nil
	}
	tasks, lost, err := d.Store.ExchangeTasks(ctx, r, c)
	d.given.Store(d.given.Load() || len(tasks) > 0)
	return tasks, lost, err
}

func TestWorkerThatIsNotHeardOfLosesItsTask(t *testing.T) {
	t.Parallel()
	s := open(t, enginetest.MigratedPostgres(t))
	k := queue.Kind[int]{Name: "work", Timeout: time.Hour}
	silent := &deaf{Store: s}
	silent.off.Store(true)
	began, cause := make(chan struct{}), make(chan error, 1)
	first := queue.NewWorker(silent, queue.WorkerOptions{Name: "first", Lease: time.Second, CareElsewhere: true})
	queue.Register(first, k, func(ctx context.Context, _ queue.Job[int]) error {
		close(began)
		<-ctx.Done()
		cause <- context.Cause(ctx)
		return nil // it believes that it is done
	})
	run(t, first)
	put(t, s, numbers(t, k, 1)...)
	<-began

	// A worker of other tasks takes it from the first one. The second holds it for long
	// enough on a machine that pauses at times.
	carer := queue.NewWorker(s, queue.WorkerOptions{Name: "carer", Lease: time.Second})
	queue.Register(carer, queue.Kind[int]{Name: "other"}, func(context.Context, queue.Job[int]) error { return nil })
	run(t, carer)
	var by atomic.Pointer[queue.Task]
	second := queue.NewWorker(s, queue.WorkerOptions{Name: "second", Poll: 50 * time.Millisecond, Lease: time.Hour, CareElsewhere: true})
	queue.Register(second, k, func(_ context.Context, j queue.Job[int]) error {
		by.Store(&j.Task)
		return nil
	})
	run(t, second)
	patience.Until(t, "the second worker to take over", func() bool { return by.Load() != nil && left(t, s) == 0 })
	silent.off.Store(false)
	if err := <-cause; !errors.Is(err, queue.ErrLost) {
		t.Errorf("want the first worker to hear that it has lost the task, have %v", err)
	}
	if task := by.Load(); task.Lost < 1 || task.Failures != 0 || task.Error != "worker first was not heard of" {
		t.Errorf("want the task to tell of its first worker, have %+v", task)
	}
	ended, err := s.PeekTasks(t.Context(), queue.Filter{State: store.TaskCompleted, Limit: 10})
	if err != nil || len(ended) != 1 || ended[0].Worker != "second" {
		t.Errorf("want the task completed once, by the second worker, have %+v and %v", ended, err)
	}
}

func TestWorkerThatStopsGivesBackWhatItHolds(t *testing.T) {
	t.Parallel()
	s := open(t, enginetest.MigratedPostgres(t))
	k := queue.Kind[int]{Name: "work", Running: 1, Timeout: time.Hour}
	put(t, s, numbers(t, k, 20)...)
	var began atomic.Int64
	leave := make(chan struct{})
	first := queue.NewWorker(s, queue.WorkerOptions{Name: "first", Grace: time.Millisecond})
	queue.Register(first, k, func(ctx context.Context, _ queue.Job[int]) error {
		if began.Add(1) == 5 { // now it knows that tasks are fast, and has taken more
			close(leave)
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	})
	stop := run(t, first)
	<-leave
	stop()
	if n, want := left(t, s), 20-began.Load()+1; n != want {
		t.Errorf("want %d tasks left, have %d", want, n)
	}
	ready, err := s.PeekTasks(t.Context(), queue.Filter{State: store.TaskReady, Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range ready {
		if task.Failures != 0 || task.Lost != 0 {
			t.Errorf("want a task given back as if nobody had had it, have %+v", task)
		}
	}
	if n := 20 - began.Load() + 1; int64(len(ready)) != n {
		t.Errorf("want %d tasks ready at once, have %d", n, len(ready))
	}
}

func TestEnqueueBelongsToTheTransaction(t *testing.T) {
	t.Parallel()
	dsn := enginetest.MigratedPostgres(t)
	s := open(t, dsn)
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	var done atomic.Int64
	w := queue.NewWorker(s, queue.WorkerOptions{Poll: time.Hour}) // so that only the hint wakes it
	queue.Register(w, queue.Kind[int]{Name: "work"}, func(context.Context, queue.Job[int]) error {
		done.Add(1)
		return nil
	})
	run(t, w)
	task := numbers(t, queue.Kind[int]{Name: "work"}, 1)[0]
	undo := errors.New("undo")
	err = pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
		_, err := s.Enqueue(t.Context(), tx, task)
		return errors.Join(err, undo)
	})
	if !errors.Is(err, undo) || left(t, s) != 0 {
		t.Errorf("want nothing left of what was undone, have %v", err)
	}
	if err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
		_, err := s.Enqueue(t.Context(), tx, task, task)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	patience.Until(t, "both tasks done", func() bool { return done.Load() == 2 && left(t, s) == 0 })

	bad := task
	bad.Payload = []byte("{")
	if _, err := s.Enqueue(t.Context(), nil, task, bad); !errors.Is(err, store.ErrTask) {
		t.Errorf("want the bad task told, have %v", err)
	}
}

func TestPolicyThatSaysNothingIsTold(t *testing.T) {
	t.Parallel()
	s := open(t, enginetest.MigratedPostgres(t))
	k := queue.Kind[int]{Name: "work", Retry: &taskrun.TaskPolicy{
		MinDelay: time.Hour, Delay: func(int) (time.Duration, error) { return 0, errors.New("it is no duration") },
	}}
	w := queue.NewWorker(s, queue.WorkerOptions{Poll: 20 * time.Millisecond})
	queue.Register(w, k, func(context.Context, queue.Job[int]) error { return errors.New("it does not work") })
	put(t, s, numbers(t, k, 1)...)
	run(t, w)
	patience.Until(t, "the task to wait and to tell of both errors", func() bool {
		later, err := s.PeekTasks(t.Context(), queue.Filter{State: store.TaskScheduled})
		return err == nil && len(later) == 1 && strings.HasPrefix(later[0].Error, "it does not work; ") &&
			strings.Contains(later[0].Error, "it is no duration")
	})
}

// Nobody would take the patient task: there is always something more important.
func TestWorkerRaisesWhatWaitsForTooLong(t *testing.T) {
	t.Parallel()
	s := open(t, enginetest.MigratedPostgres(t))
	patient := queue.Kind[int]{Name: "work", Priority: -1}
	important := queue.Kind[int]{Name: "work", Priority: 1, MaxWait: time.Millisecond, Running: 1}
	var done atomic.Bool
	w := queue.NewWorker(s, queue.WorkerOptions{Poll: 20 * time.Millisecond, Prefetch: 1})
	queue.Register(w, important, func(ctx context.Context, j queue.Job[int]) error {
		if j.Payload == 7 {
			done.Store(true)
		}
		if done.Load() {
			return nil
		}
		_, err := s.Enqueue(ctx, nil, numbers(t, important, 2)...) // and so on
		return err
	})
	last, err := patient.Task(7)
	if err != nil {
		t.Fatal(err)
	}
	put(t, s, append(numbers(t, important, 5), last)...)
	run(t, w)
	patience.Until(t, "the patient task to be done", done.Load)
}
