package serve

import (
	"errors"
	"strings"
	"testing"

	"procaas/engine/api/cli"
)

func TestMemoryFlag(t *testing.T) {
	t.Parallel()
	for flag, want := range map[string]string{
		"63MiB": "want 64MiB or more",
		"0":     "want 64MiB or more",
		"lots":  `--memory "lots"`,
		"-1GiB": `--memory "-1GiB"`,
	} {
		var usage cli.UsageError
		if _, err := memoryLimit(flag); !errors.As(err, &usage) || !strings.Contains(err.Error(), want) {
			t.Errorf("--memory %s: want a usage error with %q, have %v", flag, want, err)
		}
	}
	if n, err := memoryLimit("64MiB"); n != 64<<20 || err != nil {
		t.Errorf("want 64 MiB, have %d and %v", n, err)
	}
	if n, err := memoryLimit(""); n < leastMemory || err != nil {
		t.Errorf("want a limit of 64 MiB or more without the flag, have %d and %v", n, err)
	}
}

// A node with more memory works on more runs at once, within what the process may open.
func TestRunsFollowTheMemory(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		memory int64
		files  int
		runs   int
	}{
		{leastMemory, 0, fewestRuns},
		{300 << 20, 1 << 20, 300},
		{unknownMemory, 0, mostRuns},
		{64 << 30, 1 << 20, mostRuns},
		{64 << 30, 1024, 448},
		{64 << 30, 256, fewestRuns},
	} {
		if runs := runsOf(test.memory, test.files); runs != test.runs {
			t.Errorf("%d bytes of memory, %d files: want %d runs, have %d", test.memory, test.files, test.runs, runs)
		}
	}
}

// A node gives memory back once after a busy time, and now and then at rest, but never while it works.
func TestMemoryIsGivenBackAtRest(t *testing.T) {
	t.Parallel()
	var r calm
	allocated := uint64(0)
	for i, step := range []struct {
		mib   uint64
		frees bool
	}{{500, false}, {20, false}, {1, true}, {1, false}, {16, false}, {16, false}, {16, false}, {16, true}, {17, false}, {50, false}, {2, true}} {
		allocated += step.mib << 20
		if frees := r.frees(allocated); frees != step.frees {
			t.Errorf("look %d, after another %d MiB: want %t, have %t", i, step.mib, step.frees, frees)
		}
	}
	r.freed(allocated + 500<<20) // a reload has given it back already
	if r.frees(allocated + 501<<20) {
		t.Error("want nothing given back twice after a reload")
	}
}
