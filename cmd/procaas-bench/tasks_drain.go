package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"procaas/handlers/queue"
)

// The loops that a good engineer writes by hand: claim 500, then complete them. Rows
// are found again by where they lie, as nobody else changes them. What a queue has to
// do beside that, they do not: keep what has ended, order by more than the id, know
// who holds a task and until when.
const (
	handTable = `create table jobs (id bigint primary key, state smallint not null default 0, payload bytea not null) with (fillfactor = 50)`
	handFill  = "insert into jobs (id, payload) select i, '1' from generate_series(1, $1::int) i"
	handClaim = `update jobs set state = 1 where ctid = any(array(
		select ctid from jobs where state = 0 order by id limit 500 for update skip locked)) returning ctid, id`
	handEnd   = "delete from jobs where ctid = any($1::tid[])"
	handFused = "with ended as (" + handEnd + ") " + handClaim // of other rows: one statement, one commit
	handPlans = `select set_config('plan_cache_mode', 'force_generic_plan', false), set_config('enable_seqscan', 'off', false),
		set_config('jit', 'off', false)`
)

// A handLoop is one way to write it.
type handLoop struct {
	name  string
	loops int
	fused bool // a completion goes with the next claim, in one statement
}

var handLoops = []handLoop{
	{"by hand, k = 500, 2 loops", 2, false},
	{"by hand, k = 500, 4 loops", 4, false},
	{"by hand, completion fused with the next claim, 2 loops", 2, true},
}

func (b *bench) drainByHand(ctx context.Context, n int, how handLoop) (sample, error) {
	dsn, err := b.server.schema(ctx, "tasks_by_hand")
	if err != nil {
		return sample{}, err
	}
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return sample{}, err
	}
	config.MaxConns = int32(how.loops)
	config.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, handPlans)
		return err
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return sample{}, err
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, handTable); err != nil {
		return sample{}, err
	}
	if _, err := pool.Exec(ctx, handFill, n); err != nil {
		return sample{}, err
	}
	if err := b.server.settle(ctx); err != nil {
		return sample{}, err
	}
	return b.rated(n, func() error {
		var g errgroup.Group
		for range how.loops {
			g.Go(func() error { return loopByHand(ctx, pool, how.fused) })
		}
		return g.Wait()
	})
}

// loopByHand works until there are no more jobs.
func loopByHand(ctx context.Context, pool *pgxpool.Pool, fused bool) error {
	var done []pgtype.TID
	for {
		var next []pgtype.TID
		var err error
		switch {
		case fused:
			next, err = claimByHand(ctx, pool, handFused, done)
		case len(done) == 0:
			next, err = claimByHand(ctx, pool, handClaim)
		default:
			_, err = pool.Exec(ctx, handEnd, done)
		}
		if err != nil {
			return err
		}
		if len(next) == 0 && len(done) == 0 {
			return nil
		}
		done = next
	}
}

// claimByHand returns where the claimed rows lie.
func claimByHand(ctx context.Context, pool *pgxpool.Pool, statement string, args ...any) (next []pgtype.TID, err error) {
	rows, err := pool.Query(ctx, statement, args...)
	if err != nil {
		return nil, err
	}
	var (
		place pgtype.TID
		id    int64
	)
	_, err = pgx.ForEachRow(rows, []any{&place, &id}, func() error {
		next = append(next, place)
		return nil
	})
	return next, err
}

// measureQueueDrain compares a drain with loops that are written by hand.
func measureQueueDrain(ctx context.Context, b *bench) error {
	fmt.Fprintf(b.out, "draining %d tasks that do nothing, durable, %d rounds\n", b.tasks, b.rounds)
	hand := make([][]sample, len(handLoops))
	var ours []sample
	for range b.rounds {
		for i, how := range handLoops {
			s, err := b.drainByHand(ctx, b.tasks, how)
			if err != nil {
				return fmt.Errorf("%s: %w", how.name, err)
			}
			hand[i] = append(hand[i], s)
		}
		s, err := b.drainQueue(ctx, b.tasks, nil)
		if err != nil {
			return err
		}
		ours = append(ours, s)
	}
	best := 0
	for i := range handLoops {
		if medianOf(hand[i], sample.getRate) > medianOf(hand[best], sample.getRate) {
			best = i
		}
	}
	b.table("\ttasks/s\tPostgreSQL µs\town µs\tof the best loop\t", func(w *tabwriter.Writer) {
		row := func(name string, of []sample) {
			fmt.Fprintf(w, "%s\t%.0f\t%.1f\t%.1f\t%s\t\n", name, medianOf(of, sample.getRate), medianOf(of, sample.getServer),
				medianOf(of, sample.getOwn), ratio(of, hand[best]))
		}
		for i, how := range handLoops {
			row(how.name, hand[i])
		}
		row("procaas", ours)
	})
	b.verdict("drain, of the best loop by hand", ratios(ours, hand[best]), 0.75, true)
	return nil
}

// hinderedTimes is how many measures of tasks pass while a transaction stays open.
const hinderedTimes = 3

// measureQueueHindered compares a queue at ease with one beside a transaction that
// stays open all the time, and with one that has just lost, and goes on losing, very
// many tasks to somebody who cancels them.
func measureQueueHindered(ctx context.Context, b *bench) error {
	fmt.Fprintf(b.out, "%d tasks pass, a third at a time, beside those who hinder them, %d rounds\n", hinderedTimes*b.tasks, b.rounds)
	cases := []struct {
		name string
		run  func() (sample, error)
	}{
		{"alone", func() (sample, error) { return b.drainAgain(ctx, nil) }},
		{"a transaction left open", func() (s sample, err error) {
			idler := &idler{dsn: b.server.dsn, wanted: true}
			if err := idler.begin(ctx); err != nil {
				return s, err
			}
			s, err = b.drainAgain(ctx, nil)
			return s, errors.Join(err, idler.end())
		}},
		{fmt.Sprintf("%d tasks of the type are cancelled", b.cancelled), func() (sample, error) {
			return b.drainAgain(ctx, &b.cancelled)
		}},
	}
	of := make([][]sample, len(cases))
	for range b.rounds {
		for i, c := range cases {
			s, err := c.run()
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			of[i] = append(of[i], s)
		}
	}
	b.table("\ttasks/s\tPostgreSQL µs\town µs\tof alone\t", func(w *tabwriter.Writer) {
		for i, c := range cases {
			fmt.Fprintf(w, "%s\t%.0f\t%.1f\t%.1f\t%s\t\n", c.name, medianOf(of[i], sample.getRate), medianOf(of[i], sample.getServer),
				medianOf(of[i], sample.getOwn), ratio(of[i], of[0]))
		}
	})
	b.verdict("with a transaction left open, of alone", ratios(of[1], of[0]), 0.5, true)
	b.verdict("beside a mass cancel, of alone", ratios(of[2], of[0]), 0.5, true)
	return nil
}

// drainAgain measures drains of one queue, several times after each other; the time to
// fill it does not count. Of the tasks that are cancelled, half lie before those that
// are to be done and went just now, and half go meanwhile.
func (b *bench) drainAgain(ctx context.Context, cancelled *int) (_ sample, err error) {
	s, _, err := openQueue(ctx, b, "tasks_hindered")
	if err != nil {
		return sample{}, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	const before, beside = "before", "beside"
	if cancelled != nil {
		if err := errors.Join(
			fillQueue(ctx, s, *cancelled/2, func(t *queue.Spec) { t.Key, t.Priority = before, 1 }),
			fillQueue(ctx, s, *cancelled-*cancelled/2, func(t *queue.Spec) { t.Key, t.Priority = beside, -1 }),
		); err != nil {
			return sample{}, err
		}
		if _, err := s.CancelTasks(ctx, queue.Filter{Type: taskKind.Name, Key: before}); err != nil {
			return sample{}, err
		}
	}
	var all sample
	var took time.Duration
	for i := range hinderedTimes {
		if err := errors.Join(fillQueue(ctx, s, b.tasks, nil), b.server.settle(ctx)); err != nil {
			return sample{}, err
		}
		var helper sync.WaitGroup
		var failed error
		if cancelled != nil && i == 0 {
			helper.Go(func() { _, failed = s.CancelTasks(ctx, queue.Filter{Type: taskKind.Name, Key: beside}) })
		}
		one, err := b.rated(b.tasks, func() error { return workOff(ctx, s, b.tasks) })
		helper.Wait()
		if err := errors.Join(err, failed); err != nil {
			return sample{}, err
		}
		took += time.Duration(float64(b.tasks) / one.rate * float64(time.Second))
		all.server, all.own = all.server+one.server/hinderedTimes, all.own+one.own/hinderedTimes
	}
	all.rate = hinderedTimes * float64(b.tasks) / took.Seconds()
	return all, nil
}
