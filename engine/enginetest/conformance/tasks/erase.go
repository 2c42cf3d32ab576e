package tasks

import (
	"testing"
	"time"

	"procaas/engine/store"
)

// checkErasesAKey erases the tasks of a key: first those that need no decision, then those that wait.
func checkErasesAKey(t *testing.T, s *store.TaskStore) {
	ctx := t.Context()
	of := func(kind, key string) store.TaskSpec {
		return store.TaskSpec{Type: kind, Key: key, Payload: []byte(`"of a key"`)}
	}
	claim := func() store.TaskRef {
		t.Helper()
		got := claimTasks(t, s, 1, "e")
		if len(got) != 1 {
			t.Fatalf("have %d tasks", len(got))
		}
		return got[0].Ref()
	}
	putTask(t, s, of("e", "k"))
	reportTasks(t, s, store.TaskReport{Completed: []store.TaskRef{claim()}})
	putTask(t, s, of("e", "k"))
	reportTasks(t, s, store.TaskReport{Failed: []store.TaskFailure{{TaskRef: claim(), Error: "no"}}})
	putTask(t, s, of("e", "k"))
	held := claim()
	later := of("e", "k")
	later.Delay = time.Hour
	putTask(t, s, of("e", "k"), later, of("e", "other"), of("f", "k"), of("g", "k"))

	types := []string{"e", "f"}
	wantData := func(what string, have store.TaskData, err error, want store.TaskData) {
		t.Helper()
		if err != nil || have != want {
			t.Errorf("%s: have %+v, %v, want %+v", what, have, err, want)
		}
	}
	d, err := s.Eraser.KeyTasks(ctx, types, "k")
	wantData("there", d, err, store.TaskData{Held: 1, Waiting: 3, Dead: 1, Ended: 1})
	d, err = s.Eraser.EraseTasks(ctx, types, "k", false)
	wantData("erased", d, err, store.TaskData{Dead: 1, Ended: 1})
	d, err = s.Eraser.EraseTasks(ctx, types, "k", true)
	wantData("erased with what waits", d, err, store.TaskData{Waiting: 3})
	d, err = s.Eraser.KeyTasks(ctx, types, "k")
	wantData("left", d, err, store.TaskData{Held: 1})
	reportTasks(t, s, store.TaskReport{Completed: []store.TaskRef{held}})
	d, err = s.Eraser.EraseTasks(ctx, types, "k", true)
	wantData("erased when it has ended", d, err, store.TaskData{Ended: 1})
	for kind, key := range map[string]string{"e": "other", "g": "k"} {
		if d, err := s.Eraser.KeyTasks(ctx, []string{kind}, key); err != nil || d.Waiting != 1 {
			t.Errorf("%s of %s: have %+v, %v, want one task that waits", key, kind, d, err)
		}
	}
}
