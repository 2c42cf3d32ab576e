package addon

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"procaas/dsl/diag"
	"procaas/engine/api/cli"
	"procaas/handlers/balancer"
	"procaas/handlers/balancer/plant"
)

// stepCommand is balancer step, with which other simulators ask a policy.
func stepCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "step",
		Short: "Decide moves of partitions over lines of JSON, for simulators",
		Long: `step reads one line that describes the cluster:

  {"type": "init", "seed", "workers": n, "partitions": n, "capacity": [..], "zone": [..],
   "allowed": [[worker..] per partition], "assignment": [worker per partition], "step_s"}

Then it reads one line for each report of the workers:

  {"type": "observe", "t", "up": [bool], "gone": [bool], "draining": [bool], "requests": [..], "drops": [..],
   "busy": [..], "age_s": [..], "weights": [number or null per partition], "assignment": [..]}

It answers each report with one line: {"moves": [{"partition", "to", "reason"}]}. It
stops at the end of the input.

Counts may be per step or per second: step only compares them with each other. null
is an unknown number. In an assignment, -1 or null is a partition without a worker.
A report needs only t, up and assignment. step skips blank lines and unknown fields.
At an invalid line it stops with exit code 2 and an error that names the line.`,
		Example: "  procaas balancer step --policy v4 < reports.jsonl\n" +
			"  procaas balancer step --policy v5 --params margin.json < reports.jsonl",
		Args: cobra.NoArgs,
	}
	policy := c.Flags().String("policy", balancer.Default, "one of "+strings.Join(balancer.Names(), ", "))
	file := c.Flags().String("params", "", "a JSON file with parameters of the policy, such as {\"margin\": 2}")
	c.RunE = func(c *cobra.Command, _ []string) error {
		params, err := balancerParams(*file)
		if err != nil {
			return err
		}
		if err := checkPolicies([]string{*policy}); err != nil {
			return err
		}
		if err := balancer.Serve(c.InOrStdin(), c.OutOrStdout(), *policy, params); err != nil {
			return cli.Usage(err)
		}
		return nil
	}
	return c
}

// balancerParams reads parameters. Missing ones have their defaults.
func balancerParams(file string) (balancer.Params, error) {
	p := balancer.DefaultParams()
	if file == "" {
		return p, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return p, cli.Usage(err)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		return p, cli.Usagef("--params %s: %v", file, err)
	}
	return p, nil
}

// checkPolicies refuses unknown policies.
func checkPolicies(names []string) error {
	known := balancer.Names()
	for _, name := range names {
		if slices.Contains(known, name) {
			continue
		}
		return cli.Usagef("no policy %q; %s", name, cli.Meant(name, known, "did you mean %q?", "there are "+strings.Join(known, ", ")))
	}
	return nil
}

func simulateCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "balancer",
		Short: "Compare what policies of the balancer drop and move",
		Long: `balancer simulates a cluster of workers in virtual time, once for each policy. In the
scenarios partitions become hot, workers die, slow down or restart, and healthchecks
get lost. The result shows

  what was dropped, and how much of that any assignment could have served
  how often partitions moved, and came back within ten minutes
  how long the cluster took to recover

The same seed produces the same result.

--from reads a recording of balancer record instead of scenarios. It compares each
policy with what really happened: the moves, how full workers were, and how evenly.
Drops are an estimate from the recorded weights and from what workers could serve.
The estimate leaves out cold caches after moves.`,
		Example: "  procaas simulate balancer --scenario hotspot.yaml\n" +
			"  procaas simulate balancer --scenario hotspot.yaml --scenario crash.yaml --policy v4,v5 --seeds 5\n" +
			"  procaas simulate balancer --scenario hotspot.yaml --svg hotspot.svg\n" +
			"  procaas simulate balancer --from fanout.jsonl --policy v4,v5",
		Args: cobra.NoArgs,
	}
	files := c.Flags().StringArray("scenario", nil, "a YAML file with what happens to the cluster (repeatable)")
	from := c.Flags().String("from", "", "a recording of a live cluster, instead of scenarios")
	policies := c.Flags().StringSlice("policy", balancer.Names(), "the policies to compare")
	seeds := cli.SeedsFlag(c)
	params := c.Flags().String("params", "",
		"a JSON file with parameters of the policies (default with --from: those of the recording)")
	samples := c.Flags().Bool("samples", false, "with --format json: add what happened in each half minute or, with --from, at "+
		"each observation")
	svg := c.Flags().String("svg", "", "also draw drops, utilisation and the Gini index over time into this file, for one "+
		"scenario or a recording")
	format := cli.Format(c, "text", "json")
	c.RunE = func(c *cobra.Command, _ []string) error {
		s := cli.Of(c)
		switch {
		case len(*files) > 1 && *svg != "":
			return cli.Usagef("--svg: want one scenario, have %d", len(*files))
		case len(*files) == 0 && *from == "":
			return cli.Usagef("--scenario: want a file, or --from a recording")
		case len(*files) > 0 && *from != "":
			return cli.Usagef("want --scenario or --from, have both")
		case *from != "" && c.Flags().Changed("seeds"):
			return cli.Usagef("--seeds: a recording has no chance in it; leave it out with --from")
		}
		if err := cli.CheckSeeds(*seeds); err != nil {
			return err
		}
		if err := checkPolicies(*policies); err != nil {
			return err
		}
		p, err := balancerParams(*params)
		if err != nil {
			return err
		}
		if *from != "" {
			replayed := &p
			if *params == "" {
				replayed = nil // the policies of the recording
			}
			report, err := replay(*from, *policies, replayed)
			if err != nil {
				return err
			}
			return cli.ShowReport(s, report, *format, *svg, report.WriteSVG, *samples)
		}
		var report plant.Report
		for _, file := range *files {
			scenario, err := readScenario(s, file)
			if err != nil {
				return err
			}
			done, err := plant.Compare(scenario, *policies, p, *seeds)
			if err != nil {
				return cli.Usage(err)
			}
			report.Scenarios = append(report.Scenarios, done)
		}
		return cli.ShowReport(s, &report, *format, *svg, func(w io.Writer) error { return report.Scenarios[0].WriteSVG(w) }, *samples)
	}
	return c
}

// replay lets policies decide about a recording.
func replay(file string, policies []string, params *balancer.Params) (*plant.Replayed, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, cli.Usage(err)
	}
	defer f.Close()
	recording, err := plant.ReadRecording(f)
	if err != nil {
		return nil, cli.Usagef("--from %s: %v", file, err)
	}
	if params != nil {
		recording.Params = *params
	}
	report, err := recording.Replay(policies)
	if err != nil {
		return nil, cli.Usage(err)
	}
	return report, nil
}

// readScenario reads a scenario of the balancer, and prints its findings.
func readScenario(s cli.Streams, name string) (*plant.Scenario, error) {
	data, err := s.Input(name)
	if err != nil {
		return nil, err
	}
	file := diag.File{Name: name, Data: data}
	scenario, found := plant.Parse(file)
	if err := s.Findings([]diag.File{file}, found); err != nil {
		return nil, fmt.Errorf("findings cannot be shown: %w", err)
	}
	if scenario == nil {
		return nil, cli.ErrFindings
	}
	return scenario, nil
}
