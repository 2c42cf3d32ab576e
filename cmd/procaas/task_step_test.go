package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"procaas/engine/api/client"
	"procaas/engine/api/wire"
	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/engine/model"
	"procaas/handlers/queue/remote"
)

const scoring = `
pipelines:
  - id: rate
    shared-state: {score: null}
    outputs: {score: !$ shared-state.score}
    stages:
      - id: ask
        handlers:
          - id: score
            queue.task: {type: scores, payload: {n: !$ event.payload.n}}
            response-schema: {type: object, required: [score], properties: {score: {type: integer}}}
            result: {score: !$ sources.score.response.score}
  - id: scores
    queue: {retry: {attempts: 2, min-delay: 1ms, max-delay: 1ms}}
`

// TestTaskSteps lets runs wait for workers, on both stores.
func TestTaskSteps(t *testing.T) {
	t.Parallel()
	for name, store := range map[string]func(*testing.T) string{
		"sqlite":   func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "p.db") },
		"postgres": func(t *testing.T) string { return enginetest.MigratedPostgres(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := patience.Context(t.Context(), 3*time.Minute)
			defer cancel()
			c := newCrashing(t, store(t), scoring, "")
			node := c.start(ctx)
			survivesKills(ctx, t, c, node)
			failsWithItsTask(ctx, t, c)
			takesItsTaskAlong(ctx, t, c)
		})
	}
}

// survivesKills kills the node while a run waits, and a worker that has its task. The result of the second worker counts, once.
func survivesKills(ctx context.Context, t *testing.T, c *crashing, node *child) {
	run := rate(ctx, t, c)
	dies := claimScore(ctx, t, c, "1s")
	c.await(ctx, run, model.Parked, "") // else the next node puts a second task if the first one has ended meanwhile
	node.kill()
	c.start(ctx)
	again := claimScore(ctx, t, c, "1m")
	if again.ID != dies.ID || again.Receipt == dies.Receipt || string(again.Payload) != `{"n":3}` {
		t.Fatalf("have %+v after %+v, want another attempt of the same task", again, dies)
	}
	late := tell[remote.TasksDone](ctx, t, c, "complete", remote.CompletedTasks{Results: result(dies.Receipt, 1)})
	done := tell[remote.TasksDone](ctx, t, c, "complete", remote.CompletedTasks{Results: result(again.Receipt, 7)})
	if late.Done != 0 || done.Done != 1 {
		t.Errorf("have %+v and %+v, want only the second worker heard", late, done)
	}
	ended := c.await(ctx, run, model.Succeeded, "")
	if fmt.Sprint(ended.Outputs["score"]) != "7" || ended.Handlers[0].Attempts != 1 {
		t.Errorf("have %+v, want the score of the second worker at the first attempt", ended)
	}
	if twice := tell[remote.TasksDone](ctx, t, c, "complete", remote.CompletedTasks{Results: result(again.Receipt, 8)}); twice.Done != 0 {
		t.Errorf("have %+v, want the result counted once", twice)
	}
}

// failsWithItsTask lets a worker fail for good.
func failsWithItsTask(ctx context.Context, t *testing.T, c *crashing) {
	run := rate(ctx, t, c)
	task := claimScore(ctx, t, c, "1m")
	tell[remote.TasksDone](ctx, t, c, "fail", remote.FailedTasks{Tasks: []remote.FailedTask{{Receipt: task.Receipt, Error: "no such customer", Final: true}}})
	if ended := c.await(ctx, run, model.Failed, "task"); !strings.Contains(ended.Error, "no such customer") {
		t.Errorf("have %+v, want the error of the worker", ended)
	}
}

// takesItsTaskAlong cancels a run. Its worker learns that with a heartbeat, and nobody else gets the task.
func takesItsTaskAlong(ctx context.Context, t *testing.T, c *crashing) {
	run := rate(ctx, t, c)
	task := claimScore(ctx, t, c, "1m")
	if _, err := c.client.Cancel(ctx, run, "not wanted"); err != nil {
		t.Fatal(err)
	}
	c.await(ctx, run, model.Cancelled, "")
	beat := tell[remote.TasksDone](ctx, t, c, "heartbeat", remote.TaskHeartbeat{Receipts: []string{task.Receipt}})
	if !slices.Equal(beat.Lost, []string{task.Receipt}) {
		t.Errorf("have %+v, want the task lost", beat)
	}
	left, err := remote.PeekTasks(ctx, c.client, "scores", nil)
	if err != nil || len(left) != 0 {
		t.Errorf("have %+v, %v, want no task left", left, err)
	}
}

func rate(ctx context.Context, t *testing.T, c *crashing) (run string) {
	t.Helper()
	receipt, err := c.client.SubmitEvent(ctx, wire.Event{Type: "rate", Source: "test", Payload: map[string]int{"n": 3}})
	if err != nil {
		t.Fatal(err)
	}
	return receipt.Run
}

// claimScore waits for the next task of the type scores.
func claimScore(ctx context.Context, t *testing.T, c *crashing, lease string) remote.QueuedTask {
	t.Helper()
	held, err := time.ParseDuration(lease)
	if err != nil {
		t.Fatal(err)
	}
	for ctx.Err() == nil {
		claimed := tell[remote.Claimed](ctx, t, c, "claim", remote.ClaimTasks{
			Worker: "w", Types: []remote.ClaimType{{Type: "scores"}}, Lease: wire.Duration(held), Wait: wire.Duration(2 * time.Second),
		})
		if len(claimed.Items) > 0 {
			return claimed.Items[0]
		}
	}
	t.Fatal("there is no task")
	return remote.QueuedTask{}
}

func result(receipt string, score int) []remote.TaskResult {
	return []remote.TaskResult{{Receipt: receipt, Result: map[string]int{"score": score}}}
}

// tell calls the API for workers.
func tell[T any](ctx context.Context, t *testing.T, c *crashing, verb string, body any) T {
	t.Helper()
	out, err := client.Send[T](ctx, c.client, http.MethodPost, "/v1/queues/"+verb, body, nil)
	if err != nil {
		data, _ := json.Marshal(body)
		t.Fatalf("%s %s: %v", verb, data, err)
	}
	return out
}
