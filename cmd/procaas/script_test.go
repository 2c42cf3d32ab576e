package main

import (
	"flag"
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

var update = flag.Bool("update", false, "rewrite the expected output in testdata/cli")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"procaas": main, "torture-hand": tortureHand, "nats": natsHand})
}

// TestScripts runs testdata/cli/*.txtar: files, commands, expected output and
// exit codes, with the real binary.
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 "../../testdata/cli",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("NO_COLOR", "1")
			e.Setenv("TMPDIR", os.TempDir())
			// Most commands end before a collection of garbage pays for itself.
			e.Setenv("GOGC", "off")
			e.Setenv("GOMEMLIMIT", "256MiB")
			return nil
		},
	})
}
