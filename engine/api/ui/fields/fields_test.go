package fields

import "testing"

// A form that is sent unchanged has the kinds of numbers that it was filled with.
func TestFormsKeepKindsOfNumbers(t *testing.T) {
	t.Parallel()
	if have := compact([]any{5e8, 5}); have != "[500000000.0,5]" {
		t.Errorf("have %s", have)
	}
	if have := indented(map[string]any{"a": 2.0}); have != "{\n  \"a\": 2.0\n}" {
		t.Errorf("have %s", have)
	}
}
