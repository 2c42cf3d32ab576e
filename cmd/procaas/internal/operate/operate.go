// Package operate has the commands that talk to a server.
package operate

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"procaas/cmd/procaas/internal/cli"
	"procaas/dsl/datum"
)

// Commands are those of operators.
func Commands() []*cobra.Command {
	return []*cobra.Command{
		submitCommand(), runsCommand(), switchCommand(), limitCommand(), rolloutCommand(), configCommand(), tokenCommand(), auditCommand(),
		nodesCommand(), queueCommand(), inboxCommand(), balancerCommand(), shardCommand(), topCommand(), servicesCommand(), reloadCommand(),
		versionsCommand(), canaryCommand(), promoteCommand(), rollbackCommand(),
	}
}

// group makes a command of others, which all talk to the same server.
func group(c *cobra.Command, commands ...*cobra.Command) *cobra.Command {
	cli.ServerFlags(c)
	c.AddCommand(commands...)
	return c
}

// addReason adds the flag that says why, for the audit.
func addReason(c *cobra.Command) *string {
	return c.Flags().String("reason", "", "reason, for the audit")
}

// pageSize refuses a --limit that no page has.
func pageSize(limit int) error {
	if limit < 1 || limit > 1000 {
		return cli.Usagef("--limit %d: want a number from 1 to 1000", limit)
	}
	return nil
}

// endAfter reads what --for says: when something ends that begins now.
func endAfter(text string) (*time.Time, error) {
	d, err := datum.ParseDuration(text)
	if err != nil {
		return nil, cli.Usagef("--for: %w", err)
	}
	if d <= 0 {
		return nil, cli.Usagef("--for: want a duration over 0, such as 30m, have %q", text)
	}
	end := time.Now().Add(d)
	return &end, nil
}

// until says when something ends; nothing for nil.
func until(end *time.Time) string {
	if end == nil {
		return ""
	}
	return " until " + cli.Time(*end)
}

// warn shows people what a server warns of.
func warn(q *cli.Call, text string) {
	if text != "" {
		fmt.Fprintln(q.Err, "warning:", text)
	}
}
