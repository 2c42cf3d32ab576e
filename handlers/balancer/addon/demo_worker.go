package addon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"procaas/dsl/urls"
	"procaas/engine/api/cli"
	"procaas/engine/api/transport"
	"procaas/engine/api/web"
	"procaas/handlers/balancer/handoff/reference"
)

func demoWorkerCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "demo-worker",
		GroupID: "serve",
		Short:   "Serve the partitions that the balancer assigns",
		Long: `demo-worker is a reference worker. It serves the partitions that the balancer assigns
and keeps a little state of them in memory. It takes part in the hand-off of
partitions and answers healthchecks. A request to a cold partition costs more work
than one to a warm partition. The worker drops requests beyond its capacity.

  GET  /keys/KEY       a request for a key; so is any path with the header Procaas-Partition
  GET  /healthcheck    the load of the worker
  GET  /ping           whether it is alive
  GET  /handoff        what it holds; POST /handoff/{prepare,warm,take,release} are orders

SIGTERM announces to the balancer that the worker stops. The worker ends when other
workers have all its partitions, or after --drain.

With --token-file the worker obeys only orders that carry the token. The balancer's
files name that token as secret: of the cluster. Requests and healthchecks need no
token, so the worker listens on this machine only.`,
		Example: "  procaas demo-worker --name w1 --listen 127.0.0.1:9101 --cluster fanout --partitions 64",
		Args:    cobra.NoArgs,
	}
	o := reference.DefaultOptions()
	flags := c.Flags()
	listen := flags.String("listen", "127.0.0.1:0", "address on this machine; port 0 takes a free port and prints it")
	flags.StringVar(&o.ID, "name", o.ID, "name of the worker in its answers")
	flags.StringVar(&o.Cluster, "cluster", o.Cluster, "id of the cluster")
	flags.IntVar(&o.Partitions, "partitions", o.Partitions, "how many partitions the cluster has")
	flags.Float64Var(&o.Capacity, "capacity", o.Capacity, "requests per second to warm partitions that it can serve")
	flags.Float64Var(&o.Cold, "cold", o.Cold, "cost of a request to a cold partition, compared with a warm one")
	flags.DurationVar(&o.ColdTime, "cold-time", o.ColdTime, "time until a partition is two thirds warm")
	flags.DurationVar(&o.Window, "window", o.Window, "time window of the healthcheck")
	tokenFile := flags.String("token-file", "", "file with the bearer token that orders must carry")
	drain := flags.Duration("drain", 10*time.Second, "how long a stopping worker waits until its partitions have moved")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if _, _, err := net.SplitHostPort(*listen); err != nil {
			return cli.ListenError("listen", *listen, err)
		}
		if !urls.OnlyThisMachine(*listen) {
			return cli.Usagef("--listen %s can be reached from outside, and a demo-worker serves whoever calls it; listen on "+
				"127.0.0.1", *listen)
		}
		if err := o.Check(); err != nil {
			return cli.Usage(err)
		}
		if *tokenFile != "" {
			data, err := os.ReadFile(*tokenFile)
			if err != nil {
				return cli.Usagef("--token-file: %w", err)
			}
			o.Token = strings.TrimSpace(string(data))
			if o.Token == "" {
				return cli.Usagef("--token-file %s: the file is empty", *tokenFile)
			}
		}
		return serveDemoWorker(c.Context(), cli.Of(c), o, *listen, *drain)
	}
	return c
}

func serveDemoWorker(ctx context.Context, s cli.Streams, o reference.Options, listen string, drain time.Duration) error {
	log, err := cli.NewLogger(s, "auto", "info")
	if err != nil {
		return err
	}
	f, err := web.Listen(ctx, listen, log, transport.Server)
	if err != nil {
		return cli.ListenError("listen", listen, err)
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

// drainWorker waits until the balancer has moved all partitions, at most for patience.
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
