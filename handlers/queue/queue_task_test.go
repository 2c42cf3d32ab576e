package queue_test

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"procaas/engine"
	"procaas/engine/model"
	"procaas/engine/sqlite"
	"procaas/engine/store"
	"procaas/handlers/queue"
)

// A run looks at its task seldom, gets the result of the worker, and takes the task from the worker when its time is over.
func TestTaskStepLooksAtItsTask(t *testing.T) {
	t.Parallel()
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "q.db"), sqlite.Options{Migrate: true, Fast: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	now := time.Now()
	call := func(key, again string, after time.Duration) (model.Result, error) {
		types := queue.Bind(queue.Types(), db.Tasks())
		h := types[slices.IndexFunc(types, func(one engine.HandlerType) bool { return one.Name == "queue.task" })].New()
		task := any(h).(*queue.DoTask)
		task.Type, task.Payload, task.Within = "scores", 3, time.Hour
		return h.Handle(t.Context(), &engine.Call{Run: "r1", IdempotencyKey: key, Again: again, Now: now.Add(after)})
	}
	claim := func() store.QueuedTask {
		t.Helper()
		held, err := db.ClaimTasks(t.Context(), store.TaskClaim{Worker: "w", Types: []store.TaskWant{{Type: "scores", Limit: 1}}, Limit: 1})
		if err != nil || len(held) != 1 || queue.RunOf(&held[0]) != "r1" {
			t.Fatalf("have %+v, %v, want a task that the run waits for", held, err)
		}
		return held[0]
	}

	put, err := call("k1", "", 0)
	if err != nil || put.Again == "" {
		t.Fatalf("have %+v, %v, want another call", put, err)
	}
	if twice, err := call("k1", "", 0); err != nil || twice.Again != put.Again {
		t.Errorf("have %+v, %v, want the same task after a crash", twice, err)
	}
	for _, age := range []time.Duration{time.Second, 10 * time.Minute} {
		look, err := call("k1", put.Again, age)
		if err != nil || look.Again != put.Again || look.Until.Sub(now.Add(age)) > age+time.Millisecond {
			t.Errorf("after %v: have %+v, %v, want another look before the task is twice as old", age, look, err)
		}
	}
	done := claim()
	report := store.TaskReport{
		Completed: []store.TaskRef{done.Ref()}, Results: map[store.TaskRef]json.RawMessage{done.Ref(): json.RawMessage(`{"score":7}`)},
	}
	if _, err := db.ReportTasks(t.Context(), report); err != nil {
		t.Fatal(err)
	}
	result, err := call("k1", put.Again, time.Minute)
	if score, _ := result.Response.(map[string]any); err != nil || result.Again != "" || score["score"] != 7 {
		t.Errorf("have %+v, %v, want the result", result, err)
	}

	if put, err = call("k2", "", 0); err != nil {
		t.Fatal(err)
	}
	late := claim()
	if _, err := call("k2", put.Again, time.Hour); !model.IsPermanent(err) || model.ClassOf(err) != "timeout" {
		t.Errorf("have %v, want a timeout", err)
	}
	lost, err := db.BeatTasks(t.Context(), []store.TaskBeat{{TaskRef: late.Ref(), Running: true, Lease: time.Minute}})
	if err != nil || len(lost) != 1 {
		t.Errorf("have %v, %v, want the task lost to its worker", lost, err)
	}
	if _, err := call("k2", put.Again, time.Hour); !model.IsPermanent(err) || model.ClassOf(err) != queue.ClassTask {
		t.Errorf("have %v, want a task that was cancelled", err)
	}
}
