package addon

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"procaas/dsl/diag"
	"procaas/engine/addon"
	"procaas/engine/api/cli"
	"procaas/engine/clock"
	"procaas/handlers/balancer/clusters"
)

const demoBalancerHelp = `demo balancer runs a cluster of stateful workers on this machine, with the balancer
and a proxy in front of them. Each worker is a process. Requests arrive for many keys.
After a while one key becomes hot and overloads its worker. The balancer then moves
partitions until the load is even again, as the Gini index of the loads shows. Callers
do not notice the moves. A worker that you kill restarts after 15 seconds, and other
workers serve its partitions meanwhile. Ctrl-C ends the demo.

With --for the demo ends by itself and prints a summary. The exit code is 0 only when
no request failed. A request that an overloaded worker drops does not count as failed:
the summary has a separate count.`

// clusterDemoOptions are the flags of the demo of the balancer.
type clusterDemoOptions struct {
	workers  int
	capacity float64
	rate     float64
	hotAfter time.Duration
	hotShare float64
	last     time.Duration
	format   string
}

const (
	demoCluster    = "fanout" // its id in the pipelines
	demoPartitions = 64
)

func demo() addon.Demo {
	c := &cobra.Command{
		Use:     "balancer",
		Short:   "See the balancer relieve a hot partition, with real workers",
		Long:    demoBalancerHelp,
		Example: "  procaas demo balancer\n  procaas demo balancer --for 2m --format json",
		Args:    cobra.NoArgs,
	}
	cli.Formerly(c, "demo-balancer")
	var o clusterDemoOptions
	flags := c.Flags()
	flags.IntVar(&o.workers, "workers", 8, "number of workers")
	flags.Float64Var(&o.capacity, "capacity", 140, "requests per second that a worker can serve")
	flags.Float64Var(&o.rate, "rate", 600, "requests per second")
	flags.DurationVar(&o.hotAfter, "hot-after", 40*time.Second, "when one key becomes hot; 0 for never")
	flags.Float64Var(&o.hotShare, "hot-share", 0.17, "share of the requests for the hot key")
	flags.DurationVar(&o.last, "for", 0, "end after this time, with a summary; 0 continues until Ctrl-C")
	format := cli.Format(c, "text", "json")
	return addon.Demo{Command: c, Run: func(ctx context.Context, s cli.Streams, open addon.OpenDemo) error {
		o.format = *format
		switch {
		case o.workers < 2 || o.workers > 100:
			return cli.Usagef("--workers %d: want 2 to 100", o.workers)
		case !(o.rate > 0) || o.rate > 10_000:
			return cli.Usagef("--rate %v: want a number above 0, at most 10000", o.rate)
		case !(o.hotShare >= 0) || o.hotShare > 1:
			return cli.Usagef("--hot-share %v: want 0 to 1", o.hotShare)
		}
		return demoBalancer(ctx, s, o, open)
	}}
}

// demoBalancer runs the demo until ctx ends.
func demoBalancer(ctx context.Context, s cli.Streams, o clusterDemoOptions, open addon.OpenDemo) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	g, working := errgroup.WithContext(ctx)
	workers, err := startWorkers(working, s, g, o)
	if err != nil {
		stop()
		return errors.Join(err, g.Wait())
	}
	node, err := open(working, addon.DemoNode{
		Shipped: "balancer", Files: []diag.File{clusterFile(workers)},
		Flags: map[string]string{"proxy": demoCluster + "=:0", "proxy-patience": "1m"},
	})
	if err != nil {
		stop()
		return errors.Join(err, g.Wait())
	}
	g.Go(func() error { return node.Run(working) })
	load := newKeyLoad("http://"+node.Listening()[0], o)
	if o.format == "text" {
		fmt.Fprintf(s.Out, "%d workers, requests come to %s, the console is at %s\n", o.workers, load.url, node.URL())
		fmt.Fprintf(s.Out, "to break one: kill -9 %d, which is %s; to empty one: procaas balancer lever drain %s --reason trial --server %s\n",
			workers[0].cmd.Process.Pid, workers[0].name, workers[1].name, node.URL())
	}
	g.Go(func() error { load.run(working); return nil })
	g.Go(func() error {
		defer stop()
		return watchCluster(working, s, o, clusters.NewClusters(node.Store(), node.Engine().Bundle, node.Engine().Now), load)
	})
	err = g.Wait()
	if err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	if o.last <= 0 {
		return nil
	}
	return load.conclude(s, o.format)
}

// restartAfter is how long a dead worker stays away. Meanwhile the balancer moves its partitions, so there is
// room on it afterwards.
const restartAfter = 15 * time.Second

// A demoWorker is a worker in a process of its own.
type demoWorker struct {
	name string
	url  string
	cmd  *exec.Cmd
}

// startWorkers starts the processes, and restarts those that die. People kill them to see what happens.
func startWorkers(ctx context.Context, s cli.Streams, g *errgroup.Group, o clusterDemoOptions) ([]*demoWorker, error) {
	var workers []*demoWorker
	for i := range o.workers {
		w := &demoWorker{name: fmt.Sprint("worker-", i+1)}
		if err := w.start(ctx, o, "127.0.0.1:0"); err != nil {
			return nil, err
		}
		workers = append(workers, w)
		kept := *w // a copy, since the process changes while the first one is printed
		g.Go(func() error { return kept.keep(ctx, s, o) })
	}
	return workers, nil
}

// start starts the process and reads its address.
func (w *demoWorker) start(ctx context.Context, o clusterDemoOptions, listen string) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	w.cmd = exec.CommandContext(ctx, program, "demo-worker", "--listen", listen, "--name", w.name, "--cluster", demoCluster,
		"--partitions", fmt.Sprint(demoPartitions), "--capacity", fmt.Sprint(o.capacity), "--cold", "2", "--cold-time", "5s")
	w.cmd.WaitDelay = 5 * time.Second
	out, err := w.cmd.StdoutPipe()
	if err == nil {
		err = w.cmd.Start()
	}
	if err != nil {
		return fmt.Errorf("start %s: %w", w.name, err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		return errors.Join(fmt.Errorf("%s does not tell its address", w.name), w.cmd.Wait())
	}
	w.url = strings.TrimSpace(lines.Text())
	return nil
}

// keep restarts the process at its address whenever it has ended.
func (w *demoWorker) keep(ctx context.Context, s cli.Streams, o clusterDemoOptions) error {
	for {
		err := w.cmd.Wait()
		if ctx.Err() != nil {
			return nil // it was stopped
		}
		if o.format == "text" {
			why := "by itself"
			if err != nil {
				why = err.Error()
			}
			fmt.Fprintf(s.Out, "%s has ended: %s; it starts again in %s\n", w.name, why, restartAfter)
		}
		if !clock.Pause(ctx, restartAfter) {
			return nil
		}
		if err := w.start(ctx, o, strings.TrimPrefix(w.url, "http://")); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		if o.format == "text" {
			fmt.Fprintf(s.Out, "%s is back, as process %d\n", w.name, w.cmd.Process.Pid)
		}
	}
}

// clusterFile is the file of the cluster with these workers.
func clusterFile(workers []*demoWorker) diag.File {
	var text strings.Builder
	fmt.Fprintf(&text, "clusters:\n  - id: %s\n    partitions: %d\n    key: path:2\n    map: {rule: zone, replicas: 4}\n    workers:\n",
		demoCluster, demoPartitions)
	for i, w := range workers {
		fmt.Fprintf(&text, "      - {id: %s, url: %q, zone: %c}\n", w.name, w.url, 'a'+i%3)
	}
	return diag.File{Name: "cluster.yaml", Data: []byte(text.String())}
}

// watchEvery is how often the demo prints the state of the cluster.
const watchEvery = 2 * time.Second

// watchCluster prints the state of the cluster until the demo ends.
func watchCluster(ctx context.Context, s cli.Streams, o clusterDemoOptions, c *clusters.Clusters, load *keyLoad) error {
	began, before := time.Now(), keyCounts{}
	for clock.Pause(ctx, watchEvery) {
		status, err := c.ClusterStatus(ctx, demoCluster)
		if err != nil {
			if ctx.Err() != nil {
				break
			}
			return err
		}
		now := load.counts()
		load.gini(status.State.Gini)
		if o.format == "text" {
			busy := 0.0
			for _, w := range status.State.Workers {
				busy = max(busy, w.Busy)
			}
			sent := now.Requests - before.Requests
			fmt.Fprintf(s.Out, "%4.0f s  %4.0f requests/s  %5.2f %% dropped  Gini %.2f  busiest worker %3.0f %%  %d moves  version %d%s\n",
				time.Since(began).Seconds(), float64(sent)/watchEvery.Seconds(), 100*float64(now.Dropped-before.Dropped)/float64(max(1, sent)),
				status.State.Gini, 100*busy, status.State.Moves, status.Assignment.Version, load.news())
		}
		before = now
		if o.last > 0 && time.Since(began) >= o.last {
			break
		}
	}
	status, err := c.ClusterStatus(context.WithoutCancel(ctx), demoCluster)
	if err == nil {
		load.moved(status.State.Moves)
	}
	return err
}
