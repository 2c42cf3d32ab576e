package sqlite_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"procaas/engine/sqlite"
	"procaas/engine/store"
)

// Definitions that become current one after another do not fill the memory of the process.
func TestDefinitionsDoNotFillTheCache(t *testing.T) { // not parallel: the memory is that of all tests
	s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "s.db"), sqlite.Options{Migrate: true, Fast: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const size = 4 << 20
	before := resident(t)
	for i := range 12 {
		if _, err := s.Activate(t.Context(), fmt.Sprint("hash-", i), bytes.Repeat([]byte("x"), size), false, store.Actor{Name: "test"}); err != nil {
			t.Fatal(err)
		}
	}
	if grown := resident(t) - before; grown > 5*size {
		t.Errorf("the process has %d KiB more after 12 definitions of %d KiB", grown>>10, size>>10)
	}
}

// resident returns how much memory of its own the process has, in bytes, without garbage.
func resident(t *testing.T) (bytes int) {
	t.Helper()
	debug.FreeOSMemory()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, line, _ := strings.Cut(string(status), "\nRssAnon:")
	if _, err := fmt.Sscanf(line, "%d kB", &bytes); err != nil {
		t.Fatal(err)
	}
	return bytes << 10
}
