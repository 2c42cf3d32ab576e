package playground

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"os"
	"os/exec"
	"strings"
	"time"

	"procaas/engine/api/ui"
)

// Play is a [ui.Player] that starts a process for each form. The process inherits neither the environment, which may hold
// secrets, nor open files.
func Play(ctx context.Context, typed ui.Typed) (template.HTML, error) {
	input, err := json.Marshal(typed)
	if err != nil {
		return "", err
	}
	program, err := executable()
	if err != nil {
		return "", fmt.Errorf("the playground cannot find its program: %w", err)
	}
	cmd := exec.CommandContext(ctx, program, name)
	cmd.Args[0] = os.Args[0]
	cmd.Env = []string{"GOMAXPROCS=1", "GOTRACEBACK=none"}
	cmd.Stdin = bytes.NewReader(input)
	page, failure := &bounded{most: maxOutput}, &bounded{most: 4 << 10}
	cmd.Stdout, cmd.Stderr = page, failure
	cmd.WaitDelay = time.Second
	err = cmd.Run()
	switch {
	case page.full:
		return "", fmt.Errorf("the result is larger than %d MiB: "+instead, maxOutput>>20)
	case err == nil:
		return template.HTML(page.data.String()), nil
	case ctx.Err() != nil:
		return "", errors.New("it takes too long for the playground: " + instead)
	}
	return "", reason(cmd.ProcessState, failure.data.String(), err)
}

// instead is what people can do.
const instead = "try less, or use procaas validate, plan and test"

// reason returns why a process ended without a result, for people.
func reason(state *os.ProcessState, failure string, err error) error {
	switch {
	case state == nil:
		return fmt.Errorf("the playground cannot start a process: %w", err)
	case state.ExitCode() == exitMemory, strings.Contains(failure, "out of memory"), strings.Contains(failure, "cannot allocate memory"):
		return fmt.Errorf("it needs more than %d MiB of memory, the limit of the playground: %s", maxMemory>>20, instead)
	case state.UserTime()+state.SystemTime() >= maxProcessor-time.Second:
		return fmt.Errorf("it needs more than %d s of processor time, the limit of the playground: %s", maxProcessor/time.Second, instead)
	}
	return fmt.Errorf("the process of the playground failed: %w: %s", err, strings.TrimSpace(failure))
}

// A bounded is a buffer that keeps the beginning of what is written, and refuses what exceeds its bound. So the process
// that writes to it ends.
type bounded struct {
	data bytes.Buffer // not embedded: its other methods to write have no bound
	most int
	full bool
}

// Write implements [io.Writer].
func (b *bounded) Write(data []byte) (int, error) {
	n := min(len(data), b.most-b.data.Len())
	b.data.Write(data[:n])
	if n < len(data) {
		b.full = true
		return n, errors.New("too much output")
	}
	return n, nil
}
