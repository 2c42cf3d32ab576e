package store_test

import (
	"strings"
	"testing"

	"procaas/engine/store"
)

// A dead letter has no attempt to come: 5 of 5 have failed, and it is not at the sixth.
func TestADeadLetterIsAtItsLastAttempt(t *testing.T) {
	t.Parallel()
	for state, want := range map[store.TaskState]int{store.TaskReady: 6, store.TaskFailed: 5} {
		task := store.QueuedTask{State: state, Failures: 5}
		if have := task.Attempt(); have != want {
			t.Errorf("%s: want attempt %d, have %d", state, want, have)
		}
	}
}

// A table needs a vacuum if more of its rows are dead than in use, and not while it is small.
func TestVacuumOfATable(t *testing.T) {
	t.Parallel()
	for want, x := range map[string]store.TaskTable{
		"":                                {Name: "tasks", Live: 5, Dead: store.VacuumAt},
		" ":                               {Name: "tasks", Live: 5_000_000, Dead: 4_000_000},
		"vacuum (analyze, verbose) tasks": {Name: "tasks", Live: 5, Dead: store.VacuumAt + 1},
	} {
		if have := x.Vacuum(); have != strings.TrimSpace(want) {
			t.Errorf("%+v needs %q, want %q", x, have, want)
		}
	}
}
