package records

import (
	"encoding/json"
	"testing"

	"procaas/engine/checkpoint"
	"procaas/engine/model"
	"procaas/engine/store"
)

// A replay begins with the event that the run had: a whole float is no int.
func TestRecordedEventKeepsKindsOfNumbers(t *testing.T) {
	t.Parallel()
	saved := checkpoint.Run{Format: checkpoint.Format, Recording: &checkpoint.RunRecording{}}
	one := recordedOf(store.RunRecord{
		Status: model.Succeeded, Event: model.Event{Payload: []any{5e8, 5}}, Checkpoint: saved.Encode(),
	})
	if one == nil {
		t.Fatal("have no recorded run")
	}
	if raw, _ := one.Event.Payload.(json.RawMessage); string(raw) != "[500000000.0,5]" {
		t.Errorf("have %s, want [500000000.0,5]", raw)
	}
}
