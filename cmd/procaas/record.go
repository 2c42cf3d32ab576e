package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"procaas/handlers/balancer"
	"procaas/handlers/balancer/plant"
)

func balancerRecordCommand(s streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "record [CLUSTER]",
		Short: "Write what the balancer has seen lately, for simulate balancer --from",
		Long: `record writes the observations of a cluster that its server keeps, those of the last
quarter of an hour, as lines of JSON: first what a policy knows beforehand, then an
observation each. A longer recording is several of them in one file, taken before
the server forgets; what is in it twice counts once.`,
		Example: "  procaas balancer record fanout > fanout.jsonl\n" +
			"  procaas simulate balancer --from fanout.jsonl --policy v4,v5",
		Args: cobra.MaximumNArgs(1),
	}
	var f leverFlags
	f.clientFlags.add(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) > 0 {
			f.cluster = args[0]
		}
		cluster, err := f.find(c.Context())
		if err != nil {
			return err
		}
		recording, err := f.client().Recording(c.Context(), cluster)
		if err != nil {
			return err
		}
		if len(recording.Observations) == 0 {
			return fmt.Errorf("nobody has observed cluster %s yet: does a trigger start its pipeline?", cluster)
		}
		return plant.WriteRecording(s.out, recording)
	}
	return c
}

// replayBalancer lets policies decide about a recording, and shows what they make of it.
func replayBalancer(s streams, file string, policies []string, params *balancer.Params, format, svg string, samples bool) error {
	f, err := os.Open(file)
	if err != nil {
		return usageError{err}
	}
	defer f.Close()
	recording, err := plant.ReadRecording(f)
	if err != nil {
		return usagef("--from %s: %v", file, err)
	}
	if params != nil {
		recording.Params = *params
	}
	report, err := recording.Replay(policies)
	if err != nil {
		return usageError{err}
	}
	if svg != "" {
		if err := writeFile(svg, report.WriteSVG); err != nil {
			return err
		}
	}
	if format == "text" {
		return report.WriteText(s.out)
	}
	if !samples {
		report.Strip()
	}
	return report.WriteJSON(s.out)
}
