package handlers_test

import (
	"strings"
	"testing"

	"procaas/cmd/procaas/addons"
)

// A time that is missing in an event is null. It must not be now.
func TestTimesAreNotNull(t *testing.T) {
	t.Parallel()
	for name, field := range map[string]string{"wait": "until", "emit": "at"} {
		for _, typ := range addons.HandlerTypes() {
			if typ.Name != name {
				continue
			}
			data := map[string]any{"type": "x", field: nil}
			if name == "wait" {
				delete(data, "type")
			}
			err := typ.Spec.Decode(data, typ.New())
			if err == nil || !strings.Contains(err.Error(), field) || !strings.Contains(err.Error(), "have null") {
				t.Errorf("%s with %s: null: have %v, want an error", name, field, err)
			}
			delete(data, field)
			if err := typ.Spec.Decode(data, typ.New()); err != nil {
				t.Errorf("%s without %s: %v", name, field, err)
			}
		}
	}
}
