package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"procaas/engine/postgres"
	"procaas/handlers/queue"
)

// A taskKind is the type of the tasks that do nothing.
var taskKind = queue.Kind[int]{Name: "empty"} // no pipeline has this name, or its tasks would be runs

// openQueue opens a queue in a schema of its own.
func openQueue(ctx context.Context, b *bench, schema string) (*queue.Store, string, error) {
	dsn, err := b.server.schema(ctx, schema)
	if err != nil {
		return nil, "", err
	}
	if _, err := postgres.Migrate(ctx, dsn); err != nil {
		return nil, "", err
	}
	s, err := queue.Open(ctx, dsn, queue.Options{})
	return s, dsn, err
}

// fillQueue puts n tasks. change modifies each.
func fillQueue(ctx context.Context, s *queue.Store, n int, change func(*queue.Spec)) error {
	var g errgroup.Group
	g.SetLimit(putters)
	for left := n; left > 0; left -= 1000 {
		batch := make([]queue.Spec, min(left, 1000))
		for i := range batch {
			task, err := taskKind.Task(i)
			if err != nil {
				return err
			}
			if change != nil {
				change(&task)
			}
			batch[i] = task
		}
		g.Go(func() error {
			_, err := s.Enqueue(ctx, nil, batch...)
			return err
		})
	}
	return g.Wait()
}

// workOff runs a worker until it has done n tasks.
func workOff(ctx context.Context, s *queue.Store, n int) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var done atomic.Int64
	w := queue.NewWorker(s, queue.WorkerOptions{})
	queue.Register(w, taskKind, func(context.Context, queue.Job[int]) error {
		if done.Add(1) == int64(n) {
			stop()
		}
		return nil
	})
	if err := w.Run(ctx); err != nil {
		return err
	}
	if done.Load() < int64(n) {
		return fmt.Errorf("want %d tasks done, have %d: %w", n, done.Load(), context.Cause(ctx))
	}
	return nil
}

// drainQueue measures a drain of preloaded tasks.
func (b *bench) drainQueue(ctx context.Context, n int, prepare func(*queue.Store) error) (_ sample, err error) {
	s, _, err := openQueue(ctx, b, "tasks_drain")
	if err != nil {
		return sample{}, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if prepare != nil {
		if err := prepare(s); err != nil {
			return sample{}, err
		}
	}
	if err := errors.Join(s.VacuumTasks(ctx), fillQueue(ctx, s, n, nil), b.server.settle(ctx)); err != nil {
		return sample{}, err
	}
	return b.rated(ctx, 0, func() (int, error) { return n, workOff(ctx, s, n) })
}

// measureQueuePut compares putting tasks with COPY into the same table.
func measureQueuePut(ctx context.Context, b *bench) error {
	fmt.Fprintf(b.out, "putting %d tasks by the thousand, %d rounds\n", b.tasks, b.rounds)
	var batched, copied, single []sample
	ones := max(b.tasks/100, 200)
	for range b.rounds {
		err := func() (err error) {
			s, dsn, err := openQueue(ctx, b, "tasks_put")
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, s.Close()) }()
			pool, err := pgxpool.New(ctx, dsn)
			if err != nil {
				return err
			}
			defer pool.Close()
			one, err := b.rated(ctx, 0, func() (int, error) { return b.tasks, copyTasks(ctx, pool, b.tasks) })
			if err != nil {
				return err
			}
			copied = append(copied, one)
			if _, err := pool.Exec(ctx, "truncate tasks"); err != nil {
				return err
			}
			if one, err = b.rated(ctx, 0, func() (int, error) { return b.tasks, fillQueue(ctx, s, b.tasks, nil) }); err != nil {
				return err
			}
			batched = append(batched, one)
			one, err = b.rated(ctx, 0, func() (int, error) {
				for range ones {
					if err := fillQueue(ctx, s, 1, nil); err != nil {
						return 0, err
					}
				}
				return ones, nil
			})
			single = append(single, one)
			return err
		}()
		if err != nil {
			return err
		}
	}
	b.compare("tasks", []line{
		{"COPY", copied, nil}, {"procaas by the thousand", batched, nil}, {"procaas one by one, one client", single, nil},
	})
	b.verdict("batches, of COPY", ratios(batched, copied), 0.7, true)
	return nil
}

// putters is how many clients put tasks at once.
const putters = 4

// copyTasks copies tasks into the table in batches of a thousand.
func copyTasks(ctx context.Context, pool *pgxpool.Pool, n int) error {
	var g errgroup.Group
	g.SetLimit(putters)
	for first := 0; first < n; first += 1000 {
		g.Go(func() error {
			_, err := pool.CopyFrom(ctx, pgx.Identifier{"tasks"}, []string{"id", "deadline", "rank", "timeout", "slot", "type", "key", "payload"},
				pgx.CopyFromSlice(min(1000, n-first), func(i int) ([]any, error) {
					return []any{int64(first + i + 1), time.Now(), 0, 0, 0, taskKind.Name, "", []byte("1")}, nil
				}))
			return err
		})
	}
	return g.Wait()
}

// measureQueueLatency measures the time from a put to the start of the task.
func measureQueueLatency(ctx context.Context, b *bench) (err error) {
	const rate = 100
	crowd := []struct {
		name string
		fill func(*queue.Store) error
	}{
		{"an empty queue", nil},
		{fmt.Sprintf("%d scheduled and %d low ones", b.crowd, b.crowd), func(s *queue.Store) error {
			return errors.Join(
				fillQueue(ctx, s, b.crowd, func(t *queue.Spec) { t.Delay, t.Priority = 24*time.Hour, 10 }),
				fillQueue(ctx, s, b.crowd, func(t *queue.Spec) { t.Type, t.Priority = "patient", -10 }),
			)
		}},
	}
	var of [2]sample
	for i, c := range crowd {
		if of[i], err = b.latencyOf(ctx, rate, c.fill); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	b.table(fmt.Sprintf("from put to start, %d tasks/s for %s\tp50 ms\tp99 ms\t", rate, b.span), func(w *tabwriter.Writer) {
		for i, c := range crowd {
			fmt.Fprintf(w, "beside %s\t%.2f\t%.2f\t\n", c.name, of[i].p50(), of[i].p99())
		}
	})
	b.note("queue, from put to start: p50", "ms", of[0].p50())
	b.note("queue, from put to start: p99", "ms", of[0].p99())
	b.judge("p50 ms", of[0].p50(), 5, false)
	b.judge("p99 ms", of[0].p99(), 25, false)
	b.judge("p50 in the crowd, of alone", of[1].p50()/of[0].p50(), 1.2, false)

	var alone, among []sample
	for range b.rounds {
		for i, into := range []*[]sample{&alone, &among} {
			s, err := b.drainQueue(ctx, b.tasks, crowd[i].fill)
			if err != nil {
				return err
			}
			*into = append(*into, s)
		}
	}
	b.verdict("drain in the crowd, of alone", ratios(among, alone), 1/1.2, true)
	return nil
}

func (b *bench) latencyOf(ctx context.Context, rate float64, fill func(*queue.Store) error) (_ sample, err error) {
	s, _, err := openQueue(ctx, b, "tasks_latency")
	if err != nil {
		return sample{}, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if fill != nil {
		if err := fill(s); err != nil {
			return sample{}, err
		}
	}
	if err := errors.Join(s.VacuumTasks(ctx), b.server.settle(ctx)); err != nil { // the workers have been waiting for a while by now
		return sample{}, err
	}
	working, stop := context.WithCancel(ctx)
	defer stop()
	var mu sync.Mutex // guards starts
	starts := map[int]chan struct{}{}
	start := func(i int) chan struct{} {
		mu.Lock()
		defer mu.Unlock()
		if starts[i] == nil {
			starts[i] = make(chan struct{})
		}
		return starts[i]
	}
	w := queue.NewWorker(s, queue.WorkerOptions{})
	queue.Register(w, taskKind, func(_ context.Context, j queue.Job[int]) error {
		close(start(j.Payload))
		return nil
	})
	ended := make(chan error, 1)
	go func() { ended <- w.Run(working) }()
	out := sample{}
	out.latencies, err = pace(ctx, rate, b.span, func(ctx context.Context, i int) error {
		task, err := taskKind.Task(i)
		if err != nil {
			return err
		}
		if _, err := s.Enqueue(ctx, nil, task); err != nil {
			return err
		}
		select {
		case <-start(i):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	stop()
	return out, errors.Join(err, <-ended)
}

// measureQueueBloat runs many tasks beside a constant backlog. It compares size and speed before and after.
func measureQueueBloat(ctx context.Context, b *bench) (err error) {
	fmt.Fprintf(b.out, "%d tasks pass, beside %d that wait\n", b.pass, b.crowd/10)
	s, _, err := openQueue(ctx, b, "tasks_bloat")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := fillQueue(ctx, s, b.crowd/10, func(t *queue.Spec) { t.Type, t.Priority = "patient", -10 }); err != nil {
		return err
	}
	var sizes []float64
	var speeds []sample
	for passed := 0; passed < b.pass; passed += b.tasks {
		if err := fillQueue(ctx, s, b.tasks, nil); err != nil {
			return err
		}
		var bytes float64
		if err := b.server.query(ctx, func(c *pgx.Conn) error {
			return c.QueryRow(ctx, "select pg_total_relation_size('tasks_bloat.tasks')").Scan(&bytes)
		}); err != nil {
			return err
		}
		one, err := b.rated(ctx, 0, func() (int, error) { return b.tasks, workOff(ctx, s, b.tasks) })
		if err != nil {
			return err
		}
		if err := s.VacuumTasks(ctx); err != nil {
			return err
		}
		sizes, speeds = append(sizes, bytes), append(speeds, one)
	}
	rates := collect(speeds, sample.getRate)
	b.judge("size when full, of the first time", sizes[len(sizes)-1]/sizes[0], 2, false)
	b.judge("largest size when full, of the first time", slices.Max(sizes)/sizes[0], 2, false)
	b.judge("speed of the last ones, of the first", rates[len(rates)-1]/rates[0], 0.5, true)
	return nil
}
