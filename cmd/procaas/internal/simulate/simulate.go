// Package simulate has the commands that try policies in virtual time.
package simulate

import (
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"procaas/cmd/procaas/internal/source"
	"procaas/dsl"
	"procaas/dsl/diag"
	"procaas/dsl/tree"
	"procaas/engine/api/cli"
	"procaas/engine/simulate"
)

// Command has no work of its own. Without a kind it fails and lists the kinds, so that a script that forgot the
// kind does not continue.
func Command() *cobra.Command {
	c := &cobra.Command{
		Use:   "simulate KIND",
		Short: "Try a policy in virtual time before you deploy it",
		Long: `simulate shows in virtual time what a policy does when something breaks. The same
seed produces the same result. Only backoff --real uses real connections and real time.`,
		Args: cli.OnlySubcommands,
		RunE: func(c *cobra.Command, _ []string) error {
			var kinds []string
			for _, kind := range c.Commands() {
				kinds = append(kinds, kind.Name())
			}
			return cli.Usagef("want a kind of simulation, one of %s\n\n%s", strings.Join(kinds, ", "), strings.TrimSpace(c.UsageString()))
		},
	}
	c.AddCommand(backoffCommand(), degradationCommand())
	return c
}

// backoffCommand compares built-in policies with those of the user's files.
func backoffCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "backoff",
		Short: "Show whether a service recovers while its clients retry",
		Long: `backoff lets many clients call a service, stops the service for a while, and shows
for each retry policy whether the service recovers. An overloaded service answers too
late, and works for clients that have left. If they retry too soon, it never recovers.
The last line of the result is for events that wait in an inbox: an adaptive limit of
the service lets them through.

The service has recovered when 95 of 100 attempts get an answer in time and fewer
than 15 of 100 clients still retry, until the end. With --seeds each policy runs with
that many seeds. Then recovered, recovered_runs and time_to_recover_s count all runs,
and the other numbers are those of the first run.

--fault brownout makes each request take 20 times as long instead of stopping the
service. refused lets the service refuse connections at once. spike brings 20 times
as many clients.

--abandon lets clients that leave close their socket. Requests in the backlog still
reach the service, but the network no longer tries to connect for these clients.
Without it, the network keeps trying in the background, as Go's dialer does.

--policy adds a policy to the comparison: the retry of a handler in your files,
FILE#pipeline/stage/handler, or the fields themselves, {factor: 3, jitter: full}.
As in a file, a policy without attempts gives up after 3 attempts. attempts: 0 never
gives up, and neither do the built-in policies.

--real also runs each policy over real connections: an HTTP server and its clients on
the loopback interface of this machine, in real time, one policy after the other. The
results are beside the simulated ones, and --svg draws both curves. With --real, the
times are --before 10s --outage 10s --after 30s unless you set them: 200 s for the
built-in policies. A real run is limited to 5000 clients, 10 minutes, and 20000 attempts
from the outage on, because their connections may all stay open. If the process cannot
open as many files, take fewer clients. The inbox with an adaptive limit is simulated only.
--seeds counts simulated runs only.`,
		Example: "  procaas simulate backoff\n" +
			"  procaas simulate backoff --policy flows/orders.yaml#new-order/notify/push --outage 20s\n" +
			"  procaas simulate backoff --policy '{min-delay: 1s, jitter: full, attempts: 0}' --svg backoff.svg\n" +
			"  procaas simulate backoff --fault brownout --seeds 20\n" +
			"  procaas simulate backoff --real --svg backoff.svg",
		Args: cobra.NoArgs,
	}
	scenario := scenarioFlags(c)
	policies := c.Flags().StringArray("policy", nil, "one more policy: FILE#pipeline/stage/handler, or fields of retry in braces")
	svg := c.Flags().String("svg", "", "also draw goodput, concurrency and the delays of each policy into this file")
	seeds := cli.SeedsFlag(c)
	connect := c.Flags().Bool("real", false, "also run the policies over real connections on this machine, in real time")
	format := cli.Format(c, "text", "json")
	c.RunE = func(c *cobra.Command, _ []string) error {
		s := cli.Of(c)
		if err := cli.CheckSeeds(*seeds); err != nil {
			return err
		}
		if *connect {
			shorten(c, scenario)
		}
		if err := scenario.Check(); err != nil {
			return cli.Usage(err)
		}
		all := simulate.Policies()
		for _, text := range *policies {
			p, err := readPolicy(s, text)
			if err != nil {
				return err
			}
			all = append(all, p)
		}
		if !*connect {
			report := simulate.Compare(*scenario, all, *seeds)
			return cli.ShowReport(s, report, *format, *svg, report.WriteSVG, true)
		}
		if err := scenario.CheckReal(); err != nil {
			return cli.Usage(err)
		}
		report, err := simulate.CompareReal(c.Context(), *scenario, all, *seeds)
		if err != nil {
			return err
		}
		return cli.ShowReport(s, report, *format, *svg, report.WriteSVG, true)
	}
	return c
}

// shorten gives a scenario the times of a real run, unless the caller has set them.
func shorten(c *cobra.Command, s *simulate.Scenario) {
	for name, short := range map[string]struct {
		into *time.Duration
		d    time.Duration
	}{
		"before": {&s.Before, 10 * time.Second}, "outage": {&s.Outage, 10 * time.Second}, "after": {&s.After, 30 * time.Second},
	} {
		if !c.Flags().Changed(name) {
			*short.into = short.d
		}
	}
}

// degradationCommand tries a fallback in all faults.
func degradationCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "degradation",
		Short: "Show when a fallback takes a handler out, and when it brings it back",
		Long: `degradation simulates a handler with a fallback under several kinds of trouble. In
some the fallback must take the handler out, in others it must not. The result shows
how long that takes, how many calls are made in vain, and how many skipped calls
would have succeeded. The code that decides is that of the engine.

With --seeds each kind of trouble runs with that many seeds. The result shows in how
many of them the handler went out. The other numbers are those of the first seed.

--fallback is the fallback of a handler in your files, FILE#pipeline/stage/handler, or
the fields themselves, {window: 1m, min-success-ratio: 0.8}.`,
		Example: "  procaas simulate degradation --rate 0.2\n" +
			"  procaas simulate degradation --fallback flows/orders.yaml#new-order/notify/push --rate 40",
		Args: cobra.NoArgs,
	}
	fallback := c.Flags().String("fallback", "{}", "FILE#pipeline/stage/handler, or fields of fallback in braces")
	rate := c.Flags().Float64("rate", 5, "calls of the handler per second, on all nodes together")
	seed := c.Flags().Uint64("seed", 1, "seed of the random numbers")
	seeds := cli.SeedsFlag(c)
	format := cli.Format(c, "text", "json")
	c.RunE = func(c *cobra.Command, _ []string) error {
		s := cli.Of(c)
		if err := cli.CheckSeeds(*seeds); err != nil {
			return err
		}
		if err := simulate.CheckRate(*rate); err != nil {
			return cli.Usage(err)
		}
		spec, err := readFallback(s, *fallback)
		if err != nil {
			return err
		}
		report := simulate.Degradation(*fallback, spec, *rate, *seed, *seeds)
		return cli.ShowReport(s, report, *format, "", nil, true)
	}
	return c
}

// readFallback reads a fallback from the command line.
func readFallback(s cli.Streams, text string) (*tree.Fallback, error) {
	if inBraces(text) {
		h, err := inlineHandler(s, "fallback: "+text)
		if err != nil {
			return nil, err
		}
		return h.Fallback, nil
	}
	h, err := handlerIn(s, "--fallback", text)
	if err != nil {
		return nil, err
	}
	if h.Fallback == nil {
		return nil, cli.Usagef("handler %s has no fallback", h.Path)
	}
	return h.Fallback, nil
}

// inBraces reports whether a flag contains fields rather than their location.
func inBraces(text string) bool { return strings.HasPrefix(strings.TrimSpace(text), "{") }

// scenarioFlags adds a flag for each number of the scenario.
func scenarioFlags(c *cobra.Command) *simulate.Scenario {
	s := simulate.DefaultScenario()
	f := c.Flags()
	f.Uint64Var(&s.Seed, "seed", s.Seed, "seed of the random numbers")
	f.IntVar(&s.Clients, "clients", s.Clients, "number of clients")
	f.DurationVar(&s.Think, "think", s.Think, "mean time between an answer and the client's next request")
	f.DurationVar(&s.Timeout, "timeout", s.Timeout, "how long a client waits for an answer")
	f.DurationVar(&s.MinDelay, "min-delay", s.MinDelay, "how long the service takes for a request when idle")
	f.IntVar(&s.Limit, "concurrency-limit", s.Limit, "how many concurrent requests the service handles without slowing down")
	f.Float64Var(&s.Factor, "factor", s.Factor, "how much longer a request takes for each step of requests beyond that")
	f.Float64Var(&s.Scale, "k", s.Scale, "number of requests in one such step")
	f.IntVar(&s.Backlog, "backlog", s.Backlog,
		"how many connections can wait for a stopped service; 128 was usual in 2014, 4096 is today")
	f.BoolVar(&s.Abandon, "abandon", s.Abandon, "clients that leave close their socket, and the network stops connecting for them")
	f.StringVar((*string)(&s.Fault), "fault", string(s.Fault), "what happens to the service: "+strings.Join(simulate.Faults(), ", "))
	f.DurationVar(&s.Before, "before", s.Before, "time before the fault")
	f.DurationVar(&s.Outage, "outage", s.Outage, "how long the fault lasts")
	f.DurationVar(&s.After, "after", s.After, "how long to watch afterwards")
	return &s
}

// readPolicy reads a policy from the command line.
func readPolicy(s cli.Streams, text string) (simulate.Policy, error) {
	if inBraces(text) {
		h, err := inlineHandler(s, "retry: "+text)
		if err != nil {
			return simulate.Policy{}, err
		}
		return simulate.Policy{Name: text, Retry: *h.Retry}, nil
	}
	h, err := handlerIn(s, "--policy", text)
	if err != nil {
		return simulate.Policy{}, err
	}
	if h.Retry == nil {
		// A handler without retry fields has the default.
		return simulate.Policy{Name: h.Path + " (default)", Retry: tree.DefaultRetry()}, nil
	}
	return simulate.Policy{Name: h.Path, Retry: *h.Retry}, nil
}

// inlineHandler checks fields from the command line like those of a handler in a file, with the same defaults,
// limits and messages.
func inlineHandler(s cli.Streams, fields string) (*tree.Handler, error) {
	file := diag.File{Name: "command line", Data: []byte(`pipelines:
- id: try
  stages:
  - id: it
    handlers:
    - id: out
      critical: false
      request: {url: http://127.0.0.1}
      ` + fields + "\n")}
	b, err := source.Check(s, []diag.File{file}, dsl.Options{})
	if err != nil {
		return nil, err
	}
	return b.Handler("try/it/out"), nil
}

// handlerIn returns the handler of FILE#pipeline/stage/handler. FILE may be a directory.
func handlerIn(s cli.Streams, flag, text string) (*tree.Handler, error) {
	file, id, ok := strings.Cut(text, "#")
	if !ok {
		return nil, cli.Usagef("%s %q: want FILE#pipeline/stage/handler, or fields in braces such as {factor: 3}", flag, text)
	}
	bundle, err := source.Bundle(s, []string{file}, dsl.Options{})
	if err != nil {
		return nil, err
	}
	h := bundle.Handler(strings.Trim(path.Clean(id), "/"))
	if h != nil {
		return h, nil
	}
	var paths []string
	for _, p := range bundle.Pipelines {
		for _, stage := range p.Stages {
			for _, h := range stage.Handlers {
				paths = append(paths, h.Path)
			}
		}
	}
	return nil, cli.Usagef("no handler %q in %s; %s", id, file,
		cli.Meant(id, paths, "did you mean %q?", "there are "+strings.Join(slices.Sorted(slices.Values(paths)), ", ")))
}
