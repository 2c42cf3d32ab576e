package language_test

import (
	"testing"

	"procaas/handlers/balancer/language"
)

func TestKeyPlacesAreReadAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"header:X-User", "query:id", "path:1", "path:100"} {
		if k, err := language.ParseKeyPlace(text); err != nil || k.String() != text {
			t.Errorf("%s: have %v, %v", text, k, err)
		}
	}
	for _, text := range []string{"", "header", "header:", "header:a b", "path:0", "path:x", "path:101", "cookie:a"} {
		if k, err := language.ParseKeyPlace(text); err == nil {
			t.Errorf("%q: have %v, want an error", text, k)
		}
	}
}
