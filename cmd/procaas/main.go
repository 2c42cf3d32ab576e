// Command procaas checks, runs and serves declarative pipelines.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/pprof"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"procaas/engine/api/cli"
)

func main() {
	ctx := untilSignal(context.Background(), os.Args[1:])
	os.Exit(Main(ctx, os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}

// interrupted is the exit code after a signal that ended the process at once, as shells count, less the number of the
// signal.
const interrupted = 128

// grace is how long a command without work of its own may take to end after a signal.
const grace = 3 * time.Second

// endsWork reports whether a command ends calls and connections after a signal. It takes as long as its settings say.
func endsWork(args []string) bool {
	root := newRoot(cli.Streams{})
	c, _, err := root.Find(today(root, args))
	return err == nil && slices.ContainsFunc([]*cobra.Command{c, c.Parent()}, func(c *cobra.Command) bool {
		return c != nil && slices.Contains([]string{"serve", "dev", "run", "demo", "playground", "migrate"}, c.Name())
	})
}

// untilSignal returns a context for a command that ends at SIGINT or SIGTERM. A SIGINT after that ends the process at once:
// somebody at a terminal does not want to wait. So does the end of the grace for commands that compute or read, which
// may not look at the context.
func untilSignal(ctx context.Context, args []string) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go dumpAtQuit()
	go func() {
		first, _ := (<-signals).(syscall.Signal)
		cancel()
		var late <-chan time.Time
		if !endsWork(args) {
			late = time.After(grace)
		}
		for {
			select {
			case s := <-signals:
				if s == os.Interrupt {
					os.Exit(interrupted + int(syscall.SIGINT))
				}
			case <-late:
				os.Exit(interrupted + int(first))
			}
		}
	}()
	return ctx
}

// dumpAtQuit prints all stacks at SIGQUIT and ends the process. The runtime would do so, too, but it does not stop the world for that:
// it reads stacks that others change, and may end with a segmentation fault before it has printed all. The second SIGQUIT is its own,
// for a process that cannot stop the world any more.
func dumpAtQuit() {
	quits := make(chan os.Signal, 1)
	signal.Notify(quits, syscall.SIGQUIT)
	<-quits
	signal.Reset(syscall.SIGQUIT)
	fmt.Fprintln(os.Stderr, "SIGQUIT: all stacks follow")
	_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 2)
	os.Exit(2)
}
