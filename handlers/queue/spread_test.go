package queue_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"procaas/dsl/tree"
	"procaas/engine/checkpoint"
	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/engine/intake"
	"procaas/engine/model"
	"procaas/engine/store"
	"procaas/handlers/queue"
	"procaas/handlers/queue/language"
	"procaas/handlers/queue/taskrun"
)

// heldRuns has runs that end when all nodes have some.
type heldRuns struct {
	pipeline *tree.Pipeline

	mu    sync.Mutex // guards the following
	begun map[string]int
	full  map[string]bool // nodes that have all that they take at once
}

func (r *heldRuns) Bundle() *tree.Bundle {
	return &tree.Bundle{Pipelines: []*tree.Pipeline{r.pipeline}, Index: tree.Index{Pipelines: map[string]*tree.Pipeline{"t": r.pipeline}}}
}

func (*heldRuns) Reloaded() <-chan struct{} { return nil }

func (r *heldRuns) RunByID(_ context.Context, id string) (checkpoint.RunView, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.full) < 3 {
		return checkpoint.RunView{ID: id, Status: model.Running}, nil
	}
	return checkpoint.RunView{ID: id, Status: model.Succeeded}, nil
}

func (*heldRuns) RetryAttempt(context.Context, string, store.Actor) (checkpoint.RunView, error) {
	panic("no run fails")
}

func (*heldRuns) Cancel(context.Context, string, store.Actor) (checkpoint.RunView, error) {
	panic("no run takes too long")
}

// begin counts a run of a node.
func (r *heldRuns) begin(node, id string) model.Receipt {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begun[node]++
	if r.begun[node] == 16 {
		r.full[node] = true
	}
	return model.Receipt{Run: id}
}

// All tasks are put at one node. Each node takes some, before the first has ended.
func TestTasksPutAtOneNodeSpreadOverAll(t *testing.T) {
	t.Parallel()
	const tasks = 500
	dsn := enginetest.MigratedPostgres(t)
	runs := &heldRuns{
		pipeline: &tree.Pipeline{ID: "t", Stages: []*tree.Stage{{ID: "s"}}}, begun: map[string]int{}, full: map[string]bool{},
	}
	runs.pipeline.KeepField("queue", &language.Queue{})
	ctx, stop := context.WithCancel(t.Context())
	var nodes sync.WaitGroup
	defer nodes.Wait()
	defer stop()
	var first *queue.Store
	for n := range 3 {
		name, s := fmt.Sprint("node ", n), open(t, dsn)
		if first == nil {
			first = s
		}
		server := &taskrun.Server{
			Runs: runs, Tasks: s.Tasks(), Log: slog.New(slog.DiscardHandler), Name: name, Lease: time.Minute,
			Submit: func(_ context.Context, in intake.Submission) (model.Receipt, error) {
				return runs.begin(name, in.Event.ID), nil
			},
		}
		nodes.Go(func() { server.Serve(ctx) })
	}
	for range 10 {
		put(t, first, slices.Repeat([]queue.Spec{{Type: "t"}}, tasks/10)...)
	}
	patience.Until(t, "all tasks done", func() bool { return left(t, first) == 0 })
	runs.mu.Lock()
	defer runs.mu.Unlock()
	total := 0
	for _, n := range runs.begun {
		total += n
	}
	t.Logf("tasks by node: %v", runs.begun)
	if total != tasks || len(runs.full) != 3 {
		t.Errorf("want each of %d tasks done once, and some by each of 3 nodes, have %v", tasks, runs.begun)
	}
}
