package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"procaas/cmd/procaas/internal/cli"
	"procaas/cmd/procaas/internal/serve"
	"procaas/cmd/procaas/internal/serve/web"
	"procaas/engine/api/transport"
	"procaas/handlers/balancer/handoff/reference"
)

func demoWorkerCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "demo-worker",
		Short: "Serve partitions of a cluster, as the balancer says",
		Long: `demo-worker is a reference worker: it serves the partitions that the balancer gives
it, keeps a little state of them in memory, takes part in the hand-off of partitions,
and answers healthchecks. A request to a cold partition is more work than one to a
warm partition, and what is over its capacity is dropped.

  GET  /keys/KEY       a request for a key; so is any path with the header Procaas-Partition
  GET  /healthcheck    how the worker does
  GET  /ping           that it lives
  GET  /handoff        what it holds; POST /handoff/{prepare,warm,take,release} are orders

SIGTERM lets the balancer know that the worker stops. It ends when all its partitions
are elsewhere, or after --drain. With --token-file it follows only orders that have the
token, which clusters: in the balancer's files names as secret:. Requests and
healthchecks need none, and so it serves this machine only.`,
		Example: "  procaas demo-worker --name w1 --listen 127.0.0.1:9101 --cluster fanout --partitions 64",
		Args:    cobra.NoArgs,
	}
	o := reference.DefaultOptions()
	flags := c.Flags()
	listen := flags.String("listen", "127.0.0.1:0", "address of this machine; port 0 takes a free one, which is shown")
	flags.StringVar(&o.ID, "name", o.ID, "name of the worker in its answers")
	flags.StringVar(&o.Cluster, "cluster", o.Cluster, "id of the cluster")
	flags.IntVar(&o.Partitions, "partitions", o.Partitions, "how many partitions the cluster has")
	flags.Float64Var(&o.Capacity, "capacity", o.Capacity, "requests to warm partitions that it serves in a second")
	flags.Float64Var(&o.Cold, "cold", o.Cold, "how many times as much work a request to a cold partition is")
	flags.DurationVar(&o.ColdTime, "cold-time", o.ColdTime, "time in which a partition gets warm, by two thirds")
	flags.DurationVar(&o.Window, "window", o.Window, "time over which the healthcheck counts")
	tokenFile := flags.String("token-file", "", "file with the bearer token that orders must have")
	drain := flags.Duration("drain", 10*time.Second, "time that the balancer gets to move the partitions when the worker stops")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if !transport.Loopback(*listen) {
			return cli.Usagef("--listen %s can be reached from outside, and a demo-worker serves whoever calls it; listen on 127.0.0.1", *listen)
		}
		if err := o.Check(); err != nil {
			return cli.Usage(err)
		}
		if *tokenFile != "" {
			data, err := os.ReadFile(*tokenFile)
			if err != nil {
				return cli.Usagef("--token-file: %w", err)
			}
			if o.Token = strings.TrimSpace(string(data)); o.Token == "" {
				return cli.Usagef("--token-file %s: the file is empty", *tokenFile)
			}
		}
		return serveDemoWorker(c.Context(), cli.Of(c), o, *listen, *drain)
	}
	return c
}

func serveDemoWorker(ctx context.Context, s cli.Streams, o reference.Options, listen string, drain time.Duration) error {
	log, err := serve.NewLogger(s, "auto", "info")
	if err != nil {
		return err
	}
	f, err := web.Listen(ctx, listen, log, transport.Server)
	if err != nil {
		return err
	}
	w := reference.New(o)
	defer w.Close()
	f.Start(w.Handler())
	if _, err := fmt.Fprintf(s.Out, "http://%s\n", f.Addr()); err != nil {
		return errors.Join(err, f.Close())
	}
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	go func() {
		defer stop()
		<-ctx.Done()
		drainWorker(w, log, drain)
	}()
	return f.Run(serving)
}

// drainWorker waits until the balancer has moved all partitions, for a time.
func drainWorker(w *reference.Worker, log *slog.Logger, patience time.Duration) {
	w.Drain()
	log.Info("draining", "partitions", w.Holds(), "patience", patience)
	over := time.NewTimer(patience)
	defer over.Stop()
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for w.Holds() > 0 {
		select {
		case <-look.C:
		case <-over.C:
			log.Warn("stopping with partitions that are still here", "partitions", w.Holds())
			return
		}
	}
}
