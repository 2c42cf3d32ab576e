package main

import (
	"os/exec"
	"strings"
	"testing"
)

// TestCommandsOfAnEmptyImage runs commands where there is no /tmp, and where the working directory is the root.
func TestCommandsOfAnEmptyImage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		dir, line, want string
		fine            bool
	}{
		{"/", "serve", "name the directory that has the files", false},
		{"/", "dev", "name the directory that has the files", false},
		{t.TempDir(), "demo --orders 2 --exit", "orders", true},
		{t.TempDir(), "serve -p PIPELINES --store sqlite:/proc/none/p.db", "want --store sqlite:FILE in a directory", false},
	} {
		line := strings.ReplaceAll(c.line, "PIPELINES", repository(t)+"/pipelines/taxi")
		cmd := exec.CommandContext(t.Context(), "procaas", strings.Fields(line)...)
		cmd.Dir = c.dir
		cmd.Env = append(cmd.Environ(), "TMPDIR=/nonexistent")
		out, err := cmd.CombinedOutput()
		if (err == nil) != c.fine || !strings.Contains(string(out), c.want) {
			t.Errorf("procaas %s in %s: have %v and %s, want %q", line, c.dir, err, out, c.want)
		}
	}
}
