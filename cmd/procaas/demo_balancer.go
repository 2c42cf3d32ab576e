package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"procaas/dsl"
	"procaas/engine"
	"procaas/pipelines"
)

const demoBalancerHelp = `demo-balancer runs a cluster of stateful workers on this machine, each a process of its
own, with the balancer that procaas ships and a proxy before them. Requests come for
many keys. After a while one key gets hot, and its worker has too much to do: the
balancer moves partitions until the load is even again, which the Gini index of the
workers' loads shows. Moves are invisible to the callers. Ctrl-C ends it.

With --for it ends by itself, with a summary; the exit code is 0 only when no
request has failed. Requests that a worker drops, since it has too much to do, have
not failed: they are counted besides.`

// clusterDemoOptions are the flags of the demo of the balancer.
type clusterDemoOptions struct {
	node     nodeFlags
	workers  int
	capacity float64
	rate     float64
	hotAfter time.Duration
	hotShare float64
	last     time.Duration
	format   string
}

const (
	demoCluster    = "fanout" // as the pipelines call it
	demoPartitions = 64
)

func demoBalancerCommand(s streams) *cobra.Command {
	c := &cobra.Command{
		Use:     "demo-balancer",
		Short:   "See a balancer calm a hot partition, with real workers",
		Long:    demoBalancerHelp,
		Example: "  procaas demo-balancer\n  procaas demo-balancer --for 2m --format json",
		Args:    cobra.NoArgs,
	}
	var o clusterDemoOptions
	o.node.add(c, "")
	flags := c.Flags()
	flags.IntVar(&o.workers, "workers", 8, "how many workers there are")
	flags.Float64Var(&o.capacity, "capacity", 140, "requests that a worker serves in a second")
	flags.Float64Var(&o.rate, "rate", 600, "requests in a second")
	flags.DurationVar(&o.hotAfter, "hot-after", 40*time.Second, "when a key gets hot; 0 for never")
	flags.Float64Var(&o.hotShare, "hot-share", 0.17, "which share of the requests is for that key then")
	flags.DurationVar(&o.last, "for", 0, "end after this time, with a summary; 0 goes on until Ctrl-C")
	format := formatFlag(c, "text", "json")
	c.RunE = func(c *cobra.Command, _ []string) error {
		var err error
		if o.format, err = format(); err != nil {
			return err
		}
		switch {
		case o.workers < 2 || o.workers > 100:
			return usagef("--workers %d: want 2 to 100", o.workers)
		case !(o.rate > 0) || o.rate > 10_000:
			return usagef("--rate %v: want a number above 0, at most 10000", o.rate)
		case !(o.hotShare >= 0) || o.hotShare > 1:
			return usagef("--hot-share %v: want 0 to 1", o.hotShare)
		}
		if !c.Flags().Changed("listen") && !free(o.node.listen) {
			o.node.listen = "127.0.0.1:0"
		}
		if !c.Flags().Changed("log-level") {
			o.node.logLevel = "error"
		}
		return demoBalancer(c.Context(), s, o)
	}
	return c
}

// demoBalancer starts everything, and ends it again.
func demoBalancer(ctx context.Context, s streams, o clusterDemoOptions) error {
	forget, err := o.node.scratchStore()
	if err != nil {
		return err
	}
	defer forget()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	g, working := errgroup.WithContext(ctx)
	urls, err := startWorkers(working, g, o)
	if err != nil {
		stop()
		return errors.Join(err, g.Wait())
	}
	node, err := openDemoNode(working, s, o, urls)
	if err != nil {
		stop()
		return errors.Join(err, g.Wait())
	}
	g.Go(func() error { return node.run(working) })
	load := newKeyLoad("http://"+node.proxies.all[0].front.listener.Addr().String(), o)
	if o.format == "text" {
		fmt.Fprintf(s.out, "%d workers, requests come to %s, the console is at %s\n", o.workers, load.url, node.url())
	}
	g.Go(func() error { load.run(working); return nil })
	g.Go(func() error {
		defer stop()
		return watchCluster(working, s, o, node.engine, load)
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

// startWorkers starts the processes, and gives their addresses.
func startWorkers(ctx context.Context, g *errgroup.Group, o clusterDemoOptions) ([]string, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var urls []string
	for i := range o.workers {
		c := exec.CommandContext(ctx, program, "demo-worker", "--listen", "127.0.0.1:0", "--name", fmt.Sprint("worker-", i+1),
			"--cluster", demoCluster, "--partitions", fmt.Sprint(demoPartitions), "--capacity", fmt.Sprint(o.capacity), "--cold", "2", "--cold-time", "5s")
		c.WaitDelay = 5 * time.Second
		out, err := c.StdoutPipe()
		if err == nil {
			err = c.Start()
		}
		if err != nil {
			return nil, fmt.Errorf("start a worker: %w", err)
		}
		lines := bufio.NewScanner(out)
		found := lines.Scan()
		g.Go(func() error {
			err := c.Wait()
			if ctx.Err() != nil {
				return nil // it was told to end
			}
			return fmt.Errorf("worker %d has ended: %w", i+1, errors.Join(err, errors.New("it was to go on")))
		})
		if !found {
			return nil, fmt.Errorf("worker %d does not tell its address", i+1)
		}
		urls = append(urls, strings.TrimSpace(lines.Text()))
	}
	return urls, nil
}

// openDemoNode makes a node with the pipelines of the balancer, whose workers are these.
func openDemoNode(ctx context.Context, s streams, o clusterDemoOptions, urls []string) (*node, error) {
	shipped, err := fs.Sub(pipelines.Files, "balancer")
	if err != nil {
		return nil, err
	}
	files, err := readFS(shipped, func(name string) bool { return isPipelineFile(name) && filepath.Base(name) != "cluster.yaml" })
	if err != nil {
		return nil, err
	}
	var cluster strings.Builder
	fmt.Fprintf(&cluster, "clusters:\n  - id: %s\n    partitions: %d\n    key: path:2\n    map: {rule: zone, replicas: 4}\n    workers:\n", demoCluster, demoPartitions)
	for i, url := range urls {
		fmt.Fprintf(&cluster, "      - {id: worker-%d, url: %q, zone: %c}\n", i+1, url, 'a'+i%3)
	}
	files = append(files, dsl.File{Name: "cluster.yaml", Data: []byte(cluster.String())})
	bundle, err := checkBundle(s, files, dsl.Options{})
	if err != nil {
		return nil, err
	}
	o.node.proxy = proxyFlags{addresses: map[string]string{demoCluster: ":0"}, patience: time.Minute, replay: "1MiB"}
	return openNode(ctx, s, o.node, bundle)
}

// watchEvery is how often the demo tells how the cluster is.
const watchEvery = 2 * time.Second

// watchCluster shows the cluster until the demo ends.
func watchCluster(ctx context.Context, s streams, o clusterDemoOptions, e *engine.Engine, load *keyLoad) error {
	began, before := time.Now(), keyCounts{}
	for sleep(ctx, watchEvery) {
		status, err := e.ClusterStatus(ctx, demoCluster)
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
			fmt.Fprintf(s.out, "%4.0f s  %4.0f requests/s  %5.2f %% dropped  Gini %.2f  busiest worker %3.0f %%  %d moves  version %d%s\n",
				time.Since(began).Seconds(), float64(sent)/watchEvery.Seconds(), 100*float64(now.Dropped-before.Dropped)/float64(max(1, sent)),
				status.State.Gini, 100*busy, status.State.Moves, status.Assignment.Version, load.news())
		}
		before = now
		if o.last > 0 && time.Since(began) >= o.last {
			break
		}
	}
	status, err := e.ClusterStatus(context.WithoutCancel(ctx), demoCluster)
	if err == nil {
		load.moved(status.State.Moves)
	}
	return err
}
