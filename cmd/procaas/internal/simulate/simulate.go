// Package simulate has the commands that try policies in virtual time.
package simulate

import (
	"io"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"procaas/cmd/procaas/internal/cli"
	"procaas/cmd/procaas/internal/source"
	"procaas/dsl"
	"procaas/dsl/diag"
	"procaas/dsl/tree"
	"procaas/engine/planner"
	"procaas/engine/simulate"
)

// Command has no work of its own; without a kind it says which there are, as an error:
// a script that forgot it must not go on.
func Command() *cobra.Command {
	c := &cobra.Command{
		Use:   "simulate KIND",
		Short: "Try a policy in virtual time before you deploy it",
		Long: `simulate shows in virtual time what a policy does when things break. The same
seed gives the same result.`,
		Args: cli.OnlySubcommands,
		RunE: func(c *cobra.Command, _ []string) error {
			var kinds []string
			for _, kind := range c.Commands() {
				kinds = append(kinds, kind.Name())
			}
			return cli.Usagef("want a kind of simulation, one of %s\n\n%s", strings.Join(kinds, ", "), strings.TrimSpace(c.UsageString()))
		},
	}
	c.AddCommand(backoffCommand(), degradationCommand(), balancerCommand())
	return c
}

// backoffCommand compares the policies of the library with those of the user's files.
func backoffCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "backoff",
		Short: "Does a service get up again while its clients repeat their calls?",
		Long: `backoff lets a crowd of clients call a service, stops the service for a while, and
shows for each policy of repeating whether the service recovers. A service that
is overloaded answers later than its clients wait, and goes on working for those
that have left; when they repeat too soon, it never gets up. The last line is events
that wait in an inbox until an adaptive limit of the service lets them through.

The service has recovered when 95 of 100 attempts find an answer in time and fewer than
15 of 100 clients still repeat a request that has failed, until the end. With
--seeds, each policy runs so often, each time with another chance; all numbers but
recovered, recovered_runs and time_to_recover_s are those of the first run.

--fault brownout makes each request take twenty times as long in place of stopping the
service, refused lets it refuse connections at once, and spike brings twenty times as many
clients. --abandon lets clients that leave close their socket: what waits in the backlog
still reaches the service, but the network no longer tries to connect for them.
Without it, it does in the background, as with the dials of Go.

--policy adds policies to the comparison: the retry of a handler in your files,
FILE#pipeline/stage/handler, or the fields themselves, {factor: 3, jitter: full}.
As in a file, fields without attempts give up after 3; attempts: 0 never does, as
the policies that are compared in any case.`,
		Example: "  procaas simulate backoff\n" +
			"  procaas simulate backoff --policy flows/orders.yaml#new-order/notify/push --outage 20s\n" +
			"  procaas simulate backoff --policy '{min-delay: 1s, jitter: full, attempts: 0}' --svg backoff.svg\n" +
			"  procaas simulate backoff --fault brownout --seeds 20",
		Args: cobra.NoArgs,
	}
	scenario := scenarioFlags(c)
	policies := c.Flags().StringArray("policy", nil, "one more policy: FILE#pipeline/stage/handler, or fields of retry in braces")
	svg := c.Flags().String("svg", "", "also draw goodput, concurrency and the delays of each policy into this file")
	seeds := seedsFlag(c)
	format := cli.Format(c, "text", "json")
	c.RunE = func(c *cobra.Command, _ []string) error {
		s := cli.Of(c)
		if err := checkSeeds(*seeds); err != nil {
			return err
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
		report := simulate.Compare(*scenario, all, *seeds)
		return show(s, report, *format, *svg, report.WriteSVG, true)
	}
	return c
}

// degradationCommand tries one fallback in all troubles.
func degradationCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "degradation",
		Short: "When does a fallback take a handler out, and when is it back?",
		Long: `degradation lets a handler with a fallback go through troubles: some in which it
must go out of the flow, some in which it must not. It shows how long that takes,
how many calls are made in vain, and how many are skipped that would have
succeeded. The decisions are those of the engine. With --seeds, each trouble
comes so often, each time with another chance, and it is told in how many of them
the handler went out; the other numbers are those of the first one.

--fallback is that of a handler in your files, FILE#pipeline/stage/handler, or the
fields themselves, {window: 1m, min-success-ratio: 0.8}.`,
		Example: "  procaas simulate degradation --rate 0.2\n" +
			"  procaas simulate degradation --fallback flows/orders.yaml#new-order/notify/push --rate 40",
		Args: cobra.NoArgs,
	}
	fallback := c.Flags().String("fallback", "{}", "FILE#pipeline/stage/handler, or fields of fallback in braces")
	rate := c.Flags().Float64("rate", 5, "calls of the handler per second, on all nodes together")
	seed := c.Flags().Uint64("seed", 1, "where chance begins")
	seeds := seedsFlag(c)
	format := cli.Format(c, "text", "json")
	c.RunE = func(c *cobra.Command, _ []string) error {
		s := cli.Of(c)
		if err := checkSeeds(*seeds); err != nil {
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
		return show(s, report, *format, "", nil, true)
	}
	return c
}

// A report is what a simulation comes to.
type report interface {
	WriteText(w io.Writer) error
	WriteJSON(w io.Writer) error
}

// show prints a report, and draws it into the file svg if that is named. Samples are left out of
// a report that has some, unless they are wanted.
func show(s cli.Streams, r report, format, svg string, draw func(io.Writer) error, samples bool) error {
	if svg != "" {
		if err := source.Write(svg, draw); err != nil {
			return err
		}
	}
	if format == "text" {
		return r.WriteText(s.Out)
	}
	if x, ok := r.(interface{ Strip() }); ok && !samples {
		x.Strip()
	}
	return r.WriteJSON(s.Out)
}

// mostSeeds bounds what a simulation may cost.
const mostSeeds = 1000

func seedsFlag(c *cobra.Command) *int {
	return c.Flags().Int("seeds", 1, "how many runs of each, with another chance")
}

func checkSeeds(n int) error {
	if n < 1 || n > mostSeeds {
		return cli.Usagef("--seeds %d: want 1 to %d", n, mostSeeds)
	}
	return nil
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

// inBraces tells whether a flag gives fields, not where they are.
func inBraces(text string) bool { return strings.HasPrefix(strings.TrimSpace(text), "{") }

// scenarioFlags adds a flag for each number of the scenario.
func scenarioFlags(c *cobra.Command) *simulate.Scenario {
	s := simulate.DefaultScenario()
	f := c.Flags()
	f.Uint64Var(&s.Seed, "seed", s.Seed, "where chance begins")
	f.IntVar(&s.Clients, "clients", s.Clients, "how many clients there are")
	f.DurationVar(&s.Think, "think", s.Think, "mean time of a client between an answer and its next request")
	f.DurationVar(&s.Timeout, "timeout", s.Timeout, "how long a client waits for an answer")
	f.DurationVar(&s.MinDelay, "min-delay", s.MinDelay, "how long the service takes when it is not busy")
	f.IntVar(&s.Limit, "concurrency-limit", s.Limit, "how many requests at a time leave the service not busy")
	f.Float64Var(&s.Factor, "factor", s.Factor, "how much longer it takes for each step of requests beyond that")
	f.Float64Var(&s.Scale, "k", s.Scale, "how many requests are one such step")
	f.IntVar(&s.Backlog, "backlog", s.Backlog,
		"how many connections wait for a service that has stopped; 128 was usual in 2014, 4096 is today")
	f.BoolVar(&s.Abandon, "abandon", s.Abandon, "clients that leave close their socket, and the network no longer connects for them")
	f.StringVar((*string)(&s.Fault), "fault", string(s.Fault), "what happens to the service: "+strings.Join(simulate.Faults(), ", "))
	f.DurationVar(&s.Before, "before", s.Before, "time until the fault")
	f.DurationVar(&s.Outage, "outage", s.Outage, "how long it lasts")
	f.DurationVar(&s.After, "after", s.After, "how long it is watched then")
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
		// A handler that says nothing is repeated all the same.
		return simulate.Policy{Name: h.Path + " (default)", Retry: planner.DefaultRetry()}, nil
	}
	return simulate.Policy{Name: h.Path, Retry: *h.Retry}, nil
}

// inlineHandler checks fields from the command line as those of a handler, so that they have
// the same defaults, bounds and messages as in a file.
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

// handlerIn finds the handler that FILE#pipeline/stage/handler names. FILE may be a
// directory, for pipelines whose parts are in many files.
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
