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

// WorkerOptions configures a worker. The zero value has useful defaults. Negative numbers count as
// zero.
type WorkerOptions struct {
	// Name identifies the worker for people. If it is empty, it is made of the host and the
	// process.
	Name string

	// Lease is after how long without a report other workers may take this one's tasks. 0 means 30
	// s. The worker reports three times as often.
	Lease time.Duration

	// Poll is the longest time between two looks for tasks without a hint. 0 means 1 s.
	Poll time.Duration

	// Prefetch bounds the tasks of one type that wait here. 0 means 2000.
	Prefetch int

	// Grace is how long a worker that stops waits for attempts in flight. 0 means 10 s.
	Grace time.Duration

	// CareElsewhere says that a procaas server with pipelines/queue promotes scheduled tasks and
	// reclaims those of dead workers. Otherwise the worker does it.
	CareElsewhere bool

	// Log logs final failures and an unreachable store. Nil logs nothing.
	Log *slog.Logger
}

// A WorkerStore has the parts of a task store that a Worker needs.
type WorkerStore interface {
	store.TaskWork
	store.TaskMaintenance
}

// A Worker takes and does tasks of the registered kinds. Any number of workers share a store.
type Worker struct {
	store WorkerStore
	o     WorkerOptions
	lines []*line
	types map[string]*line

	mu    sync.Mutex // guards the following, and the changing fields of lines
	news  chan struct{}
	done  Report
	keyed bool // some of done have or had unique keys
	held  map[int64]*held
	heard uint64        // number of hints so far
	total int           // tasks that were taken
	over  bool          // nothing begins any more
	ahead time.Duration // estimated time until the tasks of a claim arrive

	attempts sync.WaitGroup
}

// These bound the exchanges of outcomes for new tasks.
const (
	exchangeLanes = 2                     // transactions in flight: one commits while the other is filled
	exchangeMost  = 1000                  // tasks that one claims or reports
	leastAhead    = 20 * time.Millisecond // of work that waits here
	// longer than the store's statement timeout, so that the store reports what is wrong
	exchangeWithin = 20 * time.Second
	careAtOnce     = 1000
)

// NewWorker makes a worker. It does nothing before [Worker.Run].
func NewWorker(store WorkerStore, o WorkerOptions) *Worker {
	o.Lease = cmp.Or(max(o.Lease, 0), 30*time.Second)
	o.Poll = cmp.Or(max(o.Poll, 0), time.Second)
	o.Prefetch = cmp.Or(max(o.Prefetch, 0), 2000)
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

// Run does tasks until ctx ends. Then it begins no more, returns tasks that have not begun, waits
// for attempts in flight and reports them. The error is that of the store if even that fails. Then
// other workers take these tasks after the lease.
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

// stop stops new attempts, and returns the tasks that have not begun.
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

// begin makes attempts of one type, one after another.
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

// first waits for a task to begin. It returns nil if no more will come.
func (w *Worker) first(ctx context.Context, l *line) *held {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.next(ctx, l)
}

// next is first for a caller that holds the lock.
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
		l.waiting = l.waiting[1:]
		if len(l.waiting) == 0 {
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

// end records the outcome of an attempt, and returns the next task to begin.
func (w *Worker) end(ctx context.Context, h *held, err error, took time.Duration) *held {
	var later *putOff
	failure := Failure{TaskRef: h.Ref()}
	if err != nil && !errors.As(err, &later) {
		failure.Error = err.Error()
		var unsaid error
		failure.Delay, failure.Retry, unsaid = h.line.policy.Next(h.ID, h.Attempt())
		if unsaid != nil {
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
	case h.gone: // its new worker reports it
	case err == nil:
		w.done.Completed = append(w.done.Completed, h.Ref())
	case later != nil:
		w.done.Snoozed = append(w.done.Snoozed, Snooze{TaskRef: h.Ref(), Delay: later.delay})
	case errors.Is(err, errStops): // it was interrupted, and has not failed
		w.done.Snoozed = append(w.done.Snoozed, Snooze{TaskRef: h.Ref()})
	default:
		w.done.Failed = append(w.done.Failed, failure)
	}
	w.keyed = w.keyed || h.Unique != ""
	pgkit.Signal(w.news)
	return w.next(ctx, h.line)
}
