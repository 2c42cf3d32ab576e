// Command procaas-bench measures what durability costs, beside programs that are
// written by hand for the same work, in one run on one machine:
//
//	go run ./cmd/procaas-bench
//
// A flow is three POSTs, one after the other, to a service that does nothing, with
// progress durable after each. The contestants are
//
//	naive     a loop: POST, write one row, commit
//	grouped   the same; the rows of many flows share a commit
//	procaas   the engine: three request handlers on PostgreSQL
//
// The parts queue-… measure the queue of tasks, beside a loop that is written by hand.
//
// Rounds of all contestants alternate, and medians are shown, so that whatever
// else the machine does falls on all alike. Compare ratios; absolute figures are
// the machine's.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strings"
	"time"

	"procaas/engine/enginetest"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == serviceArg {
		serve()
		return
	}
	o := options{}
	only := ""
	flag.StringVar(&only, "only", "flows,latency,accept,backlog,idle", "what to measure")
	flag.StringVar(&o.dsn, "dsn", "", "a PostgreSQL for this alone; a private one is started when it is left out")
	flag.StringVar(&o.match, "contestants", "", "measure only the contestants of these names, separated by semicolons")
	flag.IntVar(&o.flows, "flows", 6000, "flows of one contestant in one round")
	flag.IntVar(&o.rounds, "rounds", 5, "rounds")
	flag.IntVar(&o.backlog, "backlog", 100_000, "waiting events that are drained")
	flag.IntVar(&o.tasks, "tasks", 100_000, "tasks of one measurement of the queue")
	flag.IntVar(&o.cancelled, "cancelled", 500_000, "tasks that are cancelled beside others, for queue-hindered")
	flag.IntVar(&o.crowd, "crowd", 1_000_000, "scheduled tasks, and as many of low priority, beside which urgent ones are measured")
	flag.IntVar(&o.pass, "pass", 1_000_000, "tasks that pass for queue-bloat")
	flag.DurationVar(&o.span, "span", 4*time.Second, "of one measurement at a fixed rate")
	flag.StringVar(&o.profile, "cpuprofile", "", "write a CPU profile of this process to a file")
	flag.StringVar(&o.allocs, "memprofile", "", "write a profile of what this process has allocated to a file")
	flag.Parse()
	if o.allocs != "" {
		runtime.MemProfileRate = 4 << 10
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400) // as in procaas serve, for all contestants
	}
	o.only = strings.Split(only, ",")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "procaas-bench:", err)
		os.Exit(1)
	}
}

type options struct {
	only      []string
	match     string
	dsn       string
	flows     int
	rounds    int
	backlog   int
	tasks     int
	cancelled int
	crowd     int
	pass      int
	span      time.Duration
	profile   string
	allocs    string
}

// parts are the measurements, in order.
var parts = []struct {
	name    string
	measure func(context.Context, *bench) error
}{
	{"flows", measureFlows},
	{"latency", measureLatency},
	{"accept", measureAccept},
	{"backlog", measureBacklog},
	{"idle", measureIdle},
	{"queue-drain", measureQueueDrain},
	{"queue-hindered", measureQueueHindered},
	{"queue-put", measureQueuePut},
	{"queue-latency", measureQueueLatency},
	{"queue-bloat", measureQueueBloat},
}

// A bench is what all measurements share.
type bench struct {
	options
	out     io.Writer
	service string // URL of the no-op service
	server  *server
}

func run(ctx context.Context, o options, out io.Writer) (err error) {
	b := &bench{options: o, out: out}
	if b.dsn == "" {
		cluster, err := enginetest.StartPostgres(ctx)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, cluster.Stop()) }()
		b.dsn = cluster.URL
	}
	service, err := startService()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, service.stop()) }()
	b.service = service.url
	if b.server, err = findServer(ctx, b.dsn); err != nil {
		return err
	}
	fmt.Fprintln(out, b.server.about)
	if o.profile != "" {
		f, err := os.Create(o.profile)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	if o.allocs != "" {
		f, err := os.Create(o.allocs)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, pprof.Lookup("allocs").WriteTo(f, 0), f.Close()) }()
	}
	for _, name := range o.only {
		found := false
		for _, p := range parts {
			if p.name != name {
				continue
			}
			found = true
			fmt.Fprintln(out)
			if err := p.measure(ctx, b); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		if !found {
			known := make([]string, len(parts))
			for i, p := range parts {
				known[i] = p.name
			}
			return fmt.Errorf("want measurements out of %s, have %q", strings.Join(known, ", "), name)
		}
	}
	return nil
}
