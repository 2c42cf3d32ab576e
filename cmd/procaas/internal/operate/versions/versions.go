// Package versions has the commands for the versions of pipelines, and for canaries.
package versions

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"procaas/dsl/diag"
	"procaas/engine/api/cli"
	"procaas/engine/api/client"
	"procaas/engine/api/problem"
	"procaas/engine/api/wire"
	"procaas/engine/canary"
	"procaas/engine/definitions"
	"procaas/engine/diff"
)

// Command returns the command with all that changes what a server runs. others are such commands, too.
func Command(others ...*cobra.Command) *cobra.Command {
	all := append(others, deployCommand(), pullCommand(), reloadCommand(), versionsCommand(), canaryCommand(), promoteCommand(), rollbackCommand())
	for _, c := range all {
		cli.Formerly(c, c.Name())
	}
	return cli.Group(&cobra.Command{
		Use:   "release",
		Short: "Bring pipelines to a server: deploy, try by a canary, roll back",
		Long: `release changes the pipelines of a server, on all its nodes: deploy sends a directory,
reload reads the files of a node again. A canary tries a version with a part of the keys first.
promote lets more of them use it, and rollback ends it or makes an earlier version current.`,
	}, all...)
}

func versionsCommand() *cobra.Command {
	c := cli.Group(&cobra.Command{
		Use:   "versions",
		Short: "List the versions of a server's pipelines, and what each changed",
		Long: `versions lists the sets of pipelines that were current on a server, newest first. The
store keeps all of them. SINCE, BY and REASON are from the audit. CHANGES names the
first difference to the version before. RUNS counts the unfinished and failed runs of
the version.

The first 4 digits of a version are enough to name it. current names the current one.`,
		Example: `  procaas release versions
  procaas release versions diff 1a2b 3c4d
  procaas release rollback 1a2b --reason 'charges twice'`,
		Args: cobra.NoArgs,
	}, versionsShow(), versionsDiff())
	limit := c.Flags().Int("limit", 20, "the most versions, up to 1000")
	return cli.Lists(c, func(q *cli.Call) ([]definitions.Version, error) {
		if err := cli.PageSize(*limit); err != nil {
			return nil, err
		}
		return q.Versions(q.Ctx, *limit)
	}, "VERSION\tSTATE\tSINCE\tBY\tRUNS\tCHANGES\tREASON", func(v definitions.Version) cli.Row {
		return cli.Row{cli.Short(v.Version), cli.Dash(v.State), v.Since, cli.Dash(v.By), v.Runs, cli.Dash(v.Changes), reasons(v)}
	})
}

// reasons returns why a version first became current, and who made it current again or rolled it back, and why.
func reasons(v definitions.Version) string {
	if v.LaterBy == "" {
		return v.Reason
	}
	return strings.TrimPrefix(v.Reason+"; later by "+laterText(v), "; ")
}

// laterText returns who made a version current again or rolled it back, and why.
func laterText(v definitions.Version) string {
	return strings.TrimSuffix(v.LaterBy+": "+v.Later, ": ")
}

func versionsShow() *cobra.Command {
	c := &cobra.Command{
		Use:     "show VERSION",
		Short:   "Show what a version changed, and its files",
		Example: "  procaas release versions show 1a2b --files",
		Args:    cobra.ExactArgs(1),
	}
	files := c.Flags().Bool("files", false, "print the contents of the files")
	return cli.Shows(c, func(q *cli.Call) (definitions.VersionDetail, error) { return q.Version(q.Ctx, q.Args[0]) },
		func(q *cli.Call, v definitions.VersionDetail) error {
			fmt.Fprintf(q.Out, "version %s\n", v.Version.Version)
			lines := [][2]string{
				{"state", v.State},
				{"since", cli.Time(v.Since)},
				{"by", v.By},
				{"reason", v.Reason},
				{"before", v.Before},
				{"later", laterText(v.Version)},
				{"runs", strconv.Itoa(v.Runs)},
			}
			for _, line := range lines {
				if line[1] != "" {
					fmt.Fprintf(q.Out, "%-7s %s\n", line[0], line[1])
				}
			}
			for _, f := range v.Files {
				fmt.Fprintf(q.Out, "file    %s\n", f.Name)
				if *files {
					fmt.Fprintln(q.Out, strings.TrimSuffix(f.Text, "\n"))
				}
			}
			return diff.Write(q.Out, v.Diff)
		})
}

func versionsDiff() *cobra.Command {
	c := &cobra.Command{
		Use:   "diff VERSION OTHER",
		Short: "Show what another version changes of a version",
		Long: `diff compares two versions that the store of a server keeps.

Exit codes: 0 when nothing differs, 1 when something does.`,
		Example: "  procaas release versions diff 1a2b 3c4d",
		Args:    cobra.ExactArgs(2),
	}
	return cli.Formatted(c, func(q *cli.Call) error {
		found, err := q.DiffVersions(q.Ctx, q.Args[0], q.Args[1])
		if err != nil {
			return err
		}
		if err := q.Show(found, func() error { return diff.Write(q.Out, found) }); err != nil {
			return err
		}
		return cli.FindingsIf(len(found.Changes) > 0)
	})
}

func rollbackCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "rollback [VERSION]",
		Short: "End a canary or a shadow, or make an earlier version of the pipelines current",
		Long: `rollback ends the canary if one runs: new runs of all keys use the current version
again. It drops a version in the shadow. Otherwise it makes a version current that the store keeps. No files are needed.
Without VERSION, it is the version that the current one replaced. Within a minute after
a canary was rolled back, the server wants a VERSION.

Runs that have begun keep their version. To move them, run procaas runs migrate
afterwards. A node that restarts with the files of a version that was rolled back takes
over the current version.`,
		Example: "  procaas release rollback --reason 'charges twice'",
		Args:    cobra.MaximumNArgs(1),
	}
	cli.ServerFlags(c)
	reason := cli.Reason(c)
	drop := addDrop(c)
	return cli.Formatted(c, func(q *cli.Call) error {
		before, _ := q.Canary(q.Ctx) // the rollback matters more
		found, err := q.RollBack(q.Ctx, wire.Rollback{To: strings.Join(q.Args, ""), Reason: *reason, Drop: *drop})
		shown := showChange(q, found, err, nil)
		if err == nil && found.Old != found.New {
			tried := ""
			switch {
			case before.New != found.Old:
			case before.Phase == canary.InShadow:
				tried = "shadow"
			case before.Phase == canary.Running && before.Percent < 100:
				tried = "canary"
			}
			leftBehind(q, found, tried).Tell(q)
		}
		return shown
	})
}

// leftBehind describes the runs that a rollback leaves on the version, and how to move them. tried
// is canary or shadow if the version was on trial.
func leftBehind(q *cli.Call, d diff.Diff, tried string) cli.Outlook {
	bad, good := cli.Short(d.Old), cli.Short(d.New)
	o := cli.Outlook{
		Now:   "new runs of all keys use " + good + " within a second; put the old files back on the nodes",
		Check: "procaas release versions",
	}
	o.Undo = "procaas release rollback " + bad
	if tried != "" {
		o.Undo = "procaas release reload --" + tried + " 5% on a node that has the files"
	}
	v, err := q.Version(q.Ctx, d.Old)
	if err != nil {
		o.Check = "procaas runs list --version " + bad
		return o
	}
	if v.Runs == 0 {
		return o
	}
	failed, err := q.Preview(q.Ctx, client.RetryRuns, wire.Redrive{RunChoice: wire.RunChoice{Version: d.Old}})
	if err != nil {
		return o
	}
	o.Now += fmt.Sprintf("; %d failed and %d unfinished runs stay on %s", failed.Total, max(0, v.Runs-failed.Total), bad)
	o.Check = "procaas runs list --version " + bad
	o.More = "procaas runs migrate --version " + bad + " --dry-run; without --dry-run it moves those that fit"
	if failed.Total > 0 {
		// After the migration, the version no longer tells these runs from those that failed before.
		o.More += "; then procaas runs retry --failed-since " + v.Since.UTC().Format(time.RFC3339) +
			" --dry-run, which leaves out what failed before " + bad
	}
	return o
}

func promoteCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "promote [PERCENT]",
		Short: "Let more keys, or all, use the version of the canary or in the shadow",
		Long: `promote lets a share of the keys use the version of the canary. Without PERCENT, the
version becomes current on all nodes within a second. A key that uses it keeps it. A
version in the shadow becomes a canary.`,
		Example: "  procaas release promote 50% --hold\n  procaas release promote --reason 'looks good'",
		Args:    cobra.MaximumNArgs(1),
	}
	cli.ServerFlags(c)
	reason := cli.Reason(c)
	hold := c.Flags().Bool("hold", false, "stay at this share until the next promote")
	return cli.Shows(c, func(q *cli.Call) (v canary.View, err error) {
		how := wire.Promotion{Reason: *reason, Hold: *hold}
		if len(q.Args) > 0 {
			if how.Percent, err = cli.Share(q.Args[0]); err != nil {
				return v, err
			}
		}
		return q.Promote(q.Ctx, how)
	}, showCanary)
}

func canaryCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "canary",
		Short: "Show how the last canary does, or what differs in the shadow",
		Long: `canary shows the canary that procaas release reload --canary began: its share of the keys, what
comes next, and the numbers of both versions at this share. Of a canary that has ended
it shows why. Of a version in the shadow it shows the counts of its replays, the most
frequent differences, and some runs that have them.

FAILURES are runs that failed or wait for an operator. ERRORS are first attempts of a
handler that failed. LATENCY (ms) and CALLS show the median and the 90th percentile of
a run.`,
		Args: cobra.NoArgs,
	}
	cli.ServerFlags(c)
	return cli.Shows(c, func(q *cli.Call) (canary.View, error) { return q.Canary(q.Ctx) }, showCanary)
}

// showCanary prints the state of a canary.
func showCanary(q *cli.Call, v canary.View) error {
	if v.Phase == canary.None {
		return q.Printf("no canary has run; procaas release reload --canary 5%% or --shadow 5%% begins one\n")
	}
	fmt.Fprintln(q.Out, CanaryLine(v))
	if v.Why != "" {
		fmt.Fprintf(q.Out, "why     %s\n", v.Why)
	}
	fmt.Fprintf(q.Out, "began   %s by %s %s\n", cli.Time(*v.Began), v.By, v.Reason)
	if v.NotUntil != nil {
		next := fmt.Sprintf("%g%% at %s, after %d of %d runs", v.Next, cli.Time(*v.NotUntil), v.Runs, v.Least)
		if v.Waits != "" {
			next = fmt.Sprintf("%g%% waits: %s; procaas release promote goes on", v.Next, v.Waits)
		}
		fmt.Fprintf(q.Out, "next    %s\n", next)
	}
	if v.Phase == canary.Running && v.Percent < 100 && v.NotUntil == nil {
		fmt.Fprintf(q.Out, "held    at %g%%; automatic rollback stays on; procaas release promote or rollback ends it\n", v.Percent)
	}
	if v.Shadow != nil {
		return showShadow(q, v.Shadow)
	}
	if len(v.Compared) == 0 {
		return nil
	}
	return cli.Table(q.Out, "WHAT\tOF\tOLD\tNEW", v.Compared, func(c canary.Compared) cli.Row {
		return cli.Row{c.Kind, c.Name, c.Old.Text(c.Kind), c.New.Text(c.Kind)}
	})
}

// showShadow prints what replays have found.
func showShadow(q *cli.Call, s *canary.Shadowed) error {
	if len(s.Pipelines) > 0 {
		if err := cli.Table(q.Out, "PIPELINE\tSAME\tDIFFERENT\tSKIPPED", s.Pipelines, func(p canary.Replays) cli.Row {
			return cli.Row{p.Pipeline, p.Same, p.Different, p.Skipped}
		}); err != nil {
			return err
		}
	}
	for _, d := range s.Differences {
		fmt.Fprintf(q.Out, "\n%s: %s\n  was  %s\n  now  %s\n", diag.Plural(d.Runs, "run"), d.What, d.Was, d.Now)
		if d.First < d.Runs {
			fmt.Fprintf(q.Out, "  after another difference in %s\n", diag.Plural(d.Runs-d.First, "run"))
		}
		fmt.Fprintf(q.Out, "  such as %s\n", strings.Join(d.Examples, ", "))
	}
	if s.Other > 0 {
		fmt.Fprintf(q.Out, "\n%s more\n", diag.Plural(s.Other, "difference"))
	}
	for _, k := range s.Skipped {
		fmt.Fprintf(q.Out, "skipped: %s: %s\n", diag.Plural(k.Runs, "run"), k.Why)
	}
	if s.Calls > 0 {
		fmt.Fprintf(q.Out, "%s for real\n", diag.Plural(s.Calls, "call"))
	}
	return nil
}

// CanaryLine summarizes a canary, or a version in the shadow, in one line.
func CanaryLine(v canary.View) string {
	if v.Shadow != nil {
		return fmt.Sprintf("shadow  %s %s, %g%% of the ended runs, against %s: %s",
			cli.Short(v.New), shadowPhase(v.Phase), v.Percent, cli.Short(v.Old), v.Shadow.Total().Text())
	}
	return fmt.Sprintf("canary  %s %s at %g%% of keys, against %s", cli.Short(v.New), v.Phase, v.Percent, cli.Short(v.Old))
}

// shadowPhase returns how a version in the shadow does.
func shadowPhase(phase string) string {
	if phase == canary.InShadow {
		return canary.Running
	}
	return phase
}

func reloadCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "reload",
		Short: "Make a server read its pipelines again, and show what changes",
		Long: `reload makes a server read its pipelines again. All nodes of its store use them for
new events. Runs that have begun keep their definition. The server refuses pipelines
with errors and lists all findings. It also refuses files without pipelines if it has
some now. A refused reload changes nothing.

The server also refuses to remove a pipeline, or a transition, while accepted events
wait for it. Put it back, wait until the events have run, or pass --drop to give them
up.

With --canary 5%, new runs of 5 % of the keys use the new version. After --step and
--runs, 25 and 50 % of them follow, and then the version becomes current. The server
compares runs of both versions. If the new one is worse, all nodes roll back within a
second, and an alert says why. See procaas release canary, promote and rollback.

With --shadow 5%, no run uses the new version. Nodes replay 5 % of the ended runs with
it, beside the flow, and count what differs. Services answer what they answered the
real run. A replay makes a call for real only if the real run did not make the same one
and the call is safe: a GET, or its service says shadow: true. It sends no secrets.`,
		Example: "  procaas release reload --shadow 5% --reason 'new tariffs'\n  procaas release reload --canary 5% --reason 'new tariffs'",
		Args:    cobra.NoArgs,
	}
	cli.ServerFlags(c)
	f := addRelease(c)
	return cli.Formatted(c, func(q *cli.Call) error {
		how, tried, err := f.read(c)
		if err != nil {
			return err
		}
		found, err := q.Reload(q.Ctx, how)
		return showChange(q, found, err, tried)
	})
}

func addDrop(c *cobra.Command) *bool {
	return c.Flags().Bool("drop", false, "cancel accepted events that wait for removed pipelines or transitions")
}

// showChange prints what another current version would change, or why the server refuses it.
// tried describes a trial of the new version; it is nil if that is current.
func showChange(q *cli.Call, found diff.Diff, err error, tried func(version string) string) error {
	var refused *problem.Problem
	if errors.As(err, &refused) && (refused.Code == problem.InvalidPipelines || refused.Code == problem.EventsWait) {
		return showFindings(q, refused)
	}
	if err != nil {
		return err
	}
	return q.Show(found, func() error {
		if found.Old == found.New {
			return q.Printf("nothing has changed: %s\n", found.New)
		}
		if tried != nil {
			fmt.Fprintf(q.Out, "before %s\n%s\n", found.Old, tried(found.New))
		} else {
			fmt.Fprintf(q.Out, "before %s\nnow    %s\n", found.Old, found.New)
		}
		return diff.Write(q.Out, found)
	})
}

// showFindings prints why a server refuses pipelines.
func showFindings(q *cli.Call, refused *problem.Problem) error {
	err := q.Show(refused, func() error {
		for _, d := range refused.Diagnostics {
			fmt.Fprintf(q.Out, "%s:%d:%d: %s[%s]: %s\n", d.File, d.Line, d.Column, d.Severity, d.Code, d.Message)
			if d.Hint != "" {
				fmt.Fprintf(q.Out, "    help: %s\n", d.Hint)
			}
		}
		why := "the server refuses these pipelines; those before stay"
		if len(refused.Diagnostics) == 0 {
			why = refused.Error() // the problem has no position in a file
		}
		fmt.Fprintln(q.Err, "procaas: "+why)
		return nil
	})
	if err != nil {
		return err
	}
	return cli.ErrFindings
}
