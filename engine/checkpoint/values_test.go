package checkpoint

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Values behave as a map does, and stay sorted, so that equal ones are written as the same text.
func TestValuesAreASortedMap(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want, have := map[string]string{}, Values{}
		for range rapid.IntRange(0, 30).Draw(t, "changes") {
			name := rapid.SampledFrom([]string{"", "a", "b", "ab", "ö", "c d"}).Draw(t, "name")
			if rapid.IntRange(0, 3).Draw(t, "delete") == 0 {
				delete(want, name)
				have.Delete(name)
				continue
			}
			raw := rapid.SampledFrom([]string{"1", `"x"`, "null"}).Draw(t, "raw")
			before, known := want[name]
			if was, had := have.Set(name, json.RawMessage(raw)); string(was) != before || had != known {
				t.Errorf("%q replaces %s, %v; want %s, %v", name, was, had, before, known)
			}
			want[name] = raw
		}
		names := slices.Sorted(maps.Keys(want))
		if len(have) != len(names) {
			t.Fatalf("want %v, have %v", want, have)
		}
		for i, name := range names {
			raw, ok := have.Get(name)
			if have[i].Name != name || !ok || string(raw) != want[name] {
				t.Errorf("want %q = %s at %d, have %v", name, want[name], i, have)
			}
		}
		if _, ok := have.Get("none"); ok {
			t.Error("there is a value that nobody has set")
		}
		text, err := json.Marshal(have)
		var again Values
		if err != nil || json.Unmarshal(text, &again) != nil || !slices.EqualFunc(have, again, func(a, b Value) bool {
			return a.Name == b.Name && string(a.Raw) == string(b.Raw)
		}) {
			t.Errorf("want %v as JSON, have %s, and %v of it: %v", have, text, again, err)
		}
	})
}
