// Package operate has the commands for operators, which call a server.
package operate

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"procaas/cmd/procaas/internal/cli"
	"procaas/dsl/datum"
)

// Commands returns the commands for operators.
func Commands() []*cobra.Command {
	return []*cobra.Command{
		submitCommand(), runsCommand(), switchCommand(), limitCommand(), rolloutCommand(), configCommand(), tokenCommand(), auditCommand(),
		nodesCommand(), queueCommand(), inboxCommand(), balancerCommand(), shardCommand(), topCommand(), servicesCommand(), reloadCommand(),
		versionsCommand(), canaryCommand(), promoteCommand(), rollbackCommand(),
	}
}

// group makes a command of sub-commands that call the same server.
func group(c *cobra.Command, commands ...*cobra.Command) *cobra.Command {
	cli.ServerFlags(c)
	c.AddCommand(commands...)
	return c
}

// addReason adds the flag for the reason in the audit.
func addReason(c *cobra.Command) *string {
	return c.Flags().String("reason", "", "reason, for the audit")
}

// pageSize refuses an invalid --limit.
func pageSize(limit int) error {
	if limit < 1 || limit > 1000 {
		return cli.Usagef("--limit %d: want a number from 1 to 1000", limit)
	}
	return nil
}

// endAfter parses --for. It returns the time at which something ends.
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

// until formats the end of something. It returns "" for nil.
func until(end *time.Time) string {
	if end == nil {
		return ""
	}
	return " until " + cli.Time(*end)
}

// warn prints a warning of the server.
func warn(q *cli.Call, text string) {
	if text != "" {
		fmt.Fprintln(q.Err, "warning:", text)
	}
}
