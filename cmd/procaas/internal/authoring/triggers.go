package authoring

import (
	"cmp"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"procaas/cmd/procaas/internal/source"
	"procaas/dsl"
	"procaas/dsl/tree"
	"procaas/engine/api/cli"
	"procaas/engine/triggers"
)

// A firing is one time at which a trigger sends its event.
type firing struct {
	Time    time.Time `json:"time"` // in the time zone of the trigger
	Trigger string    `json:"trigger"`
	Event   string    `json:"event"`
	Key     string    `json:"key,omitempty"`
}

func triggersCommand(ofServer []*cobra.Command) *cobra.Command {
	c := &cobra.Command{
		Use:   "triggers [PATH...]",
		Short: "Show when triggers fire next, and steer those of a server",
		Long: `triggers lists the next times at which the triggers of the files send their events, each
in the time zone of its trigger. In a test, events: {trigger: ID} fires a trigger. Its
sub-commands work with the triggers of a server. Write ./list for a file with the name of
a sub-command.`,
		Example: "  procaas triggers flows/\n  procaas triggers flows/ --from 2026-03-28T00:00:00Z --count 3\n  procaas triggers list",
		Args:    cobra.ArbitraryArgs,
	}
	c.AddCommand(ofServer...)
	from := c.Flags().String("from", "", "list the times after this one, such as 2026-03-28T00:00:00Z (default now)")
	count := c.Flags().Int("count", 5, "how many times to list for each trigger")
	format := cli.Format(c, "text", "json")
	c.RunE = func(c *cobra.Command, paths []string) error {
		s, after := cli.Of(c), time.Now()
		if *from != "" {
			var err error
			if after, err = time.Parse(time.RFC3339, *from); err != nil {
				return cli.Usagef("--from: want a time such as 2026-03-28T00:00:00Z, have %q", *from)
			}
		}
		bundle, err := source.Bundle(s, here(paths), dsl.Options{})
		if err != nil {
			return err
		}
		var all []firing
		for _, t := range bundle.Triggers {
			next, err := firings(t, after, *count)
			if err != nil {
				return err
			}
			all = append(all, next...)
		}
		if len(all) == 0 {
			return cli.Usagef("these files have no triggers")
		}
		slices.SortStableFunc(all, func(a, b firing) int { return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Trigger, b.Trigger)) })
		if *format == "json" {
			return s.PrintJSON(cli.Items(all))
		}
		return cli.Table(s.Out, "TIME\tTRIGGER\tEVENT\tKEY", all, func(f firing) cli.Row {
			return cli.Row{f.Time.Format("Mon 2006-01-02 15:04:05 MST"), f.Trigger, f.Event, cli.Dash(f.Key)}
		})
	}
	return c
}

// firings returns the next n times of a trigger, or fewer if it is not due for years.
func firings(t *tree.Trigger, after time.Time, n int) (all []firing, err error) {
	zone, err := time.LoadLocation(t.TimeZone)
	if err != nil {
		return nil, err
	}
	for range n {
		ev, err := triggers.Firing(t, after)
		if err != nil || ev.Time.IsZero() {
			return all, err
		}
		after = ev.Time
		all = append(all, firing{ev.Time.In(zone), t.ID, ev.Type, ev.Key})
	}
	return all, nil
}
