package versions

import (
	"strings"
	"time"

	"github.com/spf13/cobra"

	"procaas/engine/api/cli"
	"procaas/engine/api/wire"
	"procaas/engine/canary"
)

// releaseFlags say how a version becomes current.
type releaseFlags struct {
	how    wire.Reload
	canary string
	shadow string
	step   time.Duration
	reason *string
	drop   *bool
}

// addRelease declares the flags.
func addRelease(c *cobra.Command) *releaseFlags {
	f := &releaseFlags{reason: cli.Reason(c), drop: addDrop(c)}
	flags := c.Flags()
	flags.StringVar(&f.canary, "canary", "", "use the new version for this share of keys first, such as 5%")
	flags.StringVar(&f.shadow, "shadow", "", "let no run use the new version, and replay this share of the ended runs with it, such as 5%")
	flags.DurationVar(&f.step, "step", canary.DefaultEvery, "how long each share of a canary lasts at least")
	flags.IntVar(&f.how.Runs, "runs", canary.DefaultLeast, "how many runs of the new version each share of a canary has at least")
	flags.BoolVar(&f.how.Hold, "hold", false, "stay at the share of the canary until procaas release promote")
	flags.StringSliceVar(&f.how.Ignore, "ignore", nil, "what a canary does not compare: "+strings.Join(canary.Kinds(), ", "))
	return f
}

// read returns the body of a change. tried describes a trial of the new version, and is nil for none.
func (f *releaseFlags) read(c *cobra.Command) (how wire.Reload, tried func(version string) string, err error) {
	how = f.how
	how.Reason, how.Drop, how.Step = *f.reason, *f.drop, wire.Duration(f.step)
	switch {
	case f.canary != "" && f.shadow != "":
		return how, nil, cli.Usagef("want --canary or --shadow, have both")
	case f.canary != "":
		if how.Canary, err = cli.Share(f.canary); err != nil {
			return how, nil, cli.Usagef("--canary %w", err)
		}
		return how, func(version string) string {
			return "canary " + version + " at " + f.canary + "; procaas release canary shows how it does"
		}, nil
	case how.Hold || len(how.Ignore) > 0 || c.Flags().Changed("step") || c.Flags().Changed("runs"):
		return how, nil, cli.Usagef("--hold, --step, --runs and --ignore belong to --canary, such as --canary 5%%")
	}
	how = wire.Reload{Reason: how.Reason, Drop: how.Drop}
	if f.shadow == "" {
		return how, nil, nil
	}
	if how.Shadow, err = cli.Share(f.shadow); err != nil {
		return how, nil, cli.Usagef("--shadow %w", err)
	}
	return how, func(version string) string {
		return "shadow " + version + " of " + f.shadow + " of the ended runs; procaas release canary shows what differs"
	}, nil
}
