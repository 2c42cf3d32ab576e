package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"procaas/dsl/datum"
	"procaas/engine"
	"procaas/engine/api/problem"
	"procaas/engine/api/wire"
	"procaas/engine/guard"
)

func switchCommand(s streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "switch",
		Short: "Switch pipelines, stages and handlers off and on, on all nodes",
		Long: `switch changes what runs, by path: a pipeline, pipeline/stage or
pipeline/stage/handler. It counts on every node within a second, survives
restarts, and is audited.

off leaves handlers out, as if their enabled were false; hold parks runs before
them, and loses nothing: they go on when the switch is on again. A handler that
has gone out of the flow by itself, for its fallback, is put back by on, and keep
lets none go.`,
		Args: onlySubcommands,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	var f clientFlags
	f.add(c)
	c.AddCommand(
		switchOff(s, &f, "off PATH", guard.ModeSkip, "Leave out what is below a path, for an hour unless you say otherwise"),
		switchOff(s, &f, "hold PATH", guard.ModeHold, "Park runs before what is below a path, for an hour unless you say otherwise"),
		switchKeep(s, &f), switchOn(s, &f), switchList(s, &f), switchUndo(s, &f),
	)
	return c
}

// controlFlags are what the commands that change a control have in common.
type controlFlags struct {
	*clientFlags
	reason string
	dryRun bool
	format func() (string, error)
	ended  []string // handlers that were put back into the flow
}

func (f *controlFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.reason, "reason", "", "why, for the audit and for all who look")
	c.Flags().BoolVar(&f.dryRun, "dry-run", false, "change nothing, tell what would be affected")
	f.format = formatFlag(c, "text", "json")
}

func switchOff(s streams, client *clientFlags, use, mode, short string) *cobra.Command {
	word, _, _ := strings.Cut(use, " ")
	c := &cobra.Command{
		Use: use, Short: short, Args: cobra.ExactArgs(1),
		Example: "  procaas switch " + word + ` new-order-created/notify/notify-driver --for 30m --reason "push is down"`,
	}
	f := controlFlags{clientFlags: client}
	f.add(c)
	end := addEnd(c, "when it is on again by itself, such as 30m or 2h", "until somebody switches it on")
	var force bool
	if mode == guard.ModeSkip {
		c.Flags().BoolVar(&force, "force", false, "leave out critical handlers, too: their runs go on without them")
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		until, err := end()
		if err != nil {
			return err
		}
		return f.change(c.Context(), s, args[0], func(now *guard.Control) {
			now.Enabled, now.Mode, now.Force, now.Until = false, mode, force, until
		})
	}
	return c
}

// addEnd adds the flags that say when a switch ends. What it gives is to be called
// when they are parsed; it gives nil for never.
func addEnd(c *cobra.Command, forUsage, foreverUsage string) func() (*time.Time, error) {
	duration := c.Flags().String("for", "1h", forUsage)
	forever := c.Flags().Bool("forever", false, foreverUsage)
	return func() (*time.Time, error) {
		until, err := endAfter(*duration)
		switch {
		case err != nil:
			return nil, err
		case *forever && c.Flags().Changed("for"):
			return nil, usagef("switch %s takes --for or --forever, not both", c.Name())
		case *forever:
			return nil, nil
		}
		return until, nil
	}
}

// endAfter reads what --for says: when something ends that begins now.
func endAfter(text string) (*time.Time, error) {
	d, err := datum.ParseDuration(text)
	if err != nil {
		return nil, usagef("--for: %w", err)
	}
	if d <= 0 {
		return nil, usagef("--for: want a duration over 0, such as 30m, have %q", text)
	}
	end := time.Now().Add(d)
	return &end, nil
}

func switchKeep(s streams, client *clientFlags) *cobra.Command {
	c := &cobra.Command{
		Use: "keep PATH", Short: "Let no handler below a path go out of the flow by itself, for an hour unless you say otherwise",
		Args:    cobra.ExactArgs(1),
		Example: `  procaas switch keep new-order-created/notify --for 2h --reason "errors of the new push service are known"`,
	}
	f := controlFlags{clientFlags: client}
	f.add(c)
	end := addEnd(c, "when fallbacks count again, such as 30m or 2h", "until somebody changes it")
	c.RunE = func(c *cobra.Command, args []string) error {
		until, err := end()
		if err != nil {
			return err
		}
		return f.change(c.Context(), s, args[0], func(now *guard.Control) {
			now.Enabled, now.Mode, now.Until, now.Force = true, guard.ModeKeep, until, now.Force && now.RolloutPercent != nil
		})
	}
	return c
}

func switchOn(s streams, client *clientFlags) *cobra.Command {
	c := &cobra.Command{
		Use: "on PATH", Short: "Switch a path on again; held runs go on", Args: cobra.ExactArgs(1),
		Long: `on ends what keeps handlers below a path from being called: a switch that is off
at this path, and fallbacks by which they have gone out of the flow by
themselves. They go out again when their calls fail from now on; switch keep
forbids that.`,
		Example: "  procaas switch on new-order-created/notify/notify-driver",
	}
	f := controlFlags{clientFlags: client}
	f.add(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		f.ended = []string{}
		if !f.dryRun {
			var err error
			if f.ended, err = f.client().EndFallbacks(c.Context(), args[0], f.reason); err != nil {
				return err
			}
		}
		return f.change(c.Context(), s, args[0], func(now *guard.Control) {
			now.Enabled, now.Mode, now.Until, now.Force = true, "", nil, now.Force && now.RolloutPercent != nil
		})
	}
	return c
}

func switchList(s streams, f *clientFlags) *cobra.Command {
	c := &cobra.Command{Use: "list", Short: "List switches, limits and rollouts that are set", Args: cobra.NoArgs}
	c.RunE = formatted(c, []string{"text", "json"}, func(c *cobra.Command, _ []string, out string) error {
		controls, err := f.client().Controls(c.Context())
		if err != nil {
			return err
		}
		if out == "json" {
			return printJSON(s.out, map[string]any{"items": controls, "next": nil})
		}
		w := newTable(s.out, "PATH\tSTATE\tBY\tREASON")
		for _, v := range controls {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", v.Path, stateText(v), v.By, v.Reason)
		}
		return w.Flush()
	})
	return c
}

func switchUndo(s streams, f *clientFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "undo REVISION",
		Short: "Take a change of a switch, limit or rollout back",
		Long: `undo puts back what was before a change. Each change tells its revision, and so
does the audit. It is refused when somebody has changed the same path since.`,
		Example: "  procaas switch undo 17",
		Args:    cobra.ExactArgs(1),
	}
	reason := c.Flags().String("reason", "", "why, for the audit")
	c.RunE = func(c *cobra.Command, args []string) error {
		revision, err := strconv.ParseInt(args[0], 10, 32)
		if err != nil || revision < 1 {
			return usagef("want the revision of a change, such as 17, have %q", args[0])
		}
		undone, err := f.client().UndoControl(c.Context(), revision, *reason)
		if err != nil {
			return err
		}
		if undone.Control == nil {
			fmt.Fprintf(s.out, "%s: nothing is set\n", undone.Path)
			return nil
		}
		fmt.Fprintf(s.out, "%s: %s\n", undone.Path, stateText(*undone.Control))
		return nil
	}
	return c
}

func limitCommand(s streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "limit PATH RATE | limit PATH --remove",
		Short: "Limit the calls below a path, on all nodes together",
		Example: `  procaas limit new-order-created/notify 10/s --reason "push is slow"
  procaas limit new-order-created/notify --remove`,
		Args: cobra.RangeArgs(1, 2),
	}
	var client clientFlags
	client.add(c)
	f := controlFlags{clientFlags: &client}
	f.add(c)
	over := c.Flags().String("over", "wait", "what becomes of a call over the limit: wait or skip; critical handlers always wait")
	duration := c.Flags().String("for", "", "when the limit ends by itself, such as 30m; never when it is left out")
	remove := c.Flags().Bool("remove", false, "remove the limit")
	c.RunE = func(c *cobra.Command, args []string) error {
		if *remove != (len(args) == 1) {
			return usagef("limit takes a rate such as 10/s, or --remove; use: %s", c.UseLine())
		}
		if *remove {
			return f.change(c.Context(), s, args[0], func(now *guard.Control) {
				now.RateLimit, now.Over, now.LimitUntil = "", "", nil
			})
		}
		var until *time.Time
		if *duration != "" {
			var err error
			if until, err = endAfter(*duration); err != nil {
				return err
			}
		}
		return f.change(c.Context(), s, args[0], func(now *guard.Control) {
			now.RateLimit, now.Over, now.LimitUntil = args[1], *over, until
		})
	}
	return c
}

func rolloutCommand(s streams) *cobra.Command {
	c := &cobra.Command{
		Use:     "rollout PATH PERCENT | rollout PATH --remove",
		Short:   "Let a handler run in a share of the runs",
		Example: "  procaas rollout new-order-created/notify/bonus 25",
		Args:    cobra.RangeArgs(1, 2),
	}
	var client clientFlags
	client.add(c)
	f := controlFlags{clientFlags: &client}
	f.add(c)
	remove := c.Flags().Bool("remove", false, "go by the definition again")
	force := c.Flags().Bool("force", false, "although the handler is critical")
	c.RunE = func(c *cobra.Command, args []string) error {
		if *remove != (len(args) == 1) {
			return usagef("rollout takes a percentage, or --remove; use: %s", c.UseLine())
		}
		var percent *float64
		if !*remove {
			p, err := strconv.ParseFloat(strings.TrimSuffix(args[1], "%"), 64)
			if err != nil || math.IsNaN(p) || math.IsInf(p, 0) {
				return usagef("want a percentage such as 25, have %q", args[1])
			}
			percent = &p
		}
		return f.change(c.Context(), s, args[0], func(now *guard.Control) {
			now.RolloutPercent = percent
			now.Force = percent != nil && *force || now.Force && !now.Enabled
		})
	}
	return c
}

// change changes the control of a path and leaves the rest of it as it is. When
// another one changes it at the same time, it looks again.
func (f *controlFlags) change(ctx context.Context, s streams, path string, edit func(*guard.Control)) error {
	format, err := f.format()
	if err != nil {
		return err
	}
	if err := checkControlPath(path); err != nil {
		return err
	}
	const tries = 5
	for try := 1; ; try++ {
		err := f.changeOnce(ctx, s, path, edit, format)
		var refused *problem.Problem
		if try < tries && errors.As(err, &refused) && refused.Status == http.StatusPreconditionFailed {
			continue
		}
		return err
	}
}

// checkControlPath refuses what has not the form of a path. Whether there is such a
// path, the server knows.
func checkControlPath(path string) error {
	parts := strings.Split(path, "/")
	if len(parts) > 3 || slices.Contains(parts, "") {
		return usagef("want pipeline, pipeline/stage or pipeline/stage/handler, have %q", path)
	}
	return nil
}

func (f *controlFlags) changeOnce(ctx context.Context, s streams, path string, edit func(*guard.Control), format string) error {
	controls, err := f.client().Controls(ctx)
	if err != nil {
		return err
	}
	c, revision, reason := guard.Control{Enabled: true}, int64(0), f.reason
	i := slices.IndexFunc(controls, func(v guard.ControlView) bool { return v.Path == path })
	if i >= 0 {
		c, revision = controls[i].Control.Present(time.Now()), controls[i].Revision
		reason = cmp.Or(reason, controls[i].Reason)
	}
	edit(&c)
	if c.Enabled && c.Mode == "" && c.RateLimit == "" && c.RolloutPercent == nil {
		return f.remove(ctx, s, path, revision, format)
	}
	change := wire.NewControlChange(c, reason)
	if f.dryRun {
		effect, err := f.client().ControlEffect(ctx, path, change)
		if err != nil {
			return err
		}
		return showEffect(s, effect, format)
	}
	view, err := f.client().SetControl(ctx, path, change, revision)
	if err != nil {
		return err
	}
	if format == "json" {
		return printJSON(s.out, view)
	}
	fmt.Fprintf(s.out, "%s: %s%s\n", path, stateText(view), f.endedText())
	fmt.Fprintf(s.err, "undo: procaas switch undo %d\n", view.Revision)
	return nil
}

// remove removes the control of a path; nothing is left of it.
func (f *controlFlags) remove(ctx context.Context, s streams, path string, revision int64, format string) error {
	switch {
	case revision == 0 && len(f.ended) > 0 && format == "json":
		return printJSON(s.out, wire.FallbacksEnded{Path: path, Handlers: f.ended})
	case revision == 0 && len(f.ended) > 0:
		fmt.Fprintf(s.out, "%s: on%s\n", path, f.endedText())
		return nil
	case revision == 0:
		fmt.Fprintf(s.err, "%s: nothing is set\n", path)
		return nil
	case f.dryRun:
		fmt.Fprintf(s.err, "%s: nothing would be set any more\n", path)
		return nil
	}
	removed, err := f.client().RemoveControl(ctx, path, f.reason, revision)
	if err != nil {
		return err
	}
	if format == "json" {
		return printJSON(s.out, removed)
	}
	fmt.Fprintf(s.out, "%s: on, without limits%s\n", path, f.endedText())
	fmt.Fprintf(s.err, "undo: procaas switch undo %d\n", removed.Revision)
	return nil
}

// endedText tells which handlers were put back into the flow.
func (f *controlFlags) endedText() string {
	if len(f.ended) == 0 {
		return ""
	}
	return "; back in the flow: " + strings.Join(f.ended, ", ")
}

// stateText says in a few words what a control does.
func stateText(v guard.ControlView) string {
	if v.Expired {
		return "has ended"
	}
	until := func(t *time.Time) string {
		if t == nil {
			return ""
		}
		return " until " + t.Local().Format(time.DateTime)
	}
	var out []string
	c := v.Control.Present(time.Now())
	switch {
	case c.Mode == guard.ModeKeep:
		out = append(out, "kept in the flow"+until(c.Until))
	case c.Enabled:
	case c.Mode == guard.ModeHold:
		out = append(out, "hold"+until(c.Until))
	default:
		out = append(out, "off"+until(c.Until))
	}
	if c.RateLimit != "" {
		out = append(out, c.RateLimit+", over: "+c.Over+until(c.LimitUntil))
	}
	if c.RolloutPercent != nil {
		out = append(out, fmt.Sprintf("%g %% of runs", *c.RolloutPercent))
	}
	return strings.Join(out, "; ")
}

// showEffect tells what a control would do.
func showEffect(s streams, e engine.ControlEffect, format string) error {
	if format == "json" {
		return printJSON(s.out, e)
	}
	fmt.Fprintf(s.out, "%s: would be %s\n", e.Path, stateText(guard.ControlView{Control: e.Control}))
	fmt.Fprintf(s.out, "%.1f calls/s now (on that node); runs of the pipeline: %d running, %d waiting, %d parked\n",
		e.CallsPerS, e.Running, e.Waiting, e.Parked)
	w := newTable(s.out, "HANDLER\tCRITICAL\tCALLS/S\tREAD BY")
	for _, h := range e.Handlers {
		fmt.Fprintf(w, "%s\t%v\t%.1f\t%s\n", h.Path, h.Critical, h.CallsPerS, strings.Join(h.ReadBy, ", "))
	}
	return w.Flush()
}
