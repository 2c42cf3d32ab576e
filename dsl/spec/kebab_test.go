package spec_test

import (
	"testing"

	"procaas/dsl/spec"
)

// The names of structs are words for authors. Acronyms stay whole.
func TestKebab(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"Handler": "handler", "QueueRetry": "queue-retry", "DatabaseTLS": "database-tls", "TLSVersion": "tls-version",
		"OpenAPIFile": "open-api-file", "maxRetries": "max-retries", "MAX-RETRIES": "max-retries", "B": "b", "": "",
	} {
		if have := spec.Kebab(name); have != want {
			t.Errorf("%s: want %q, have %q", name, want, have)
		}
	}
}
