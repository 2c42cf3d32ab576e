package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"procaas/dsl/datum"
)

// An Outlook is what a command prints about a change after the new state.
type Outlook struct {
	Now   string // what happens from now on
	Check string // the command that shows the effect
	More  string // commands for what remains to be done
	Undo  string // the command that undoes the change
}

// Tell prints the outlook to standard error, since programs read standard output.
func (o Outlook) Tell(q *Call) {
	if q.JSON() {
		return
	}
	for _, line := range [][2]string{{"now", o.Now}, {"check", o.Check}, {"then", o.More}, {"undo", o.Undo}} {
		if line[1] != "" {
			fmt.Fprintf(q.Err, "%s: %s\n", line[0], line[1])
		}
	}
}

// Reason adds the flag for the reason in the audit.
func Reason(c *cobra.Command) *string {
	return c.Flags().String("reason", "", "reason, for the audit")
}

// EndAfter parses --for. It returns the time at which something ends.
func EndAfter(text string) (*time.Time, error) {
	d, err := datum.ParseDuration(text)
	if err != nil {
		return nil, Usagef("--for: %w", err)
	}
	if d <= 0 {
		return nil, Usagef("--for: want a duration over 0, such as 30m, have %q", text)
	}
	end := time.Now().Add(d)
	return &end, nil
}

// Until formats the end of something. It returns "" for nil.
func Until(end *time.Time) string {
	if end == nil {
		return ""
	}
	return " until " + Time(*end)
}
