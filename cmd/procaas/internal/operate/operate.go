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

// A span is the time between --since and --until.
type span struct{ since, until string }

func (s *span) add(c *cobra.Command, since, until string) {
	c.Flags().StringVar(&s.since, "since", "", since+": a time, or a duration before now such as 1h")
	c.Flags().StringVar(&s.until, "until", "", until+": a time, or a duration before now")
}

// read puts the ends of the span where they are wanted.
func (s *span) read(since, until *time.Time) (err error) {
	now := time.Now()
	if *since, err = instant("--since", s.since, now); err != nil {
		return err
	}
	*until, err = instant("--until", s.until, now)
	return err
}

// instant reads a time, or a duration before now.
func instant(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := datum.ParseDuration(text); err == nil {
		return now.Add(-d), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, cli.Usagef("%s %q: want a time such as 2006-01-02T15:04:05Z, or a duration such as 1h", flag, text)
	}
	return t, nil
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
