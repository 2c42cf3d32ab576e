package sqlite_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"procaas/engine/model"
)

// sqlite3 runs SQLite's own program, as an operator does. The program must be installed.
func sqlite3(t *testing.T, path string, commands ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "sqlite3", append([]string{"-bail", path}, commands...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("sqlite3 %s %q: %v (engine/enginetest/install.sh installs it)\n%s", path, commands, err, out)
	}
	return strings.TrimSpace(string(out))
}

// Another program may open and close the database at any time, as a backup does. The log stays, and
// so does each acknowledged event.
func TestProgramsBesideTheStoreLoseNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "store.db")
	s := open(t, path)
	submitted := 0
	submit := func() {
		t.Helper()
		submitted++
		if _, err := s.Accept(t.Context(), 0, []model.Intake{intake(strconv.Itoa(submitted))}); err != nil {
			t.Fatalf("event %d: %v", submitted, err)
		}
	}
	count := func(path string) string { return sqlite3(t, path, "select count(*) from runs") }
	submit()
	log, err := os.Stat(path + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	for i, command := range []string{"select 1", ".backup %s", "vacuum into '%s'", "pragma wal_checkpoint(truncate)", "vacuum", "pragma integrity_check"} {
		copied := filepath.Join(dir, fmt.Sprint(i))
		sqlite3(t, path, strings.ReplaceAll(command, "%s", copied))
		if _, err := os.Stat(copied); err == nil && count(copied) != strconv.Itoa(submitted) {
			t.Errorf("%s: want %d runs in the copy, have %s", command, submitted, count(copied))
		}
		if now, err := os.Stat(path + "-wal"); err != nil || !os.SameFile(log, now) {
			t.Fatalf("%s: the log is gone or another one: %v", command, err)
		}
		submit()
	}
	// Only the files count after a crash.
	after := filepath.Join(dir, "after.db")
	for _, suffix := range []string{"", "-wal"} {
		if out, err := exec.CommandContext(t.Context(), "cp", path+suffix, after+suffix).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	if n := count(after); n != strconv.Itoa(submitted) {
		t.Errorf("want %d runs after a crash, have %s", submitted, n)
	}
}
