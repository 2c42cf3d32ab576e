package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"procaas/engine/model"
	"procaas/engine/pgkit"
	"procaas/engine/store"
)

// WorkerOptions says how a worker works. The zero value is fine; what is below zero counts
// as zero.
type WorkerOptions struct {
	// Name tells workers apart for people; made of the host and the process when empty.
	Name string

	// Lease is after how long others may take the tasks of a worker that is not heard
	// of; 30 s when 0. It is heard of three times as often.
	Lease time.Duration

	// Poll is the longest time between two looks for tasks when no hint comes; 1 s when 0.
	Poll time.Duration

	// Prefetch bounds the tasks of one type that wait here to begin; 1000 when 0.
	Prefetch int

	// Grace is how long a worker that stops waits for attempts under way; 10 s when 0.
	Grace time.Duration

	// CareElsewhere says that somebody else promotes scheduled tasks and takes them
	// from dead workers: a procaas server with pipelines/queue. Otherwise the worker does.
	CareElsewhere bool

	// Log hears of attempts that failed for good and of a store that is away; nothing
	// is logged when nil.
	Log *slog.Logger
}

// A WorkerStore is what a Worker needs of a store of tasks.
type WorkerStore interface {
	store.TaskWork
	store.TaskMaintenance
}

// A Worker takes tasks of the kinds that are registered, and does them. Any number of
// workers share a store.
type Worker struct {
	store WorkerStore
	o     WorkerOptions
	lines []*line
	types map[string]*line

	mu    sync.Mutex // guards the following, and what changes of lines
	news  chan struct{}
	done  Report
	keyed bool // some of done have unique keys, or had
	held  map[int64]*held
	heard uint64        // hints that there may be tasks to take
	total int           // tasks that were taken
	over  bool          // nothing begins any more
	ahead time.Duration // until what is asked for now is here, about

	attempts sync.WaitGroup
}

// How the worker exchanges what is done for what is to do.
const (
	exchangeLanes  = 2                     // transactions at once: one commits while the other is filled
	exchangeMost   = 500                   // tasks that one brings, or tells of
	leastAhead     = 20 * time.Millisecond // of work that waits here
	exchangeWithin = 20 * time.Second      // more than the store gives a statement, so that the store says what is wrong
	careAtOnce     = 1000
)

// NewWorker makes a worker. It does nothing before [Worker.Run].
func NewWorker(store WorkerStore, o WorkerOptions) *Worker {
	o.Lease = cmp.Or(max(o.Lease, 0), 30*time.Second)
	o.Poll = cmp.Or(max(o.Poll, 0), time.Second)
	o.Prefetch = cmp.Or(max(o.Prefetch, 0), 1000)
	o.Grace = cmp.Or(max(o.Grace, 0), 10*time.Second)
	if o.Name == "" {
		host, _ := os.Hostname()
		o.Name = fmt.Sprintf("%s-%d-%04x", cmp.Or(host, "worker"), os.Getpid(), rand.N(1<<16))
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	w := &Worker{
		store: store, o: o, types: map[string]*line{}, held: map[int64]*held{},
		news: make(chan struct{}, 1), heard: 1, ahead: leastAhead,
	}
	return w
}

func (w *Worker) register(l *line) {
	if w.types[l.want.Type] != nil {
		panic("queue: tasks of the type " + l.want.Type + " are registered twice")
	}
	l.work.L = &w.mu
	l.running, l.timeout, l.took = cmp.Or(l.running, 16), cmp.Or(l.timeout, time.Minute), -1
	w.types[l.want.Type] = l
	w.lines = append(w.lines, l)
}

// Run does tasks until ctx ends. Then it begins no more, gives back what has not
// begun, waits for attempts under way and tells of them. The error is what the store
// says when even that cannot be told; others take these tasks after the lease.
func (w *Worker) Run(ctx context.Context) error {
	if len(w.lines) == 0 {
		return errors.New("queue: the worker has no kinds of tasks: register them before it runs")
	}
	names := make([]string, len(w.lines))
	for i, l := range w.lines {
		names[i] = l.want.Type
	}
	woken, unwatch := w.store.WatchTasks(names)
	defer unwatch()

	calls, abort := context.WithCancelCause(context.WithoutCancel(ctx))
	defer abort(errStops)
	for _, l := range w.lines {
		for range l.running {
			w.attempts.Go(func() { w.begin(calls, l) })
		}
	}
	beating, stopBeating := context.WithCancel(calls)
	defer stopBeating()
	var helpers, lanes sync.WaitGroup
	helpers.Go(func() { w.beat(beating) })
	if !w.o.CareElsewhere {
		helpers.Go(func() { w.care(ctx) })
	}
	for _, l := range w.lines {
		if l.maxWait > 0 {
			helpers.Go(func() { w.raise(ctx, l) })
		}
	}
	lanes.Go(func() { w.listen(ctx, woken) })
	for range exchangeLanes {
		lanes.Go(func() { w.exchanges(ctx) })
	}
	lanes.Wait()

	w.stop()
	late := time.AfterFunc(w.o.Grace, func() { abort(errStops) })
	w.attempts.Wait()
	late.Stop()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), exchangeWithin)
	defer cancel()
	err := w.flush(last)
	stopBeating()
	helpers.Wait()
	return err
}

// stop lets nothing begin any more, and gives back what has not.
func (w *Worker) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	for _, l := range w.lines {
		for _, h := range l.waiting {
			delete(w.held, h.ID)
			if !h.gone {
				w.done.Snoozed = append(w.done.Snoozed, Snooze{TaskRef: h.Ref()})
				w.keyed = w.keyed || h.Unique != ""
			}
		}
		l.waiting = nil
		l.work.Broadcast()
	}
}

// begin makes attempts of one type, one after the other.
func (w *Worker) begin(ctx context.Context, l *line) {
	for h := w.first(ctx, l); h != nil; {
		err := w.try(&h.attempt, h)
		if err != nil && h.attempt.Err() != nil {
			err = fmt.Errorf("%w: %w", context.Cause(&h.attempt), err)
		}
		h.attempt.end()
		h = w.end(ctx, h, err, time.Since(h.begun))
	}
}

// first waits for a task to begin; nil when there will be none.
func (w *Worker) first(ctx context.Context, l *line) *held {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.next(ctx, l)
}

// next is first for who holds the lock.
func (w *Worker) next(ctx context.Context, l *line) *held {
	for {
		for len(l.waiting) == 0 {
			if w.over {
				return nil
			}
			l.idle++
			l.work.Wait()
			l.idle--
		}
		h := l.waiting[0]
		l.waiting[0] = nil
		if l.waiting = l.waiting[1:]; len(l.waiting) == 0 {
			l.waiting = nil
		}
		if h.gone {
			continue
		}
		h.begun = time.Now()
		h.attempt.parent, h.attempt.deadline = ctx, h.begun.Add(cmp.Or(max(h.Timeout, 0), l.timeout))
		l.busy++
		return h
	}
}

func (w *Worker) try(ctx context.Context, h *held) (err error) {
	defer func() {
		if p := recover(); p != nil {
			w.o.Log.Error("attempt panicked", "type", h.Type, "task", h.ID, "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("attempt panicked: %v", p)
		}
	}()
	return h.line.do(ctx, &h.Task)
}

// end notes what became of an attempt, and returns the next task to begin.
func (w *Worker) end(ctx context.Context, h *held, err error, took time.Duration) *held {
	var later *putOff
	failure := Failure{TaskRef: h.Ref()}
	if err != nil && !errors.As(err, &later) {
		failure.Error = err.Error()
		var unsaid error
		if failure.Delay, failure.Retry, unsaid = h.line.policy.Next(h.ID, h.Attempt()); unsaid != nil {
			failure.Error = fmt.Sprintf("%s; %s", failure.Error, unsaid)
			w.o.Log.Warn("the policy of retries does not say when to try a task again", "type", h.Type, "task", h.ID, "error", unsaid)
		}
		if d, ok := model.RetryDelay(err); ok {
			failure.Delay = d
		}
		if model.IsPermanent(err) {
			failure.Retry = false
		}
		if !failure.Retry {
			w.o.Log.Warn("task failed for good", "type", h.Type, "task", h.ID, "key", h.Key, "attempt", h.Attempt(), "error", err)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	h.line.busy--
	h.line.learn(took)
	if !h.gone {
		delete(w.held, h.ID)
	}
	switch {
	case h.gone: // whoever has it now tells
	case err == nil:
		w.done.Completed = append(w.done.Completed, h.Ref())
	case later != nil:
		w.done.Snoozed = append(w.done.Snoozed, Snooze{TaskRef: h.Ref(), Delay: later.delay})
	case errors.Is(err, errStops): // it was broken off, which is not its fault
		w.done.Snoozed = append(w.done.Snoozed, Snooze{TaskRef: h.Ref()})
	default:
		w.done.Failed = append(w.done.Failed, failure)
	}
	w.keyed = w.keyed || h.Unique != ""
	pgkit.Signal(w.news)
	return w.next(ctx, h.line)
}
