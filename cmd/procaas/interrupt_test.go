package main

import (
	"bytes"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"procaas/engine/enginetest/patience"
)

// A command that reads or computes does not look at its context all the time, and ends at a signal all the same.
func TestCommandsEndAtASignal(t *testing.T) {
	t.Parallel()
	for _, args := range []string{"fmt -", "validate -"} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := patience.Context(t.Context(), time.Minute)
			defer cancel()
			c := exec.CommandContext(ctx, "procaas", strings.Fields(args)...)
			in, err := c.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			// More than a pipe holds: the command reads when this returns, and waits for the rest.
			if _, err := in.Write(bytes.Repeat([]byte("# a\n"), 40<<10)); err != nil {
				t.Fatal(err)
			}
			if err := c.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			_ = c.Wait() // its exit code says how it ended
			if code := c.ProcessState.ExitCode(); code != 128+int(syscall.SIGTERM) {
				t.Errorf("want the end at SIGTERM, have exit code %d: %s", code, c.ProcessState)
			}
		})
	}
}
