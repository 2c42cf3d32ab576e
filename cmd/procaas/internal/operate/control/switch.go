// Package control has the commands that switch and limit paths.
package control

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"procaas/engine/api/cli"
	"procaas/engine/api/problem"
	"procaas/engine/api/wire"
	"procaas/engine/guard"
	"procaas/engine/model"
	"procaas/engine/steering"
	"procaas/engine/triggers"
)

// Commands returns the commands.
func Commands() []*cobra.Command {
	return []*cobra.Command{switchCommand(), limitCommand(), deadlineCommand()}
}

func switchCommand() *cobra.Command {
	return cli.Group(&cobra.Command{
		Use:   "switch",
		Short: "Switch pipelines, stages and handlers off and on, on all nodes",
		Long: `switch turns paths off and on: a pipeline, pipeline/stage or pipeline/stage/handler.
A path may be shortened from the left when only one handler or stage ends with it. That of
the compensation of a handler has /compensate behind it. A switch takes effect on every node
within a second, survives restarts, and is audited.

  off    skips the handlers, as if their field enabled were false; runs that wait
         for a limit of theirs continue without them
  hold   parks runs before the path, and loses nothing: they resume at switch on
  on     ends both, and brings back handlers that a fallback took out of the flow
  keep   keeps fallbacks from taking handlers out of the flow`,
	},
		switchOff("off PATH", guard.ModeSkip, "Skip the handlers below a path, for an hour by default"),
		switchOff("hold PATH", guard.ModeHold, "Park runs before a path, for an hour by default"),
		switchKeep(), switchOn(), switchList(), switchUndo(),
	)
}

// A controlChange is the common part of commands that change a control.
type controlChange struct {
	*cli.Call
	reason string
	dryRun bool
	ended  []string // handlers whose outage was ended

	before, after guard.Control
	effect        *steering.ControlEffect // nil if unknown
}

// An edit changes some fields of a control.
type edit func(now *guard.Control)

// changes makes c change the control of the path in its first argument. It calls prepare once, before it asks
// the server.
func changes(c *cobra.Command, prepare func(*controlChange) (edit, error)) *cobra.Command {
	return changesAt(c, func(q *cli.Call, path string) (string, error) {
		if err := checkControlPath(path); err != nil {
			return "", err
		}
		return q.WholePath(path)
	}, prepare)
}

// changesAt is changes for the path that pathOf makes of the first argument.
func changesAt(c *cobra.Command, pathOf func(q *cli.Call, argument string) (string, error), prepare func(*controlChange) (edit, error)) *cobra.Command {
	x := controlChange{}
	c.Flags().StringVar(&x.reason, "reason", "", "reason, for the audit and for colleagues")
	c.Flags().BoolVar(&x.dryRun, "dry-run", false, "change nothing, and show what it would affect")
	return cli.Formatted(c, func(q *cli.Call) error {
		x.Call = q
		var err error
		if q.Args[0], err = pathOf(q, q.Args[0]); err != nil {
			return err
		}
		change, err := prepare(&x)
		if err != nil {
			return err
		}
		return x.change(q.Args[0], change)
	})
}

func switchOff(use, mode, short string) *cobra.Command {
	word, _, _ := strings.Cut(use, " ")
	c := &cobra.Command{
		Use: use, Short: short, Args: cobra.ExactArgs(1),
		Example: "  procaas switch " + word + ` new-order-created/notify/notify-driver --for 30m --reason "push is down"`,
	}
	end := addEnd(c, "switch on again after this time, such as 30m or 2h", "stay off until somebody switches it on")
	var force bool
	if mode == guard.ModeSkip {
		c.Flags().BoolVar(&force, "force", false, "also skip critical handlers: their runs continue without them")
	}
	return changes(c, func(*controlChange) (edit, error) {
		until, err := end()
		return func(now *guard.Control) {
			now.Enabled = false
			now.Mode = mode
			now.Force = force
			now.Until = until
		}, err
	})
}

// addEnd adds the flags for the end of a switch. Call the returned function after parsing. It returns nil for
// no end.
func addEnd(c *cobra.Command, forUsage, foreverUsage string) func() (*time.Time, error) {
	duration := c.Flags().String("for", "1h", forUsage)
	forever := c.Flags().Bool("forever", false, foreverUsage)
	return func() (*time.Time, error) {
		until, err := cli.EndAfter(*duration)
		switch {
		case err != nil:
			return nil, err
		case *forever && c.Flags().Changed("for"):
			return nil, cli.Usagef("switch %s takes --for or --forever, not both", c.Name())
		case *forever:
			return nil, nil
		}
		return until, nil
	}
}

func switchKeep() *cobra.Command {
	c := &cobra.Command{
		Use: "keep PATH", Short: "Keep fallbacks from taking handlers below a path out, for an hour by default",
		Args:    cobra.ExactArgs(1),
		Example: `  procaas switch keep new-order-created/notify --for 2h --reason "errors of the new push service are known"`,
	}
	end := addEnd(c, "let fallbacks act again after this time, such as 30m or 2h", "stay until somebody changes it")
	return changes(c, func(*controlChange) (edit, error) {
		until, err := end()
		return func(now *guard.Control) {
			now.Enabled = true
			now.Mode = guard.ModeKeep
			now.Until = until
			now.Force = now.Force && now.RolloutPercent != nil
		}, err
	})
}

func switchOn() *cobra.Command {
	c := &cobra.Command{
		Use: "on PATH", Short: "Switch a path on again; held runs resume", Args: cobra.ExactArgs(1),
		Long: `on ends what keeps the handlers below a path from being called: the switch at this
path, and fallbacks that took handlers out of the flow. A fallback can take them out
again when their calls fail. Use switch keep to prevent that.`,
		Example: "  procaas switch on new-order-created/notify/notify-driver",
	}
	return changes(c, func(x *controlChange) (_ edit, err error) {
		x.ended = []string{}
		if !x.dryRun {
			x.ended, err = x.EndFallbacks(x.Ctx, x.Args[0], x.reason)
		}
		return func(now *guard.Control) {
			now.Enabled = true
			now.Mode = ""
			now.Until = nil
			now.Force = now.Force && now.RolloutPercent != nil
		}, err
	})
}

func switchList() *cobra.Command {
	c := &cobra.Command{Use: "list", Short: "List current switches, limits, deadlines and rollouts", Args: cobra.NoArgs}
	return cli.Formatted(c, func(q *cli.Call) error {
		all, err := q.Controls(q.Ctx)
		if err != nil {
			return err
		}
		return q.Show(cli.Items(all), func() error {
			return cli.Table(q.Out, "PATH\tSTATE\tBY\tREASON", guard.Apart(all, time.Now()),
				func(v guard.ControlView) cli.Row { return cli.Row{v.Path, stateText(v), v.By, v.Reason} })
		})
	})
}

func switchUndo() *cobra.Command {
	c := &cobra.Command{
		Use:   "undo REVISION",
		Short: "Undo a change of a switch, limit, deadline or rollout",
		Long: `undo restores what was set before a change. Each change prints its revision, and the
audit has it too. The server refuses to undo if somebody changed the same path since.`,
		Example: "  procaas switch undo 17",
		Args:    cobra.ExactArgs(1),
	}
	reason := cli.Reason(c)
	return cli.Calls(c, func(q *cli.Call) error {
		revision, err := strconv.ParseInt(q.Args[0], 10, 32)
		if err != nil || revision < 1 {
			return cli.Usagef("want the revision of a change, such as 17, have %q", q.Args[0])
		}
		undone, err := q.UndoControl(q.Ctx, revision, *reason)
		if err != nil {
			return err
		}
		state := "nothing is set"
		if undone.Control != nil {
			state = stateText(*undone.Control)
		}
		cli.Outlook{Check: "procaas top " + undone.Path}.Tell(q)
		return q.Printf("%s: %s\n", undone.Path, state)
	})
}

// Rollout returns the command that runs a handler in a share of the runs.
func Rollout() *cobra.Command {
	c := &cobra.Command{
		Use:     "rollout PATH PERCENT | rollout PATH --remove",
		Short:   "Run a handler in only a share of the runs",
		Example: "  procaas release rollout new-order-created/notify/bonus 25",
		Args:    cobra.RangeArgs(1, 2),
	}
	cli.ServerFlags(c)
	remove := c.Flags().Bool("remove", false, "remove the rollout")
	force := c.Flags().Bool("force", false, "also for a critical handler")
	return changes(c, func(x *controlChange) (edit, error) {
		if *remove != (len(x.Args) == 1) {
			return nil, cli.Usagef("rollout takes a percentage, or --remove; use: %s", c.UseLine())
		}
		var percent *float64
		if !*remove {
			p, err := strconv.ParseFloat(strings.TrimSuffix(x.Args[1], "%"), 64)
			if err != nil || math.IsNaN(p) || math.IsInf(p, 0) {
				return nil, cli.Usagef("want a percentage such as 25, have %q", x.Args[1])
			}
			percent = &p
		}
		return func(now *guard.Control) {
			now.RolloutPercent = percent
			now.Force = percent != nil && *force || now.Force && !now.Enabled
		}, nil
	})
}

// change changes the control of a path. After a concurrent change it tries again.
func (x *controlChange) change(path string, change edit) error {
	const tries = 5
	for try := 1; ; try++ {
		err := x.changeOnce(path, change)
		var refused *problem.Problem
		if try < tries && errors.As(err, &refused) && refused.Status == http.StatusPreconditionFailed {
			continue
		}
		return err
	}
}

// checkControlPath refuses an invalid path. The server knows whether the path exists.
func checkControlPath(path string) error {
	parts := strings.Split(strings.TrimSuffix(path, model.UndoPath), "/")
	if len(parts) > 3 || slices.Contains(parts, "") {
		return cli.Usagef("want pipeline, pipeline/stage, pipeline/stage/handler, or a handler followed by %s, have %q", model.UndoPath, path)
	}
	return nil
}

func (x *controlChange) changeOnce(path string, do edit) error {
	controls, err := x.Controls(x.Ctx)
	if err != nil {
		return err
	}
	c, revision := guard.Control{Enabled: true}, int64(0)
	i := slices.IndexFunc(controls, func(v guard.ControlView) bool { return v.Path == path })
	if i >= 0 {
		c, revision = controls[i].Control.Present(time.Now()), controls[i].Revision
	}
	x.before = c
	do(&c)
	x.after = c
	lifts := revision > 0 && (x.before.Mode == guard.ModeHold || x.before.RateLimit != "")
	change := wire.NewControlChange(c, x.reason)
	if x.dryRun || lifts { // held runs are counted before they resume
		if err := x.measure(path, change); err != nil && x.dryRun {
			return err
		}
	}
	if x.dryRun {
		return x.Show(x.effect, func() error { return x.showEffect(x.effect) })
	}
	if c.IsFree() {
		return x.remove(path, revision)
	}
	view, err := x.SetControl(x.Ctx, path, change, revision)
	if err != nil {
		return err
	}
	if _, isTrigger := triggers.Of(path); isTrigger {
		return x.tell(view, view.Revision, path, "paused"+cli.Until(view.Until))
	}
	return x.tell(view, view.Revision, path, stateText(view))
}

// remove removes the control of a path.
func (x *controlChange) remove(path string, revision int64) error {
	switch {
	case revision == 0 && len(x.ended) > 0:
		return x.Tell(wire.FallbacksEnded{Path: path, Handlers: x.ended}, "%s: on%s\n", path, x.endedText())
	case revision == 0:
		fmt.Fprintf(x.Err, "%s: nothing is set\n", path)
		return nil
	}
	removed, err := x.RemoveControl(x.Ctx, path, x.reason, revision)
	if err != nil {
		return err
	}
	if _, isTrigger := triggers.Of(path); isTrigger {
		return x.tell(removed, removed.Revision, path, "active")
	}
	return x.tell(removed, removed.Revision, path, "on, without limits")
}

// tell prints the new state of a path, and how to undo the change.
func (x *controlChange) tell(v any, revision int64, path, state string) error {
	return x.Show(v, func() error {
		if x.effect == nil { // the switch must not wait for the count, and works without it
			_ = x.measure(path, wire.NewControlChange(x.after, ""))
		}
		fmt.Fprintf(x.Out, "%s: %s%s\n", path, state, x.endedText())
		cli.Outlook{Now: x.nowText(), Check: x.checkText(path), Undo: fmt.Sprintf("procaas switch undo %d", revision)}.Tell(x.Call)
		return nil
	})
}

// endedText lists the handlers whose outage was ended.
func (x *controlChange) endedText() string {
	if len(x.ended) == 0 {
		return ""
	}
	return "; back in the flow: " + strings.Join(x.ended, ", ")
}

// stateText describes a control in a few words.
func stateText(v guard.ControlView) string {
	if v.Expired {
		return "has ended"
	}
	var out []string
	c := v.Control.Present(time.Now())
	switch {
	case c.Mode == guard.ModeKeep:
		out = append(out, "kept in the flow"+cli.Until(c.Until))
	case c.Enabled:
	case c.Mode == guard.ModeHold:
		out = append(out, "hold"+cli.Until(c.Until))
	default:
		out = append(out, "off"+cli.Until(c.Until))
	}
	if c.RateLimit != "" {
		out = append(out, c.RateLimit+", over: "+c.Over+cli.Until(c.LimitUntil))
	}
	if c.Deadline != "" {
		out = append(out, "at most "+c.Deadline+" a handler"+cli.Until(c.DeadlineUntil))
	}
	if c.RolloutPercent != nil {
		out = append(out, fmt.Sprintf("%g %% of runs", *c.RolloutPercent))
	}
	return strings.Join(out, "; ")
}
