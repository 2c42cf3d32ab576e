package simulate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"procaas/cmd/procaas/internal/cli"
	"procaas/cmd/procaas/internal/source"
	"procaas/dsl/diag"
	"procaas/handlers/balancer"
	"procaas/handlers/balancer/plant"
)

// StepCommand is balancer step, by which simulators of others ask a policy.
func StepCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "step",
		Short: "Decide about partitions over lines of JSON, for simulators",
		Long: `step reads a line that describes the cluster,

  {"type": "init", "seed", "workers": n, "partitions": n, "capacity": [..], "zone": [..],
   "allowed": [[worker..] per partition], "assignment": [worker per partition], "step_s"}

and then a line for each report of the workers,

  {"type": "observe", "t", "up": [bool], "gone": [bool], "draining": [bool], "requests": [..], "drops": [..],
   "busy": [..], "age_s": [..], "weights": [number or null per partition], "assignment": [..]}

each of which it answers by one: {"moves": [{"partition", "to", "reason"}]}. The end of
the input ends it.

Counts are of the last step or of a second: they are compared with each other only. null
is a number that nobody told, and -1 or null in an assignment a partition that nobody has.
Of a report only t, up and assignment have to be there. Blank lines and fields that are
not known are passed over. A line that makes no sense ends it with status 2, and an error
that names the line.`,
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

// balancerParams reads parameters; those that are left out are the default.
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

// checkPolicies refuses names of policies that there are not.
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

func balancerCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "balancer",
		Short: "How much does a policy of the balancer drop and move?",
		Long: `balancer lets a cluster of workers in virtual time go through scenarios, once under
each policy: partitions get hot, workers die, get slow or restart, healthchecks get
lost. It shows what was dropped, and how much of that any assignment could have
served; how often partitions moved, and came back within ten minutes; and how long
the cluster took to recover. The same seed gives the same result.

--from takes, in place of scenarios, what balancer record has written of a live
cluster, and shows what each policy would have moved, how full it would have made
workers, and how even, beside what was really done. What would have been dropped
is estimated from the recorded weights of partitions and from what workers have
shown that they can do; cold caches after moves are not in it.`,
		Example: "  procaas simulate balancer --scenario hotspot.yaml\n" +
			"  procaas simulate balancer --scenario hotspot.yaml --scenario crash.yaml --policy v4,v5 --seeds 5\n" +
			"  procaas simulate balancer --scenario hotspot.yaml --svg hotspot.svg\n" +
			"  procaas simulate balancer --from fanout.jsonl --policy v4,v5",
		Args: cobra.NoArgs,
	}
	files := c.Flags().StringArray("scenario", nil, "a YAML file with what happens to the cluster; repeat it for more")
	from := c.Flags().String("from", "", "a recording of a live cluster, in place of scenarios")
	policies := c.Flags().StringSlice("policy", balancer.Names(), "the policies to compare")
	seeds := seedsFlag(c)
	params := c.Flags().String("params", "",
		"a JSON file with parameters of the policies; with --from, those of the recording are the default")
	samples := c.Flags().Bool("samples", false, "in JSON: also what happened in each half minute; with --from, at each observation")
	svg := c.Flags().String("svg", "", "also draw drops, utilisation and the Gini index over time into this file; of one scenario, or of "+
		"a recording")
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
		if err := checkSeeds(*seeds); err != nil {
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
				replayed = nil // those of the recording
			}
			report, err := replay(*from, *policies, replayed)
			if err != nil {
				return err
			}
			return show(s, report, *format, *svg, report.WriteSVG, *samples)
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
		return show(s, &report, *format, *svg, func(w io.Writer) error { return report.Scenarios[0].WriteSVG(w) }, *samples)
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

// readScenario reads a scenario of the balancer, and shows what is wrong with it.
func readScenario(s cli.Streams, name string) (*plant.Scenario, error) {
	data, err := source.Input(s, name)
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
