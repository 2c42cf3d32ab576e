package queue_test

import (
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"procaas/engine"
	"procaas/engine/model"
	"procaas/engine/sqlite"
	"procaas/engine/store"
	"procaas/handlers/queue"
)

// handle calls a handler type that fill has filled, bound to a store; nil for none.
func handle[T any](t *testing.T, store *store.TaskStore, name string, fill func(*T)) (map[string]any, error) {
	t.Helper()
	for _, one := range queue.Bind(queue.Types(), store) {
		if one.Name != name {
			continue
		}
		h := one.New()
		fill(any(h).(*T))
		out, err := h.Handle(t.Context(), &engine.Call{Run: "r", IdempotencyKey: "k", Now: time.Now()})
		response, _ := out.Response.(map[string]any)
		return response, err
	}
	t.Fatalf("there is no type %s", name)
	return nil, nil
}

func TestHandlersPutTakeAndCancel(t *testing.T) {
	t.Parallel()
	store, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "q.db"), sqlite.Options{Migrate: true, Fast: true})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	must := func(response map[string]any, err error) map[string]any {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return response
	}
	put := func(payload any, unique string, delay time.Duration) map[string]any {
		t.Helper()
		return must(handle(t, store.Tasks(), "queue.put", func(h *queue.PutTask) {
			h.Type, h.Payload, h.Unique, h.Delay = "mail", payload, unique, delay
		}))
	}
	first := put(map[string]any{"to": "user-1"}, "", 0)
	if again := put(map[string]any{"to": "user-1"}, "", 0); again["id"] != first["id"] || again["outcome"] != "kept" {
		t.Errorf("a call that is repeated: have %v after %v, want the same task", again, first)
	}
	put(2, "u", time.Hour)
	taken := must(handle(t, store.Tasks(), "queue.take", func(h *queue.TakeTasks) { h.Type, h.Limit, h.Lease = "mail", 5, time.Hour }))
	tasks, _ := taken["tasks"].([]any)
	if len(tasks) != 1 || tasks[0].(map[string]any)["payload"].(map[string]any)["to"] != "user-1" {
		t.Fatalf("have %v, want the task that is due", taken)
	}
	done := must(handle(t, store.Tasks(), "queue.take", func(h *queue.TakeTasks) { h.Type, h.Done, h.Lease = "mail", tasks, time.Hour }))
	if done["done"] != 1 || done["lost"] != 0 {
		t.Errorf("have %v, want it done", done)
	}
	if _, err := handle(t, store.Tasks(), "queue.take",
		func(h *queue.TakeTasks) { h.Type, h.Done = "mail", []any{"x"} }); !model.IsPermanent(err) {
		t.Errorf("have %v, want what is no task refused", err)
	}
	if _, err := handle(t, store.Tasks(), "queue.cancel", func(h *queue.CancelTasks) { h.Type = "mail" }); !model.IsPermanent(err) {
		t.Errorf("have %v, want a key or a name asked for", err)
	}
	if out := must(handle(t, store.Tasks(), "queue.cancel",
		func(h *queue.CancelTasks) { h.Type, h.Unique = "mail", "u" })); out["cancelled"] != 1 {
		t.Errorf("have %v, want one cancelled", out)
	}
}

// A whole float of a payload is one for whoever takes the task: as an int, 5e8 * 1e13 would overflow.
func TestTasksKeepKindsOfNumbers(t *testing.T) {
	t.Parallel()
	store, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "q.db"), sqlite.Options{Migrate: true, Fast: true})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	want := []any{5e8, 500000000}
	if _, err := handle(t, store.Tasks(), "queue.put", func(h *queue.PutTask) { h.Type, h.Payload = "bill", want }); err != nil {
		t.Fatal(err)
	}
	taken, err := handle(t, store.Tasks(), "queue.take", func(h *queue.TakeTasks) { h.Type, h.Limit, h.Lease = "bill", 1, time.Hour })
	if err != nil {
		t.Fatal(err)
	}
	tasks, _ := taken["tasks"].([]any)
	if len(tasks) != 1 || !reflect.DeepEqual(tasks[0].(map[string]any)["payload"], any(want)) {
		t.Errorf("have %#v, want a task with the payload %#v", tasks, want)
	}
}

func TestHandlersCareForTasks(t *testing.T) {
	t.Parallel()
	store, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "q.db"), sqlite.Options{Migrate: true, Fast: true})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if _, err := store.PutTasks(t.Context(), []queue.Spec{{Type: "mail"}, {Type: "mail", Delay: time.Hour}}); err != nil {
		t.Fatal(err)
	}
	if got, err := store.ClaimTasks(t.Context(), queue.Claim{Worker: "w", Types: []queue.Want{{Type: "mail", Limit: 1}}}); err != nil ||
		len(got) != 1 {
		t.Fatal(got, err)
	}
	check := func(name, field string, want any, response map[string]any, err error) {
		t.Helper()
		if err != nil || field != "" && response[field] != want {
			t.Errorf("%s: have %v, %v, want %s %v", name, response, err, field, want)
		}
	}
	response, err := handle(t, store.Tasks(), "queue.reclaim", func(h *queue.ReclaimTasks) { h.Limit, h.MaxLost = 10, 0 })
	check("reclaim", "reclaimed", 1, response, err)
	response, err = handle(t, store.Tasks(), "queue.promote", func(h *queue.PromoteTasks) { h.Limit, h.Rounds = 10, 2 })
	check("promote", "promoted", 0, response, err)
	response, err = handle(t, store.Tasks(), "queue.stats", func(h *queue.StatsOfTasks) {})
	check("stats", "dead", 1, response, err)
	response, err = handle(t, store.Tasks(), "queue.expire", func(h *queue.ExpireTasks) { h.Ended = time.Hour })
	check("expire", "forgotten", 0, response, err)
	response, err = handle(t, store.Tasks(), "queue.vacuum", func(*queue.VacuumTasks) {})
	check("vacuum", "", nil, response, err)
	if _, err := handle(t, nil, "queue.vacuum", func(*queue.VacuumTasks) {}); !model.IsPermanent(err) {
		t.Errorf("without a store: have %v", err)
	}
}
