package rest

import (
	"encoding/json"
	"testing"
)

// TestTimesFitIntoReplies reads times near the ends of what JSON can hold: in UTC, they may
// be of the year before or after.
func TestTimesFitIntoReplies(t *testing.T) {
	t.Parallel()
	for text, fits := range map[string]bool{
		"2026-11-22T08:30:00+03:00": true,
		"9999-12-31T23:59:59Z":      true,
		"9999-12-31T23:59:59-01:00": false, // the year 10000
		"0001-01-01T00:00:00Z":      true,
		"0001-01-01T00:00:00+01:00": false, // the year 0
	} {
		f := &Fields{prefix: "/", values: map[string]any{"until": text}}
		at := f.Instant("until")
		if _, err := json.Marshal(at); err != nil {
			t.Errorf("%s: it is taken, and cannot be told again: %v", text, err)
		}
		if taken := len(f.Faults) == 0; taken != fits {
			t.Errorf("%s: want it taken: %t, have faults %v", text, fits, f.Faults)
		}
	}
}
