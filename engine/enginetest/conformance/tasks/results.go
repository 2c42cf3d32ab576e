package tasks

import (
	"encoding/json"
	"testing"

	"procaas/engine/store"
)

// checkKeepsResults checks that a completed task keeps the result of the worker that held it, and of nobody else.
func checkKeepsResults(t *testing.T, s *store.TaskStore) {
	put, err := s.Queue.PutTasks(t.Context(), []store.TaskSpec{{Type: "score"}, {Type: "score"}})
	if err != nil {
		t.Fatal(err)
	}
	held, err := s.Work.ClaimTasks(t.Context(), store.TaskClaim{Worker: "w", Types: []store.TaskWant{{Type: "score", Limit: 2}}, Limit: 2})
	if err != nil || len(held) != 2 {
		t.Fatalf("have %v, %v, want two tasks", held, err)
	}
	stale := held[1].Ref()
	stale.Epoch++
	lost, err := s.Work.ReportTasks(t.Context(), store.TaskReport{
		Completed: []store.TaskRef{held[0].Ref(), stale},
		Results:   map[store.TaskRef]json.RawMessage{held[0].Ref(): json.RawMessage(`{"score":7}`), stale: json.RawMessage(`{"score":8}`)},
	})
	if err != nil || len(lost) != 1 || lost[0] != stale {
		t.Fatalf("have %v, %v, want the stale one lost", lost, err)
	}
	done, err := s.Admin.PeekTasks(t.Context(), store.TaskFilter{Type: "score", State: store.TaskCompleted, IDs: []int64{put[0].ID, put[1].ID}})
	if err != nil || len(done) != 1 || string(done[0].Result) != `{"score":7}` || done[0].Payload != nil {
		t.Errorf("have %+v, %v, want one completed task with its result", done, err)
	}
	reportTasks(t, s, store.TaskReport{Completed: []store.TaskRef{held[1].Ref()}})
	done, err = s.Admin.PeekTasks(t.Context(), store.TaskFilter{Type: "score", State: store.TaskCompleted, IDs: []int64{held[1].ID}})
	if err != nil || len(done) != 1 || len(done[0].Result) != 0 {
		t.Errorf("have %+v, %v, want a task without a result", done, err)
	}
}
