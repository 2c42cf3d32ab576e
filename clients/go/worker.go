package procaas

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"time"
)

// A Handler does a task, and returns its result, which a run with queue.task gets, or nil. The context ends at the timeout of the task, when another worker has it, or when the worker stops. An error is
// retried by the policy of the queue, unless [Permanent] or [After] says otherwise.
type Handler func(ctx context.Context, t QueuedTask) (result any, err error)

// Permanent wraps an error that no retry can mend. The task becomes a dead letter.
func Permanent(err error) error { return &verdict{error: err, final: true} }

// After wraps an error with the delay before the next attempt.
func After(d time.Duration, err error) error { return &verdict{error: err, delay: d} }

type verdict struct {
	error
	final bool
	delay time.Duration
}

// Unwrap returns the error itself.
func (v *verdict) Unwrap() error { return v.error }

// These end the context of a task: see [context.Cause].
var (
	// ErrLost reports that another worker has the task, or that nobody needs it.
	ErrLost = errors.New("the task no longer belongs to this worker")
	// ErrStopping reports that the worker stops.
	ErrStopping = errors.New("the worker stops")
)

// A Worker takes tasks and does them. Any number of workers, in any language, share the queues.
type Worker struct {
	Client *Client

	// Handlers do the tasks, by type.
	Handlers map[string]Handler

	// Name identifies the worker for people. The default is made of the host and the process.
	Name string

	// Concurrency is how many tasks run at once, at most 1,000. 0 means 1.
	Concurrency int

	// Lease is after how long without a heartbeat others may take the tasks. 0 means 30 s. Heartbeats are sent three times as often.
	Lease time.Duration

	// Poll is how long one request waits for tasks, at most 20 s. A worker that stops waits for its last request. 0 means 5 s.
	Poll time.Duration

	// Grace is how long a worker that stops lets its tasks run before it ends their contexts. 0 means 10 s.
	Grace time.Duration

	// Log logs failed attempts, and an unreachable server. Nil logs nothing.
	Log *slog.Logger
}

// Run does tasks until ctx ends. Then it takes no more, waits for those in progress, and returns unfinished ones to the queue without
// counting the attempt. It returns nil then, and an error if the server refuses the worker.
func (w *Worker) Run(ctx context.Context) error {
	host, _ := os.Hostname()
	r := &working{
		Worker: *w, held: map[string]*held{}, free: make(chan struct{}, min(max(w.Concurrency, 1), 1000)),
	}
	r.Name = cmp.Or(w.Name, fmt.Sprintf("%s-%d", host, os.Getpid()))
	r.Lease, r.Poll, r.Grace = cmp.Or(w.Lease, 30*time.Second), cmp.Or(w.Poll, 5*time.Second), cmp.Or(w.Grace, 10*time.Second)
	r.Log = cmp.Or(w.Log, slog.New(slog.DiscardHandler))
	for range cap(r.free) {
		r.free <- struct{}{}
	}
	return r.run(ctx)
}

// working is a worker that runs.
type working struct {
	Worker
	free chan struct{} // one for each task that may begin

	mu   sync.Mutex // guards held
	held map[string]*held

	tasks sync.WaitGroup
}

// held is a task that this worker has.
type held struct {
	cancel context.CancelCauseFunc
	until  time.Time // the end of the lease
}

func (r *working) run(ctx context.Context) error {
	own := context.WithoutCancel(ctx) // what must still be said after ctx has ended
	work, abort := context.WithCancelCause(own)
	beating, stop := context.WithCancel(own)
	var beats sync.WaitGroup
	beats.Go(func() { r.beat(beating) })

	err := r.claims(ctx, work)
	late := time.AfterFunc(r.Grace, func() { abort(ErrStopping) })
	r.tasks.Wait()
	late.Stop()
	abort(ErrStopping)
	stop()
	beats.Wait()
	return err
}

// claims takes tasks whenever one may begin, until ctx ends or the server refuses.
func (r *working) claims(ctx, work context.Context) error {
	for ctx.Err() == nil {
		n := r.vacancies(ctx)
		if n == 0 {
			return nil
		}
		tasks, err := r.claim(work, n)
		var p *Problem
		if errors.As(err, &p) && !p.Temporary() {
			return fmt.Errorf("take tasks: %w", err)
		}
		if err != nil {
			r.Log.Warn("no tasks can be taken", "error", err)
			_ = pause(ctx, 6, err)
		}
		for range n - len(tasks) {
			r.free <- struct{}{}
		}
		for _, t := range tasks {
			if ctx.Err() != nil {
				_, _ = r.tell(work, "snooze", map[string]any{"tasks": []any{map[string]any{"receipt": t.Receipt}}})
				continue
			}
			r.begin(work, t)
		}
	}
	return nil
}

// vacancies takes all places that are free, and waits for the first one.
func (r *working) vacancies(ctx context.Context) (n int) {
	select {
	case <-ctx.Done():
		return 0
	case <-r.free:
	}
	for n = 1; ; n++ {
		select {
		case <-r.free:
		default:
			return n
		}
	}
}

// claim asks for up to n tasks.
func (r *working) claim(ctx context.Context, n int) ([]QueuedTask, error) {
	var types []map[string]any
	for name := range r.Handlers {
		types = append(types, map[string]any{"type": name, "limit": n})
	}
	body := map[string]any{
		"worker": r.Name, "types": types, "limit": n, "lease": Duration(r.Lease), "wait": Duration(r.Poll),
	}
	var reply struct{ Items []QueuedTask }
	_, err := r.Client.call(ctx, request{method: http.MethodPost, path: "/v1/queues/claim", body: body, wait: r.Poll}, &reply)
	return reply.Items, err
}

// begin does a task in a goroutine of its own, and reports its outcome.
func (r *working) begin(work context.Context, t QueuedTask) {
	ctx, cancel := context.WithCancelCause(work)
	r.mu.Lock()
	r.held[t.Receipt] = &held{cancel: cancel, until: time.Now().Add(r.Lease)}
	r.mu.Unlock()
	r.tasks.Go(func() {
		result, err := r.do(ctx, t)
		r.report(context.WithoutCancel(work), ctx, t, result, err)
		cancel(nil)
		r.mu.Lock()
		delete(r.held, t.Receipt)
		r.mu.Unlock()
		r.free <- struct{}{}
	})
}

func (r *working) do(ctx context.Context, t QueuedTask) (result any, err error) {
	if t.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(t.Timeout*float64(time.Second)))
		defer cancel()
	}
	defer func() {
		if p := recover(); p != nil {
			r.Log.Error("a handler panicked", "type", t.Type, "task", t.ID, "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("the handler panicked: %v", p)
		}
	}()
	return r.Handlers[t.Type](ctx, t)
}

// report tells the server the outcome of a task, unless another worker has it.
func (r *working) report(own, ctx context.Context, t QueuedTask, result any, err error) {
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, ErrLost):
	case err == nil:
		_, _ = r.tell(own, "complete", map[string]any{"results": []any{map[string]any{"receipt": t.Receipt, "result": result}}})
	case errors.Is(cause, ErrStopping):
		_, _ = r.tell(own, "snooze", map[string]any{"tasks": []any{map[string]any{"receipt": t.Receipt}}})
	default:
		failure := map[string]any{"receipt": t.Receipt, "error": err.Error()}
		var v *verdict
		if errors.As(err, &v) {
			failure["final"], failure["delay"] = v.final, Duration(v.delay)
		}
		r.Log.Warn("a task failed", "type", t.Type, "task", t.ID, "attempt", t.Attempt, "error", err)
		_, _ = r.tell(own, "fail", map[string]any{"tasks": []any{failure}})
	}
}

// tell reports outcomes. If nobody answers, others take the tasks after the lease.
func (r *working) tell(ctx context.Context, verb string, body any) (lost []string, err error) {
	var reply struct{ Lost []string }
	_, err = r.Client.call(ctx, request{method: http.MethodPost, path: "/v1/queues/" + verb, body: body}, &reply)
	if err != nil {
		r.Log.Warn("the server does not learn of tasks", "call", verb, "error", err)
	}
	return reply.Lost, err
}

// beat extends the leases of all tasks that this worker has, and ends those that it has lost.
func (r *working) beat(ctx context.Context) {
	for tick := time.NewTicker(r.Lease / 3); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return
		case <-tick.C:
		}
		r.mu.Lock()
		receipts := slices.Collect(maps.Keys(r.held))
		r.mu.Unlock()
		if len(receipts) == 0 {
			continue
		}
		until := time.Now().Add(r.Lease)
		lost, err := r.tell(ctx, "heartbeat", map[string]any{"receipts": receipts, "lease": Duration(r.Lease)})
		r.mu.Lock()
		for _, receipt := range receipts {
			h := r.held[receipt]
			switch {
			case h == nil:
			case slices.Contains(lost, receipt), err != nil && time.Now().After(h.until):
				h.cancel(ErrLost)
			case err == nil:
				h.until = until
			}
		}
		r.mu.Unlock()
	}
}
