package main

import (
	"encoding/json"
	"fmt"

	"procaas/engine/api/wire"

	"github.com/spf13/cobra"
)

func configCommand(s streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "config",
		Short: "Read and change live settings of a server",
		Args:  onlySubcommands,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	var f clientFlags
	f.add(c)
	c.AddCommand(configList(s, &f), configSet(s, &f))
	return c
}

func configList(s streams, f *clientFlags) *cobra.Command {
	c := &cobra.Command{Use: "list", Short: "List live settings", Args: cobra.NoArgs}
	c.RunE = formatted(c, []string{"text", "json"}, func(c *cobra.Command, _ []string, out string) error {
		configs, err := f.client().Configs(c.Context())
		if err != nil {
			return err
		}
		if out == "json" {
			return printJSON(s.out, map[string]any{"items": configs, "next": nil})
		}
		w := newTable(s.out, "NAME\tVALUE\tFROM\tREASON")
		for _, v := range configs {
			value, err := json.Marshal(v.Value)
			if err != nil {
				return err
			}
			from := "the files"
			if v.Revision > 0 {
				from = v.By
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", v.Name, value, from, v.Reason)
		}
		return w.Flush()
	})
	return c
}

func configSet(s streams, f *clientFlags) *cobra.Command {
	c := &cobra.Command{
		Use:     "set NAME JSON",
		Short:   "Change a live setting on all nodes",
		Example: `  procaas config set NOTIFY_SWITCH '{"enabled": false}' --reason "push is down"`,
		Args:    cobra.ExactArgs(2),
	}
	reason := c.Flags().String("reason", "", "why, for the audit")
	c.RunE = func(c *cobra.Command, args []string) error {
		if !json.Valid([]byte(args[1])) {
			return usagef("the value is not JSON: %s", args[1])
		}
		view, err := f.client().SetConfig(c.Context(), args[0], wire.ConfigChange{Value: json.RawMessage(args[1]), Reason: *reason}, -1)
		if err != nil {
			return err
		}
		return printJSON(s.out, view)
	}
	return c
}
