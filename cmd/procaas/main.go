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
	ctx := untilSignal(context.Background())
	os.Exit(Main(ctx, os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}

// interrupted is the exit code after a second SIGINT, as shells count: 128 plus the number of the signal.
const interrupted = 128 + int(syscall.SIGINT)

// untilSignal returns a context that ends at SIGINT or SIGTERM. A SIGINT after that ends the process at once:
// somebody at a terminal does not want to wait.
func untilSignal(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		cancel()
		for s := range signals {
			if s == os.Interrupt {
				os.Exit(interrupted)
			}
		}
	}()
	return ctx
}
