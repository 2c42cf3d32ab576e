package playground

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/spf13/cobra"

	"procaas/cmd/procaas/addons"
	"procaas/dsl/diag"
	"procaas/engine"
	"procaas/engine/api/cli"
	"procaas/engine/api/ui"
	"procaas/engine/planner"
)

// name is the command that [Play] starts. People do not call it.
const name = "playground-process"

// Bounds of the process. A form of 256 KiB needs far less.
const (
	maxProcessor = 5 * time.Second
	maxMemory    = 256 << 20 // bytes that the Go runtime holds
	maxInput     = 1 << 20
	maxOutput    = 16 << 20
)

// exitMemory is the exit code of a process that reached maxMemory.
const exitMemory = 90

// Command returns the command that tries one form: it reads a [ui.Typed] as JSON, and writes a part of a page.
func Command() *cobra.Command {
	return &cobra.Command{
		Use: name, Hidden: true, Args: cobra.NoArgs,
		Short: "Try what was typed in the console, with bounded time and memory",
		RunE: func(c *cobra.Command, _ []string) error {
			if err := bound(); err != nil {
				return err
			}
			return try(c.Context(), cli.Of(c))
		},
	}
}

// bound limits this process.
func bound() error {
	// Under pressure, collecting garbage takes processor time, which is bounded, too.
	debug.SetMemoryLimit(maxMemory * 3 / 4)
	go watchMemory()
	return limitProcess()
}

// watchMemory ends the process when it holds too much memory. It looks often enough that a loop that allocates does not
// get far beyond it. The limits of the operating system, where there are any, stop a single huge allocation.
func watchMemory() {
	held := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	for range time.Tick(2 * time.Millisecond) {
		metrics.Read(held)
		if held[0].Value.Uint64()-held[1].Value.Uint64() > maxMemory {
			os.Exit(exitMemory)
		}
	}
}

// try reads what was typed, and writes what comes of it.
func try(ctx context.Context, s cli.Streams) error {
	var typed ui.Typed
	if err := json.NewDecoder(io.LimitReader(s.In, maxInput)).Decode(&typed); err != nil {
		return cli.Usagef("%s is for the console, which writes a form to its standard input: %w", name, err)
	}
	trial := ui.Trial{
		Plan: func(files []diag.File) ([]planner.PlanView, []diag.Diagnostic) {
			return engine.Try(files, addons.Language(), addons.Types())
		},
		Run: run,
	}
	page, err := trial.Play(ctx, typed)
	if err != nil {
		return err
	}
	_, err = io.WriteString(s.Out, string(page))
	return err
}
