package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"procaas/dsl/diag"
	"procaas/dsl/render"
	"procaas/handlers/balancer"
	"procaas/handlers/balancer/plant"
)

func balancerCommand(s streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "balancer",
		Short: "See and steer which worker of a cluster serves which partition",
		Args:  onlySubcommands,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(balancerStepCommand(s))
	addLevers(c, s)
	return c
}

func balancerStepCommand(s streams) *cobra.Command {
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
	c.RunE = func(*cobra.Command, []string) error {
		params, err := balancerParams(*file)
		if err != nil {
			return err
		}
		if err := checkPolicies([]string{*policy}); err != nil {
			return err
		}
		if err := balancer.Serve(s.in, s.out, *policy, params); err != nil {
			return usageError{err}
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
		return p, usageError{err}
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		return p, usagef("--params %s: %v", file, err)
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
		if near := diag.Suggest(name, known); near != "" {
			return usagef("no policy %q; did you mean %q?", name, near)
		}
		return usagef("no policy %q; there are %s", name, strings.Join(known, ", "))
	}
	return nil
}

func simulateBalancerCommand(s streams) *cobra.Command {
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
	seeds := c.Flags().Int("seeds", 1, "how many runs of each, with another chance")
	params := c.Flags().String("params", "",
		"a JSON file with parameters of the policies; with --from, those of the recording are the default")
	samples := c.Flags().Bool("samples", false, "in JSON: also what happened in each half minute; with --from, at each observation")
	svg := c.Flags().String("svg", "", "also draw drops, utilisation and the Gini index over time into this file; of one scenario, or of "+
		"a recording")
	format := formatFlag(c, "text", "json")
	c.RunE = func(*cobra.Command, []string) error {
		f, err := format()
		if err != nil {
			return err
		}
		switch {
		case len(*files) > 1 && *svg != "":
			return usagef("--svg: want one scenario, have %d", len(*files))
		case len(*files) == 0 && *from == "":
			return usagef("--scenario: want a file, or --from a recording")
		case len(*files) > 0 && *from != "":
			return usagef("want --scenario or --from, have both")
		case *from != "" && c.Flags().Changed("seeds"):
			return usagef("--seeds: a recording has no chance in it; leave it out with --from")
		}
		if *seeds < 1 || *seeds > 1000 {
			return usagef("--seeds %d: want 1 to 1000", *seeds)
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
			return replayBalancer(s, *from, *policies, replayed, f, *svg, *samples)
		}
		var report plant.Report
		for _, file := range *files {
			scenario, err := readScenario(s, file)
			if err != nil {
				return err
			}
			done, err := plant.Compare(scenario, *policies, p, *seeds)
			if err != nil {
				return usageError{err}
			}
			report.Scenarios = append(report.Scenarios, done)
		}
		if *svg != "" {
			if err := writeFile(*svg, report.Scenarios[0].WriteSVG); err != nil {
				return err
			}
		}
		if f == "text" {
			return report.WriteText(s.out)
		}
		if !*samples {
			report.Strip()
		}
		return report.WriteJSON(s.out)
	}
	return c
}

// readScenario reads a scenario of the balancer, and shows what is wrong with it.
func readScenario(s streams, name string) (*plant.Scenario, error) {
	data, err := readInput(s, name)
	if err != nil {
		return nil, err
	}
	file := diag.File{Name: name, Data: data}
	scenario, found := plant.Parse(file)
	if len(found) > 0 {
		if err := render.Write(s.err, render.Text, []diag.File{file}, found, colorful(s.err)); err != nil {
			return nil, fmt.Errorf("findings cannot be shown: %w", err)
		}
	}
	if scenario == nil {
		return nil, errFindings
	}
	return scenario, nil
}
