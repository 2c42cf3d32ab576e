package taskrun

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"procaas/dsl/tree"
	"procaas/engine/checkpoint"
	"procaas/engine/clock"
	"procaas/engine/intake"
	"procaas/engine/model"
	"procaas/engine/store"
	"procaas/handlers/queue/language"
)

// This file runs the tasks of pipelines with a queue section. A claimed task becomes an event whose
// id is derived from the task. So a node that takes the task over from a dead one finds the same
// run, and waits for it. A further attempt is a retry of that run, which continues from the failed
// handler.

// These bound how tasks are held and looked for.
const (
	taskLease    = 30 * time.Second // longest lease
	taskLeases   = 8                // a task is held for this many leases of the node, if that is shorter
	taskBeats    = 4                // per lease
	taskLookMost = time.Second
	taskRunLeast = 10 * time.Millisecond // between two looks at a run
	taskRunMost  = 500 * time.Millisecond
	taskOverload = 2 * time.Second // until a task is retried for which the node was too busy
	tasksAtOnce  = 100             // tasks of one claim, so that other nodes take some of the many that are put at one node
	taskPerNode  = 16              // tasks of a type that a node runs by default
	reportAnyway = 10 * time.Second
	taskCallMost = 20 * time.Second // of a call of the store, whose connection may be broken
)

// Runs has the parts of the engine that a Server needs: runs, and their definition.
type Runs interface {
	Bundle() *tree.Bundle

	// Reloaded returns a channel that is closed when Bundle changes.
	Reloaded() <-chan struct{}

	RunByID(ctx context.Context, id string) (checkpoint.RunView, error)
	RetryAttempt(ctx context.Context, id string, by store.Actor) (checkpoint.RunView, error)
	Cancel(ctx context.Context, id string, by store.Actor) (checkpoint.RunView, error)
}

// A Server runs the tasks of pipelines on a node. The caller sets its exported fields.
type Server struct {
	Runs  Runs
	Tasks *store.TaskStore
	Log   *slog.Logger
	Name  string        // of the node
	Lease time.Duration // of the node

	// Submit submits one of the engine's own events.
	Submit func(ctx context.Context, s intake.Submission) (model.Receipt, error)

	lease time.Duration // of a task
	free  chan struct{} // receives when a task has ended

	mu   sync.Mutex                 // guards held
	held map[store.TaskRef]heldTask // in flight
	wg   sync.WaitGroup
}

type heldTask struct {
	taskType string
	lose     context.CancelFunc // stops waiting for it, because another node has it
}

// Serve runs the tasks of pipelines that have a queue section and stages, until ctx ends. Runs in
// flight continue, and the next node that claims their tasks finds them.
func (s *Server) Serve(ctx context.Context) {
	s.lease = min(taskLease, taskLeases*s.Lease)
	s.free, s.held = make(chan struct{}, 1), map[store.TaskRef]heldTask{}
	s.wg.Go(func() { s.beat(ctx) })
	s.wg.Go(func() { s.raise(ctx) })
	for ctx.Err() == nil {
		s.look(ctx)
	}
	s.wg.Wait()
}

// look claims tasks, and waits until there may be more.
func (s *Server) look(ctx context.Context) {
	again := s.Runs.Reloaded() // other pipelines may have a queue then
	wants := s.wants()
	types := make([]string, len(wants))
	for i, w := range wants {
		types[i] = w.Type
	}
	woken, stop := s.Tasks.Work.WatchTasks(types)
	defer stop()
	took := 0
	if len(wants) > 0 {
		bounded, cancel := context.WithTimeout(ctx, taskCallMost)
		tasks, err := s.Tasks.Work.ClaimTasks(bounded, store.TaskClaim{
			Worker: s.Name, Types: wants, Limit: tasksAtOnce, Lease: s.lease,
		})
		cancel()
		if err != nil && ctx.Err() == nil {
			s.Log.Warn("tasks of pipelines cannot be taken", "error", err)
		}
		for i := range tasks {
			s.begin(ctx, &tasks[i])
		}
		took = len(tasks)
	}
	if took > 0 {
		return // there may be more
	}
	t := time.NewTimer(taskLookMost)
	defer t.Stop()
	if len(wants) == 0 {
		t.Stop() // there is nothing to look for until it can take a task again
	}
	select {
	case <-ctx.Done():
	case <-t.C:
	case <-woken:
	case <-again:
	case <-s.free:
	}
}

// wants returns how many tasks of each pipeline the node can take now.
func (s *Server) wants() []store.TaskWant {
	s.mu.Lock()
	running := map[string]int{}
	for _, h := range s.held {
		running[h.taskType]++
	}
	s.mu.Unlock()
	var wants []store.TaskWant
	for _, p := range s.Runs.Bundle().Pipelines {
		if language.Of(p) == nil || len(p.Stages) == 0 {
			continue
		}
		most := taskPerNode
		if language.Of(p).Concurrency != nil {
			most = language.Of(p).Concurrency.Node
		}
		if room := most - running[p.ID]; room > 0 {
			wants = append(wants, TaskWantOf(p, store.TaskWant{Type: p.ID, Limit: room}))
		}
	}
	return wants
}

// begin runs a task in the background.
func (s *Server) begin(ctx context.Context, t *store.QueuedTask) {
	held, lose := context.WithCancel(ctx)
	s.mu.Lock()
	s.held[t.Ref()] = heldTask{t.Type, lose}
	s.mu.Unlock()
	s.wg.Go(func() {
		defer lose()
		report := s.run(held, t)
		s.report(ctx, held, t, report)
		s.mu.Lock()
		delete(s.held, t.Ref())
		s.mu.Unlock()
		select {
		case s.free <- struct{}{}:
		default:
		}
	})
}

// report reports the outcome of a task, even if the node stops meanwhile.
func (s *Server) report(ctx, held context.Context, t *store.QueuedTask, r store.TaskReport) {
	if held.Err() != nil && ctx.Err() == nil {
		return // another node has it
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), reportAnyway)
	defer cancel()
	if _, err := s.Tasks.Work.ReportTasks(bounded, r); err != nil {
		s.Log.Warn("what became of a task is not known, it will be looked at again", "type", t.Type, "task", t.ID, "error", err)
	}
}

// beat renews the leases of tasks in flight.
func (s *Server) beat(ctx context.Context) {
	tick := time.NewTicker(s.lease / taskBeats)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		var beats []store.TaskBeat
		s.mu.Lock()
		for ref := range s.held {
			beats = append(beats, store.TaskBeat{TaskRef: ref, Running: true, Lease: s.lease})
		}
		s.mu.Unlock()
		bounded, cancel := context.WithTimeout(ctx, s.lease/3) // leaves time for another try within the lease
		lost, err := s.Tasks.Work.BeatTasks(bounded, beats)
		cancel()
		if err != nil && ctx.Err() == nil {
			s.Log.Warn("tasks under way cannot be kept", "error", err)
		}
		s.mu.Lock()
		for _, ref := range lost {
			if h, ok := s.held[ref]; ok {
				h.lose()
			}
		}
		s.mu.Unlock()
	}
}

// raise raises tasks that have waited longer than their pipeline allows.
func (s *Server) raise(ctx context.Context) {
	tick := time.NewTicker(raiseLeast)
	defer tick.Stop()
	next := map[string]time.Time{} // next look at each pipeline
	again, pipelines := s.Runs.Reloaded(), s.limitWaits()
	for {
		due := tick.C
		if len(pipelines) == 0 {
			due = nil
		}
		select {
		case <-ctx.Done():
			return
		case <-again:
			again, pipelines = s.Runs.Reloaded(), s.limitWaits()
			continue
		case <-due:
		}
		for _, p := range pipelines {
			if time.Now().Before(next[p.ID]) {
				continue
			}
			bounded, cancel := context.WithTimeout(ctx, taskCallMost)
			n, err := s.Tasks.Maintenance.RaiseTasks(bounded, p.ID, language.Of(p).MaxWait, tendAtOnce)
			cancel()
			if err != nil && ctx.Err() == nil {
				s.Log.Warn("tasks that wait for too long cannot be raised", "type", p.ID, "error", err)
			}
			next[p.ID] = time.Now().Add(RaisePause(language.Of(p).MaxWait, n == tendAtOnce))
		}
	}
}

// limitWaits returns the pipelines whose tasks may wait only for some time.
func (s *Server) limitWaits() (some []*tree.Pipeline) {
	for _, p := range s.Runs.Bundle().Pipelines {
		if q := language.Of(p); q != nil && q.MaxWait > 0 {
			some = append(some, p)
		}
	}
	return some
}

// run makes a run of a task, or finds its run, and waits for its end.
func (s *Server) run(ctx context.Context, t *store.QueuedTask) store.TaskReport {
	p := s.Runs.Bundle().Pipeline(t.Type)
	if p == nil || language.Of(p) == nil {
		return snoozed(t, taskOverload) // the definition has just changed
	}
	if t.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, time.Now().Add(t.Timeout), errTaskTimeout)
		defer cancel()
	}
	id, err := s.attempt(ctx, p, t)
	var over *intake.OverloadError
	var refused *intake.Error
	switch {
	case errors.As(err, &over):
		return snoozed(t, taskOverload)
	case errors.As(err, &refused):
		return s.failed(t, p, err, true)
	case err != nil:
		return s.unfinished(ctx, t, p, "", err)
	}
	for backoff := (clock.Backoff{First: taskRunLeast, Most: taskRunMost}); ; backoff.Pause(ctx) {
		view, err := s.Runs.RunByID(ctx, id)
		switch {
		case ctx.Err() != nil:
			return s.unfinished(ctx, t, p, id, ctx.Err())
		case errors.Is(err, store.ErrNotFound):
			return completed(t) // it ended so long ago that it was deleted
		case err != nil: // the store may come back
		case view.Status == model.Succeeded, view.Status == model.Ignored:
			return completed(t)
		case view.Status == model.Failed:
			return s.failed(t, p, errors.New(view.Error), false)
		case view.Status == model.Cancelled && view.Reason == tookTooLong(t):
			return s.failed(t, p, errors.New(view.Reason), false) // the node that cancelled it died before it reported
		case view.Status == model.Cancelled:
			return s.failed(t, p, fmt.Errorf("run %s was cancelled", id), true)
		}
	}
}

var errTaskTimeout = errors.New("it took too long")

// tookTooLong is the reason for cancelling a run that has exceeded its task's timeout. By it, a
// worker distinguishes such a run from one that an operator cancelled.
func tookTooLong(t *store.QueuedTask) string { return fmt.Sprintf("it took longer than %v", t.Timeout) }

// unfinished returns what to report about a task whose run continues.
func (s *Server) unfinished(ctx context.Context, t *store.QueuedTask, p *tree.Pipeline, run string, err error) store.TaskReport {
	if ctx.Err() == nil {
		return snoozed(t, taskOverload) // nothing can be submitted now
	}
	if !errors.Is(context.Cause(ctx), errTaskTimeout) {
		return snoozed(t, 0)
	}
	why := errors.New(tookTooLong(t))
	if run == "" {
		return s.failed(t, p, fmt.Errorf("%w: %w", why, err), false)
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), reportAnyway)
	defer cancel()
	if _, err := s.Runs.Cancel(bounded, run, store.Actor{Name: model.TaskSource(t.Type), Reason: why.Error()}); err != nil &&
		!errors.Is(err, store.ErrConflict) {
		return snoozed(t, taskOverload) // it is still running
	}
	return s.failed(t, p, why, false)
}

// attempt returns the run for this attempt of a task. Each run counts for its start and its
// retries. A new run follows only after a cancelled one.
func (s *Server) attempt(ctx context.Context, p *tree.Pipeline, t *store.QueuedTask) (run string, err error) {
	payload, err := taskPayload(t.Payload)
	if err != nil {
		return "", err
	}
	event := model.Event{
		Source: model.TaskSource(p.ID), Type: taskEventType(p), Key: t.Key, Payload: payload, Time: t.Created, Inner: true,
		Priority: min(max(t.Priority, -intake.MaxPriority), intake.MaxPriority), DelayTolerance: max(0, time.Until(t.Deadline)),
	}
	for used, n := 0, 1; ; n++ {
		event.ID = model.TaskEventID(t.ID, n)
		receipt, err := s.Submit(ctx, intake.Submission{Event: event, Hash: event.ID})
		if err != nil {
			return "", err
		}
		run := receipt.Run
		if !receipt.Duplicate {
			return run, nil
		}
		view, err := s.Runs.RunByID(ctx, run)
		if errors.Is(err, store.ErrNotFound) {
			return run, nil
		}
		if err != nil {
			return "", err
		}
		used += view.Generation + 1
		switch {
		case used > t.Failures: // this attempt is it
			return run, nil
		case view.Status == model.Failed:
			_, err := s.Runs.RetryAttempt(ctx, run, store.Actor{
				Name:   model.TaskSource(p.ID),
				Reason: fmt.Sprintf("attempt %d of the task", t.Attempt()),
			})
			return run, err
		case view.Status != model.Cancelled:
			return run, nil
		}
	}
}

func completed(t *store.QueuedTask) store.TaskReport {
	return store.TaskReport{Completed: []store.TaskRef{t.Ref()}}
}

func snoozed(t *store.QueuedTask, d time.Duration) store.TaskReport {
	return store.TaskReport{Snoozed: []store.TaskSnooze{{TaskRef: t.Ref(), Delay: d}}}
}

func (s *Server) failed(t *store.QueuedTask, p *tree.Pipeline, err error, final bool) store.TaskReport {
	f := store.TaskFailure{TaskRef: t.Ref(), Error: err.Error()}
	if !final {
		var unsaid error
		f.Delay, f.Retry, unsaid = TaskPolicyOf(p).Next(t.ID, t.Attempt())
		if unsaid != nil {
			f.Error = fmt.Sprintf("%s; %s", f.Error, unsaid)
			s.Log.Warn("the policy of retries does not say when to try a task again", "type", t.Type, "task", t.ID, "error", unsaid)
		}
	}
	return store.TaskReport{Failed: []store.TaskFailure{f}}
}
