package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"procaas/handlers/queue"
	queueremote "procaas/handlers/queue/remote"
)

// These loops are what a good engineer writes by hand: claim some hundreds, then complete them. They find rows
// by their place, since nobody else changes them. Unlike a queue, they do not keep ended tasks, order only by
// id, and do not record who has a task and until when. The last one keeps and records that, to show its price.
const (
	handTable = `create table jobs (id bigint primary key, state smallint not null default 0, payload bytea not null,
		worker text, begun timestamptz, until timestamptz) with (fillfactor = %d);
		create table jobs_ended (id bigint not null, worker text not null, begun timestamptz not null, ended timestamptz not null)`
	handFill = "insert into jobs (id, payload) select i, '1' from generate_series(1, $1::int) i"
	handTake = "update jobs set state = 1"
	handNext = ` where ctid = any(array(
		select ctid from jobs where state = 0 order by id limit %d for update skip locked)) returning ctid, payload`
	handClaim = handTake + handNext
	handEnd   = "delete from jobs where ctid = any($1::tid[])"
	handFused = "with ended as (" + handEnd + ") " + handClaim // of other rows: one statement, one commit
	handKept  = "with ended as (" + handEnd + ` returning id, worker, begun),
		kept as (insert into jobs_ended select id, worker, begun, now() from ended) ` +
		handTake + ", worker = 'worker-1', begun = now(), until = now() + interval '30 s'" + handNext
	handPlans = `select set_config('plan_cache_mode', 'force_generic_plan', false), set_config('enable_seqscan', 'off', false),
		set_config('jit', 'off', false)`
)

// A loop is a number of workers and of tasks per claim.
type loop struct{ workers, claim int }

func (l loop) String() string { return fmt.Sprintf("%d workers, claims of %d", l.workers, l.claim) }

// loops are the candidates. Each contestant gets its best one.
func loops() (all []loop) {
	for _, workers := range []int{1, 2, 4} {
		for _, claim := range []int{200, 500, 1000} {
			all = append(all, loop{workers, claim})
		}
	}
	return all
}

// run runs the workers until each has found no task.
func (l loop) run(worker func() error) error {
	var g errgroup.Group
	for range l.workers {
		g.Go(worker)
	}
	return g.Wait()
}

// drainByHand measures a loop by hand. The fused statement completes tasks and claims the next ones. Without it,
// two statements do. fill is the part of pages in percent that leaves them room for the next versions of rows.
func drainByHand(fused string, fill int) func(ctx context.Context, b *bench, n int, l loop) (sample, error) {
	return func(ctx context.Context, b *bench, n int, l loop) (sample, error) {
		pool, err := openJobs(ctx, b, n, l.workers, fill)
		if err != nil {
			return sample{}, err
		}
		defer pool.Close()
		return b.rated(ctx, 0, func() (int, error) {
			return n, l.run(func() error { return loopByHand(ctx, pool, l.claim, fused) })
		})
	}
}

// openJobs creates the table of a loop by hand, with n jobs.
func openJobs(ctx context.Context, b *bench, n, connections, fill int) (*pgxpool.Pool, error) {
	dsn, err := b.server.schema(ctx, "tasks_by_hand")
	if err != nil {
		return nil, err
	}
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	config.MaxConns = int32(connections)
	config.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, handPlans)
		return err
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	if _, err = pool.Exec(ctx, fmt.Sprintf(handTable, fill)); err == nil {
		_, err = pool.Exec(ctx, handFill, n)
	}
	if err == nil {
		err = b.server.settle(ctx)
	}
	if err != nil {
		pool.Close()
	}
	return pool, err
}

// loopByHand works until no job is left.
func loopByHand(ctx context.Context, pool *pgxpool.Pool, claim int, fused string) error {
	var done []pgtype.TID
	for {
		var next []pgtype.TID
		var err error
		switch {
		case fused != "":
			next, err = claimByHand(ctx, pool, fmt.Sprintf(fused, claim), done)
		case len(done) == 0:
			next, err = claimByHand(ctx, pool, fmt.Sprintf(handClaim, claim))
		default:
			_, err = pool.Exec(ctx, handEnd, done)
		}
		if pg := (*pgconn.PgError)(nil); errors.As(err, &pg) && pg.Code == "40P01" {
			continue // a deadlock, after which nothing is done: rarely, a locked version of a row is not skipped
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

// claimByHand does the claimed tasks, and returns the places of their rows.
func claimByHand(ctx context.Context, pool *pgxpool.Pool, statement string, args ...any) (next []pgtype.TID, err error) {
	rows, err := pool.Query(ctx, statement, args...)
	if err != nil {
		return nil, err
	}
	var (
		place   pgtype.TID
		payload []byte
	)
	_, err = pgx.ForEachRow(rows, []any{&place, &payload}, func() error {
		next = append(next, place)
		return doNothing(payload)
	})
	return next, err
}

// doNothing does a task of a loop. Like a worker of the Go package, it decodes the payload.
func doNothing(payload []byte) error {
	var number int
	return json.Unmarshal(payload, &number)
}

// drainOverHTTP measures workers that claim from the built binary. Each claim also completes the previous
// tasks.
func drainOverHTTP(ctx context.Context, b *bench, n int, l loop) (_ sample, err error) {
	p, err := newBinary(ctx, b, onPostgres("tasks_over_http"))
	if err != nil {
		return sample{}, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	if err := errors.Join(p.putTasks(ctx, n), b.server.settle(ctx)); err != nil {
		return sample{}, err
	}
	var done atomic.Int64
	return b.rated(ctx, p.pid(), func() (int, error) {
		err := l.run(func() error { return p.loopOverHTTP(ctx, l.claim, &done) })
		if err == nil && done.Load() != int64(n) {
			err = fmt.Errorf("want %d tasks done, have %d", n, done.Load())
		}
		return n, err
	})
}

// loopOverHTTP works until no task is left.
func (p *binary) loopOverHTTP(ctx context.Context, claim int, done *atomic.Int64) error {
	ask := queueremote.ClaimTasks{Worker: "bench", Types: []queueremote.ClaimType{{Type: taskKind.Name, Limit: claim}}, Limit: claim}
	for {
		var got queueremote.Claimed
		if err := p.call(ctx, "/v1/queues/claim", ask, &got); err != nil {
			return err
		}
		done.Add(int64(len(ask.Complete) - len(got.Lost)))
		if len(got.Items) == 0 {
			return nil
		}
		ask.Complete = nil
		for _, task := range got.Items {
			if err := doNothing(task.Payload); err != nil {
				return err
			}
			ask.Complete = append(ask.Complete, task.Receipt)
		}
	}
}

// A drainWay is a way to drain a queue.
type drainWay struct {
	name     string
	drain    func(ctx context.Context, b *bench, n int, l loop) (sample, error)
	isFixed  bool // it has no loop to choose
	isBefore bool // it measures the binary of -beside
	loop     loop // the best one
	of       []sample
}

// These are the names of the loops by hand without leases, and of the way that uses the built binary.
const (
	plainLoop = "by hand"
	fusedLoop = "by hand, completion fused with the next claim"
	overHTTP  = "workers over HTTP"
)

// drainNames are the names of all ways.
func drainNames() (names []string) {
	for _, w := range (&bench{}).drainWays() {
		names = append(names, w.name)
	}
	return names
}

// drainWays returns the ways that -contestants names, or all: first the loops by hand without leases, then the others.
func (b *bench) drainWays() []*drainWay {
	ways := []*drainWay{
		{name: plainLoop, drain: drainByHand("", 50)},
		{name: fusedLoop, drain: drainByHand(handFused, 50)},
		{name: "by hand, fused, with leases and history", drain: drainByHand(handKept, 30)},
		{name: overHTTP, drain: drainOverHTTP},
	}
	if b.beside != "" {
		ways = append(ways, &drainWay{name: overHTTP, drain: drainOverHTTP, isBefore: true})
	}
	goPackage := func(ctx context.Context, b *bench, n int, _ loop) (sample, error) { return b.drainQueue(ctx, n, nil) }
	ways = append(ways, &drainWay{name: "Go package", drain: goPackage, isFixed: true})
	return slices.DeleteFunc(ways, func(w *drainWay) bool { return b.match != nil && !slices.Contains(b.match, w.name) })
}

// bench returns the bench whose binary a way measures.
func (w *drainWay) bench(b *bench) *bench {
	if w.isBefore {
		return b.before()
	}
	return b
}

// as is the name of a way with its loop.
func (w *drainWay) as() string {
	name := w.name
	if w.isBefore {
		name += suffixBefore
	}
	if w.isFixed {
		return name
	}
	return fmt.Sprint(name, ", ", w.loop)
}

// measureQueueDrain compares a drain with hand-written loops.
func measureQueueDrain(ctx context.Context, b *bench) error {
	ways := b.drainWays()
	for _, w := range ways {
		if w.isFixed {
			continue
		}
		var err error
		w.loop, err = best(loops(), func(l loop) (sample, error) { return w.drain(ctx, w.bench(b), max(b.tasks/10, 1), l) })
		if err != nil {
			return fmt.Errorf("%s: %w", w.as(), err)
		}
	}
	for range b.rounds {
		for _, w := range ways {
			s, err := w.drain(ctx, w.bench(b), b.tasks, w.loop)
			if err != nil {
				return fmt.Errorf("%s: %w", w.as(), err)
			}
			w.of = append(w.of, s)
		}
	}
	var hand []sample // of the best one without leases; nil if none is measured
	for _, w := range ways {
		if (w.name == plainLoop || w.name == fusedLoop) && (hand == nil || medianOf(w.of, sample.getRate) > medianOf(hand, sample.getRate)) {
			hand = w.of
		}
	}
	if hand != nil {
		b.note("queue, best by hand: program and PostgreSQL", "µs", collect(hand, sample.getBoth)...)
		b.note("queue, best by hand: log", "B", collect(hand, sample.getLog)...)
	}
	var lines []line
	for _, w := range ways {
		lines = append(lines, line{w.as(), w.of, []string{ratio(w.of, hand)}})
		w.bench(b).noteTasks("queue, "+w.name+": ", w.of, hand)
	}
	fmt.Fprintf(b.out, "draining %d tasks that do nothing, durable, median of %d rounds (lowest to highest)\n", b.tasks, b.rounds)
	b.compare("tasks", lines, "of the best by hand")
	for _, w := range ways {
		switch {
		case w.isFixed:
			b.verdict("Go package, of the best loop by hand", ratios(w.of, hand), 0.75, true)
		case w.name == overHTTP && !w.isBefore:
			b.verdict("workers over HTTP, of the best loop by hand", ratios(w.of, hand), 0.6, true)
		}
	}
	return nil
}

// noteTasks keeps the figures of a way to drain a queue.
func (b *bench) noteTasks(prefix string, of, hand []sample) {
	b.note(prefix+"tasks", "a second", collect(of, sample.getRate)...)
	b.note(prefix+"tasks of the best by hand", "", ratios(of, hand)...)
	b.note(prefix+"program and PostgreSQL", "µs", collect(of, sample.getBoth)...)
	b.note(prefix+"log", "B", collect(of, sample.getLog)...)
}

// hinderedTimes is how many batches of tasks run during the open transaction.
const hinderedTimes = 3

// measureQueueHindered compares an unhindered queue with one beside an open transaction, and with one from
// which somebody cancels very many tasks.
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
	lines := make([]line, len(cases))
	for range b.rounds {
		for i, c := range cases {
			s, err := c.run()
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			lines[i].name, lines[i].of = c.name, append(lines[i].of, s)
			lines[i].more = []string{ratio(lines[i].of, lines[0].of)}
		}
	}
	b.compare("tasks", lines, "of alone")
	b.verdict("with a transaction left open, of alone", ratios(lines[1].of, lines[0].of), 0.5, true)
	b.verdict("beside a mass cancel, of alone", ratios(lines[2].of, lines[0].of), 0.5, true)
	return nil
}

// drainAgain measures several drains of one queue, without the time to fill it. Half of the cancelled tasks are
// before the measured ones and were cancelled just now. The other half are cancelled meanwhile.
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
		one, err := b.rated(ctx, 0, func() (int, error) { return b.tasks, workOff(ctx, s, b.tasks) })
		helper.Wait()
		if err := errors.Join(err, failed); err != nil {
			return sample{}, err
		}
		took += time.Duration(float64(b.tasks) / one.rate * float64(time.Second))
		all.server, all.own = all.server+one.server/hinderedTimes, all.own+one.own/hinderedTimes
		all.log += one.log / hinderedTimes
	}
	all.rate = hinderedTimes * float64(b.tasks) / took.Seconds()
	return all, nil
}
