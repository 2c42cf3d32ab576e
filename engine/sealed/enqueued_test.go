package sealed_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"procaas/engine/store"
)

// An enqueuer has tasks that programs have enqueued, and puts them into a queue as they are when they are ready.
type enqueuer struct {
	queue store.TaskQueue
	tasks []store.TaskSpec
	dead  []string // payloads and reasons
}

// TakeEnqueued implements [store.TaskEnqueued].
func (e *enqueuer) TakeEnqueued(ctx context.Context, _ int, ready store.ReadyTask) (int, error) {
	for _, t := range e.tasks {
		why, err := ready(&t)
		if err != nil {
			return 0, err
		}
		if why != "" {
			e.dead = append(e.dead, why, string(t.Payload))
			continue
		}
		if strings.Contains(string(t.Payload), said) {
			return 0, fmt.Errorf("the payload %s is readable", t.Payload)
		}
		if _, err := e.queue.PutTasks(ctx, []store.TaskSpec{t}); err != nil {
			return 0, err
		}
	}
	return len(e.tasks), nil
}

// TestEnqueuedTasksAreSealed takes a task that becomes ready with a name, and one that is refused with its data in the reason.
func TestEnqueuedTasksAreSealed(t *testing.T) {
	t.Parallel()
	s := inFile(t, filepath.Join(t.TempDir(), "store.db"))
	payload := json.RawMessage(`"` + said + `"`)
	e := &enqueuer{queue: s.Tasks.Queue, tasks: []store.TaskSpec{{Type: "good", Key: "k", Payload: payload}, {Type: "bad", Key: "k", Unique: "u", Payload: payload}}}
	s.Tasks.Enqueued = e
	s = seal(t, s, file(t))
	_, err := s.Tasks.Enqueued.TakeEnqueued(t.Context(), 10, func(t *store.TaskSpec) (string, error) {
		if t.Type == "bad" {
			return "it says " + said, nil
		}
		t.Unique = "a name"
		return "", nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if all := strings.Join(e.dead, " "); len(e.dead) != 2 || strings.Contains(all, said) {
		t.Errorf("want a sealed dead letter, have %q", e.dead)
	}
	got, err := s.Tasks.Work.ClaimTasks(t.Context(), store.TaskClaim{Worker: "w", Types: []store.TaskWant{{Type: "good", Limit: 1}}, Lease: time.Minute})
	if err != nil || len(got) != 1 || string(got[0].Payload) != string(payload) || got[0].Unique != "a name" {
		t.Errorf("want the task opened, have %+v (%v)", got, err)
	}
}
