package store_test

import (
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
