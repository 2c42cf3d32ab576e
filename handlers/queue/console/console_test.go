package console_test

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"procaas/engine/credentials"
	"procaas/engine/enginetest/pages"
	"procaas/engine/store"
	"procaas/handlers/queue/console"
)

type tasks struct{}

func (tasks) TaskStats(context.Context) ([]store.TaskTypeStats, error) {
	return []store.TaskTypeStats{
		{
			Type: "mail/send", Mode: store.TasksPaused, Reason: "<b>", Ready: 7, Failed: 2, Lag: 90 * time.Second,
			Oldest: time.Now().Add(-time.Minute),
		},
		{
			Type: "resize", Mode: store.TasksOpen, Ready: 4096, Estimated: []store.TaskState{store.TaskReady}, Asked: time.Now(), Raised: 3,
			RaisedLast: time.Now(),
		},
	}, nil
}

func (tasks) TaskTables(context.Context) ([]store.TaskTable, error) {
	return []store.TaskTable{{Name: "tasks", Bytes: 1 << 30, Live: 5, Dead: 4_000_000}, {Name: "task_keys", Live: 1, Dead: 900}}, nil
}

func (tasks) PeekTasks(_ context.Context, f store.TaskFilter) ([]store.QueuedTask, error) {
	return []store.QueuedTask{{
		ID: 41, Type: f.Type, State: f.State, Key: "<b>", Payload: json.RawMessage(`{"to":"<b>"}`),
		Error: string(f.State) + ": 503",
	}}, nil
}

func TestTasksHaveTheirPages(t *testing.T) {
	t.Parallel()
	o := pages.Options(credentials.Grant{}, console.Pages(tasks{})...)
	pages.Open(t, o, "/console/queue", http.StatusOK, "mail/send", "paused", "1 min 30 s", `class="chip bad">2<`,
		`class="chip bad">4000000<`, "<code>vacuum (analyze, verbose) tasks;</code>", `<td class="number">900<td>–`)
	pages.Open(t, o, "/console/queue/mail/send", http.StatusOK, "ready: 503", "failed: 503", "beyond the tolerance")
	pages.Open(t, o, "/console/queue/mail/sent", http.StatusNotFound, "Did you mean mail/send?")
	none := pages.Options(credentials.Grant{}, console.Pages(nil)...)
	pages.Open(t, none, "/console/queue", http.StatusOK, "This node has no task queue")
	pages.Open(t, none, "/console/queue/a", http.StatusNotFound, "This node has no task queue")
}

// Who may read one type of tasks sees no other.
func TestTasksAreShownToThoseWhoMayReadThem(t *testing.T) {
	t.Parallel()
	o := pages.Options(credentials.Grant{Name: "ann", Role: credentials.RoleViewer, Paths: []string{"resize"}}, console.Pages(tasks{})...)
	pages.Open(t, o, "/console/queue/resize", http.StatusOK, "ready: 503")
	pages.Open(t, o, "/console/queue/mail/send", http.StatusNotFound, "There is no type of tasks")
}
