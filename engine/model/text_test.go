package model

import (
	"strings"
	"testing"
)

// Keys of calls and ids of events are digests, so another digest would make services take a repeated
// call for a new one.
func TestDigestsStayTheSame(t *testing.T) {
	t.Parallel()
	for want, parts := range map[string][]string{
		"1aadffe70558fc3943705b4bfc5fe14b": {"run", "p/s/h", "0"},
		"2981ffef108b9b155a612496ea3935d7": {strings.Repeat("x", 300), ""},
		"e3b0c44298fc1c149afbf4c8996fb924": nil,
	} {
		if have := Digest(parts...); have != want {
			t.Errorf("%.40q: want %s, have %s", parts, want, have)
		}
	}
}
