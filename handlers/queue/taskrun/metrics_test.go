package taskrun

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"procaas/engine/store"
)

// exchanged hands out the same tasks with each exchange.
type exchanged struct {
	store.TaskWork
	tasks []store.QueuedTask
}

func (e exchanged) ExchangeTasks(context.Context, store.TaskReport, store.TaskClaim) ([]store.QueuedTask, []store.TaskRef, error) {
	return e.tasks, nil, nil
}

// Each task of a claim counts, by its type and by whether it was late.
func TestStartedTasksAreCounted(t *testing.T) {
	t.Parallel()
	begun := time.Date(2026, 5, 1, 9, 0, 0, 0, time.UTC)
	var tasks []store.QueuedTask
	for range 1000 {
		tasks = append(tasks, store.QueuedTask{Type: "mails", Begun: begun, Deadline: begun})
	}
	tasks = append(tasks,
		store.QueuedTask{Type: "mails", Begun: begun.Add(2 * taskGrace), Deadline: begun},
		store.QueuedTask{Type: "photos", Begun: begun, Deadline: begun},
		store.QueuedTask{Type: "mails", Begun: begun, Deadline: begun},
	)
	work := &exchanged{tasks: tasks}
	registry := prometheus.NewRegistry()
	measured := MeasureTasks(&store.TaskStore{Work: work, Admin: noTypes{}}, registry).Work
	if _, _, err := measured.ExchangeTasks(t.Context(), store.TaskReport{}, store.TaskClaim{}); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "procaas_queue_started_total" {
				have[m.GetLabel()[0].GetValue()+" "+m.GetLabel()[1].GetValue()] = m.GetCounter().GetValue()
			}
		}
	}
	if have["mails true"] != 1001 || have["mails false"] != 1 || have["photos true"] != 1 || len(have) != 3 {
		t.Errorf("want 1001 mails and 1 photo in time and 1 mail late, have %v", have)
	}
}

// noTypes has no tasks to count.
type noTypes struct{ store.TaskAdmin }

func (noTypes) TaskStats(context.Context) ([]store.TaskTypeStats, error) { return nil, nil }

func (noTypes) TaskTables(context.Context) ([]store.TaskTable, error) { return nil, nil }
