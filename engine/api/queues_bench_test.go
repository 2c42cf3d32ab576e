package api_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"procaas/engine/api"
	"procaas/engine/store"
)

// An idleQueue has as many tasks as each claim wants, and keeps nothing.
type idleQueue struct {
	store.TaskWork
	tasks []store.QueuedTask
}

func (q idleQueue) ExchangeTasks(context.Context, store.TaskReport, store.TaskClaim) ([]store.QueuedTask, []store.TaskRef, error) {
	return q.tasks, nil, nil
}

func (idleQueue) WatchTasks([]string) (<-chan struct{}, func()) { return nil, func() {} }

// BenchmarkClaimTasks completes 500 tasks and claims as many.
func BenchmarkClaimTasks(b *testing.B) {
	const tasks = 500
	q := idleQueue{tasks: make([]store.QueuedTask, tasks)}
	now := time.Now()
	var receipts []string
	for i := range q.tasks {
		q.tasks[i] = store.QueuedTask{
			ID: int64(1_000_000 + i), Type: "thumbs", State: store.TaskRunning, Payload: []byte(`{"photo": "p-1", "width": 320}`),
			Created: now, Due: now, Deadline: now, Until: now, Epoch: 1_234_567_890, Worker: "worker-1",
		}
		receipts = append(receipts, fmt.Sprintf(`"%d.%d.1.thumbs"`, q.tasks[i].ID, q.tasks[i].Epoch))
	}
	h := api.New(withProducts(newFake(taxi(b)), api.Options{}, products{tasks: &store.TaskStore{Work: q}}))
	body := `{"worker": "worker-1", "types": [{"type": "thumbs", "limit": 500}], "complete": [` + strings.Join(receipts, ",") + `]}`
	b.ReportAllocs()
	for b.Loop() {
		r := httptest.NewRequest(http.MethodPost, "/v1/queues/claim", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			b.Fatalf("have %d %s", w.Code, w.Body)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/tasks, "ns/task")
}
