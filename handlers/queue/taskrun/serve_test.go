package taskrun

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"procaas/dsl/datum"
	"procaas/dsl/expr"
	"procaas/dsl/tree"
	"procaas/engine/checkpoint"
	"procaas/engine/intake"
	"procaas/engine/model"
	"procaas/engine/store"
	"procaas/handlers/queue/language"
)

// cancelledRuns has one run, which was cancelled.
type cancelledRuns struct{ reason string }

func (cancelledRuns) Bundle() *tree.Bundle {
	job := &tree.Pipeline{ID: "job"}
	job.KeepField("queue", &language.Queue{})
	return &tree.Bundle{Index: tree.Index{Pipelines: map[string]*tree.Pipeline{"job": job}}}
}

func (cancelledRuns) Reloaded() <-chan struct{} { return nil }

func (c cancelledRuns) RunByID(_ context.Context, id string) (checkpoint.RunView, error) {
	return checkpoint.RunView{ID: id, Status: model.Cancelled, Reason: c.reason}, nil
}

func (cancelledRuns) RetryAttempt(context.Context, string, store.Actor) (checkpoint.RunView, error) {
	panic("a cancelled run cannot be retried")
}

func (cancelledRuns) Cancel(context.Context, string, store.Actor) (checkpoint.RunView, error) {
	panic("it is cancelled already")
}

// A worker cancels the run of a task that took too long, and may die before it reports
// that. Whoever takes the task next finds a cancelled run: the attempt has failed, but
// the task may be tried again. Only an operator's cancellation is for good.
func TestARunThatTookTooLongIsTriedAgainByTheNextWorker(t *testing.T) {
	t.Parallel()
	task := &store.QueuedTask{ID: 7, Type: "job", Payload: []byte(`{}`), Timeout: time.Minute}
	for reason, again := range map[string]bool{tookTooLong(task): true, "the order was withdrawn": false} {
		s := &Server{
			Runs: cancelledRuns{reason}, Log: slog.New(slog.DiscardHandler),
			Submit: func(context.Context, intake.Submission) (model.Receipt, error) {
				return model.Receipt{Run: "r1", Duplicate: true}, nil
			},
		}
		report := s.run(t.Context(), task)
		if len(report.Failed) != 1 || report.Failed[0].Retry != again {
			t.Errorf("cancelled since %q: want one failure, retried: %v; have %+v", reason, again, report)
		}
	}
}

// Of two tasks with one name, the merged payload has the kinds of numbers that the expression gave it.
func TestMergedTasksKeepKindsOfNumbers(t *testing.T) {
	t.Parallel()
	sum, found := expr.Parse("merge", "first + second", datum.Env{"first": nil, "second": nil})
	if sum == nil {
		t.Fatal(found)
	}
	job := &tree.Pipeline{ID: "job"}
	job.KeepField("queue", &language.Queue{OnDuplicate: "merge", Merge: &expr.Value{Kind: expr.ValueExpr, Computed: sum}})
	spec := store.TaskSpec{Type: "job", Unique: "u"}
	if err := FillTask(job, &spec); err != nil {
		t.Fatal(err)
	}
	if merged, err := spec.Merge([]byte("2.0"), []byte("3.0")); err != nil || string(merged) != "5.0" {
		t.Errorf("have %s, %v, want 5.0", merged, err)
	}
}

// queues are pipelines that a reload replaces. They count how often somebody looks at them.
type queues struct {
	cancelledRuns
	bundle   *tree.Bundle
	reloaded store.Broadcast
	looks    int
}

func (q *queues) Bundle() *tree.Bundle {
	q.looks++
	return q.bundle
}

func (q *queues) Reloaded() <-chan struct{} { return q.reloaded.Next() }

// noTasks is an empty queue, which counts claims.
type noTasks struct {
	store.TaskWork
	claims int
}

func (n *noTasks) ClaimTasks(context.Context, store.TaskClaim) ([]store.QueuedTask, error) {
	n.claims++
	return nil, nil
}

func (n *noTasks) BeatTasks(context.Context, []store.TaskBeat) ([]store.TaskRef, error) {
	return nil, nil
}

func (n *noTasks) WatchTasks([]string) (<-chan struct{}, func()) { return nil, func() {} }

// A node with pipelines without a queue does not look for their tasks. When a reload brings one, it claims at once, and each second.
func TestANodeWithoutQueuesRests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		pipelines, tasks := &queues{bundle: &tree.Bundle{Pipelines: []*tree.Pipeline{{ID: "other"}}}}, &noTasks{}
		s := &Server{Runs: pipelines, Tasks: &store.TaskStore{Work: tasks}, Log: slog.New(slog.DiscardHandler), Lease: time.Second}
		var serving sync.WaitGroup
		serving.Go(func() { s.Serve(ctx) })
		time.Sleep(time.Hour)
		if pipelines.looks > 2 || tasks.claims > 0 {
			t.Errorf("want one look of each loop in an hour without queues, have %d, and %d claims", pipelines.looks, tasks.claims)
		}
		job := &tree.Pipeline{ID: "job", Stages: []*tree.Stage{{ID: "only"}}}
		job.KeepField("queue", &language.Queue{})
		pipelines.bundle = &tree.Bundle{Pipelines: []*tree.Pipeline{job}}
		pipelines.reloaded.Send()
		synctest.Wait()
		if tasks.claims != 1 {
			t.Errorf("want a claim as soon as there is a queue, have %d", tasks.claims)
		}
		time.Sleep(10 * time.Second)
		if tasks.claims < 10 {
			t.Errorf("want a claim each second, have %d in ten", tasks.claims)
		}
		stop()
		serving.Wait()
	})
}
