package operate

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"procaas/dsl/datum"
	"procaas/engine/api/cli"
	"procaas/engine/api/wire"
	"procaas/engine/settings"
)

func configCommand() *cobra.Command {
	return cli.Group(&cobra.Command{Use: "config", Short: "Read and change live settings of a server"}, configList(), configSet())
}

func configList() *cobra.Command {
	c := &cobra.Command{Use: "list", Short: "List live settings", Args: cobra.NoArgs}
	return cli.Lists(c, func(q *cli.Call) ([]settings.ConfigView, error) { return q.Configs(q.Ctx) },
		"NAME\tVALUE\tFROM\tREASON", func(v settings.ConfigView) cli.Row {
			from := "the files"
			if v.Revision > 0 {
				from = v.By
			}
			return cli.Row{v.Name, cli.Compact(v.Value), from, v.Reason}
		})
}

func configSet() *cobra.Command {
	c := &cobra.Command{
		Use:     "set NAME JSON",
		Short:   "Change a live setting on all nodes",
		Example: `  procaas config set NOTIFY_SWITCH '{"enabled": false}' --reason "push is down"`,
		Args:    cobra.ExactArgs(2),
	}
	reason := cli.Reason(c)
	return cli.Calls(c, func(q *cli.Call) error {
		value := json.RawMessage(q.Args[1])
		if fault := datum.FindJSONFault(value); fault != nil {
			return cli.Usagef("the value %s is not JSON: %v; write text in double quotes, and the whole value in single quotes", value, fault)
		}
		was, err := q.Configs(q.Ctx)
		if err != nil {
			return err
		}
		view, err := q.SetConfig(q.Ctx, q.Args[0], wire.ConfigChange{Value: value, Reason: *reason}, -1)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(was, func(v settings.ConfigView) bool { return v.Name == view.Name })
		if i >= 0 {
			cli.Outlook{
				Now: "handlers that start from now on read it, on all nodes", Check: "procaas config list",
				Undo: fmt.Sprintf("procaas config set %s '%s'", view.Name, strings.ReplaceAll(cli.Compact(was[i].Value), "'", `'\''`)),
			}.Tell(q)
		}
		return q.PrintJSON(view)
	})
}
