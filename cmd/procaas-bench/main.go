// Command procaas-bench measures the cost of durability. It compares procaas with programs that are written by hand for
// the same work, in one run on one machine:
//
//	make build && go run ./cmd/procaas-bench
//
// A flow is three POSTs, one after the other, to a service that does nothing. Progress is durable after each. The
// contestants are:
//
//	naive     a loop: POST, write one row, commit
//	grouped   the same, but the rows of many flows share a commit
//	procaas   the built binary with the defaults of serve: one POST for each event, three request
//	          handlers, PostgreSQL or SQLite. 64 flows are in flight if 64 have not made their last
//	          call. The clock stops when the store has all runs as succeeded. If the result is
//	          awaited, each event is posted with ?wait=, and its flow ends with the reply
//
// Short tries before the rounds choose the best number of connections for programs by hand, and the best number of
// workers and size of claims for loops.
//
// The contestants "in process" work without the binary and HTTP, which shows the cost of intake. The part recovery kills
// the built binary with kill -9. The part console loads each page beside many runs. The part around measures what a node
// does beside its flows: metrics, open tabs, parked runs and its start. The part inbox spreads the keys over several
// PostgreSQL servers, and moves them. The parts queue-… measure the queue of tasks, beside loops that are written by hand.
// The part fairness measures rare events beside floods of others.
//
// Tables show figures per flow, event or task: the processor time of the client, of the program and of PostgreSQL, and
// the bytes of PostgreSQL's write-ahead log. A program that is written by hand is its own client.
//
// Rounds of all contestants alternate, and tables show medians. So other work of the machine affects all alike. Compare
// ratios, since absolute figures depend on the machine.
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
	"slices"
	"strings"
	"time"

	"procaas/engine/enginetest/cluster"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == serviceArg {
		serve()
		return
	}
	o, err := parse(os.Args[1:], os.Stdout)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "procaas-bench:", err)
		os.Exit(exitUsage)
	}
	if o.allocs != "" {
		runtime.MemProfileRate = 4 << 10
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400) // as in procaas serve, for all contestants
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "procaas-bench:", err)
		os.Exit(exitBroken)
	}
}

// The exit codes other than 0, as those of procaas.
const (
	exitUsage  = 2
	exitBroken = 3
)

// defaultOptions are the options of a run without flags.
func defaultOptions() options {
	return options{
		binary: "bin/procaas", flows: 6000, rounds: 5, backlog: 100_000, tasks: 100_000, cancelled: 500_000, crowd: 1_000_000, pass: 1_000_000,
		span: 4 * time.Second,
	}
}

// A choice has the flags that are lists of names.
type choice struct{ only, match, figures string }

// flagSet returns the flags of options, whose present values are the defaults.
func (o *options) flagSet(c *choice) *flag.FlagSet {
	f := flag.NewFlagSet("procaas-bench", flag.ContinueOnError)
	f.SetOutput(io.Discard) // main prints the error
	f.StringVar(&c.only, "only", "flows,latency,recovery,accept,backlog,idle", "what to measure, out of "+strings.Join(partNames(), ","))
	f.StringVar(&o.dsn, "dsn", o.dsn, "a PostgreSQL for this alone, whose schemas are dropped; a private one is started when it is left out")
	f.StringVar(&c.match, "contestants", "", "measure only the `names` of flows, latency and queue-drain, separated by semicolons: "+
		strings.Join(contestantNames(), ";"))
	f.StringVar(&o.binary, "binary", o.binary, "the built procaas `file`, which make build makes")
	f.StringVar(&o.beside, "beside", o.beside, "an earlier procaas `file`, which is measured in turns with -binary; a table of both ends the output")
	f.StringVar(&c.figures, "figures", "", "measure `groups` of figures and write them to the pages, all or some of: "+
		strings.Join(groupNames(), " ")+". Each has its own rounds and sizes, unless flags set them")
	f.IntVar(&o.procs, "procs", o.procs, "GOMAXPROCS of each measured node; 0 for all processors")
	f.IntVar(&o.flows, "flows", o.flows, "flows of one contestant in one round")
	f.IntVar(&o.rounds, "rounds", o.rounds, "rounds, of which medians are shown; a shorter one before them is not counted")
	f.IntVar(&o.backlog, "backlog", o.backlog, "waiting events that are drained; runs that pages of the console and parked ones are measured with")
	f.IntVar(&o.tasks, "tasks", o.tasks, "tasks of one measurement of the queue")
	f.IntVar(&o.cancelled, "cancelled", o.cancelled, "tasks that are cancelled beside others, for queue-hindered")
	f.IntVar(&o.crowd, "crowd", o.crowd, "scheduled tasks, and as many of low priority, beside which urgent ones are measured; delayed events, for backlog; waiting runs that move, for inbox")
	f.IntVar(&o.pass, "pass", o.pass, "tasks that pass for queue-bloat")
	f.DurationVar(&o.span, "span", o.span, "length of one measurement at a fixed rate")
	f.StringVar(&o.profile, "cpuprofile", o.profile, "write a CPU profile of this process to a `file`")
	f.StringVar(&o.allocs, "memprofile", o.allocs, "write a profile of what this process has allocated to a `file`")
	return f
}

// parse reads the flags. It refuses invalid ones before minutes of measurements.
func parse(args []string, help io.Writer) (options, error) {
	o, c := defaultOptions(), choice{}
	f := o.flagSet(&c)
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(help, "procaas-bench measures what durability costs, beside programs written by hand. Compare ratios; absolute figures "+
				"are the machine's.")
			f.SetOutput(help)
			f.PrintDefaults()
		}
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("want flags only, have %q", f.Arg(0))
	}
	if min(o.flows, o.rounds, o.backlog, o.tasks, o.cancelled, o.crowd, o.pass) < 1 || o.span <= 0 || o.procs < 0 {
		return o, errors.New("want all counts and -span greater than 0, and -procs not below it")
	}
	var err error
	if o.only, err = choose("-only", c.only, ",", partNames()); err != nil {
		return o, err
	}
	if c.match != "" {
		if o.match, err = choose("-contestants", c.match, ";", contestantNames()); err != nil {
			return o, err
		}
	}
	if c.figures == "" {
		return o, nil
	}
	if o.beside != "" || o.match != nil {
		return o, errors.New("-figures: want neither -beside nor -contestants, since pages compare the same programs each time")
	}
	o.groups, err = chooseGroups(c.figures, f)
	return o, err
}

// choose splits a list of names. It refuses unknown ones.
func choose(name, list, sep string, known []string) ([]string, error) {
	chosen := strings.Split(list, sep)
	for _, c := range chosen {
		if !slices.Contains(known, c) {
			return nil, fmt.Errorf("%s: want some of %s, have %q", name, strings.Join(known, sep), c)
		}
	}
	return chosen, nil
}

func partNames() []string {
	var names []string
	for _, p := range parts {
		names = append(names, p.name)
	}
	return names
}

// parts are the measurements in order.
var parts = []struct {
	name    string
	measure func(context.Context, *bench) error
}{
	{"flows", measureFlows},
	{"latency", measureLatency},
	{"recovery", measureRecovery},
	{"accept", measureAccept},
	{"backlog", measureBacklog},
	{"idle", measureIdle},
	{"cores", measureCores},
	{"runs", measureRuns},
	{"definitions", measureDefinitions},
	{"waits", measureWaits},
	{"around", measureAround},
	{"console", measureConsole},
	{"fairness", measureFairness},
	{"expressions", measureExpressions},
	{"inbox", measureInbox},
	{"queue-drain", measureQueueDrain},
	{"queue-hindered", measureQueueHindered},
	{"queue-put", measureQueuePut},
	{"queue-latency", measureQueueLatency},
	{"queue-bloat", measureQueueBloat},
}

func run(ctx context.Context, o options, out io.Writer) (err error) {
	b := &bench{options: o, out: out, found: &findings{}}
	if b.dsn == "" {
		server, err := cluster.Start(ctx)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, server.Stop()) }()
		b.dsn = server.URL
	}
	service, err := startService()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, service.stop()) }()
	b.service = service
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
	if o.groups != nil {
		return measureGroups(ctx, b)
	}
	if err := b.measure(ctx); err != nil {
		return err
	}
	if b.beside != "" {
		fmt.Fprintf(out, "\nall figures, with %s before\n", b.beside)
		b.report("")
	}
	return nil
}

// measure measures the chosen parts.
func (b *bench) measure(ctx context.Context) error {
	for _, p := range parts {
		if !slices.Contains(b.only, p.name) {
			continue
		}
		fmt.Fprintln(b.out)
		if err := p.measure(ctx, b); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}
