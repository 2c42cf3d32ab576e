package authoring

import (
	"bytes"
	"os"

	"github.com/spf13/cobra"

	"procaas/cmd/procaas/addons"
	"procaas/cmd/procaas/internal/source"
	"procaas/dsl"
	"procaas/engine/alert"
	"procaas/engine/api/cli"
	"procaas/engine/planner"
)

func genCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "gen",
		Short: "Write Prometheus rules and a Grafana dashboard of pipelines",
	}
	var server string
	alerts := genOf("alerts [PATH…]", "Write alerting rules for Prometheus",
		`alerts writes alerting rules for Prometheus: for nodes, for pipelines, and for
handlers that make calls. One rule of each kind covers all of them, so the rules stay
right when pipelines change. Each alert carries the owner, the path and the command
that switches the path off. alerts checks the pipelines that you name.`,
		"  procaas gen alerts flows/ --server https://procaas.example --output procaas.rules.yaml",
		func(b *bytes.Buffer, _ []*planner.Plan) error {
			return alert.WriteRules(b, server, addons.Alerts(server))
		})
	alerts.Flags().StringVar(&server, "server", "", "address of the server, for the commands in the rules")
	c.AddCommand(alerts, genOf("dashboard [PATH…]", "Write a dashboard for Grafana",
		`dashboard writes a dashboard for Grafana that you can import or provision. It has a
row for all nodes, and a row for each pipeline with panels for its handlers. The same
pipelines produce the same dashboard.`,
		"  procaas gen dashboard flows/ --output procaas.json",
		func(b *bytes.Buffer, plans []*planner.Plan) error { return alert.WriteDashboard(b, plans) }))
	return c
}

// genOf returns a command that generates something from pipelines.
func genOf(use, short, long, example string, write func(*bytes.Buffer, []*planner.Plan) error) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Long: long, Example: example, Args: cobra.ArbitraryArgs}
	output := c.Flags().StringP("output", "o", "", "file to write (default: standard output)")
	c.RunE = func(c *cobra.Command, paths []string) error {
		bundle, err := source.Bundle(cli.Of(c), here(paths), dsl.Options{})
		if err != nil {
			return err
		}
		plans, err := source.Plans(bundle)
		if err != nil {
			return err
		}
		var b bytes.Buffer
		if err := write(&b, plans); err != nil {
			return err
		}
		if *output != "" {
			return os.WriteFile(*output, b.Bytes(), 0o644)
		}
		_, err = c.OutOrStdout().Write(b.Bytes())
		return err
	}
	return c
}
