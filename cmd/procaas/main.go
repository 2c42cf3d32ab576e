// Command procaas checks, runs and serves declarative pipelines.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"procaas/cmd/procaas/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := Main(ctx, os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
	stop()
	os.Exit(code)
}
