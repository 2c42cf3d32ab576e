package control

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/engine/api/cli"
	"procaas/engine/api/wire"
	"procaas/engine/guard"
	"procaas/engine/model"
	"procaas/engine/steering"
	"procaas/engine/triggers"
)

// measure asks for the effect of a change. It ignores errors: a busy server must not keep people from changing
// controls.
func (x *controlChange) measure(path string, change wire.ControlChange) error {
	ctx, cancel := context.WithTimeout(x.Ctx, 2*time.Second)
	defer cancel()
	effect, err := x.ControlEffect(ctx, path, change)
	if err == nil {
		x.effect = &effect
	}
	return err
}

// nowText says what happens from now on, and to how many runs.
func (x *controlChange) nowText() string {
	e, was, is := x.effect, &x.before, &x.after
	if e == nil {
		return ""
	}
	pipeline, _, _ := strings.Cut(e.Path, "/")
	handlers := diag.Plural(len(e.Handlers), "handler")
	var parts []string
	say := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	trigger, isTrigger := triggers.Of(e.Path)
	switch {
	case isTrigger && is.Mode == guard.ModeHold:
		return "it does not fire, and passes over what is due; procaas triggers backfill " + trigger + " makes up for that"
	case isTrigger:
		return "it fires when it is due next"
	case len(e.Handlers) == 0 && is.Mode == guard.ModeHold: // an add-on declares it
		return "it stops and loses nothing"
	case len(e.Handlers) == 0:
		return "it goes on"
	case is.Mode == guard.ModeHold:
		say("runs stop here and lose nothing; %s has %s", pipeline, runsText(e))
	case is.Mode == guard.ModeKeep && was.Mode != is.Mode:
		say("fallbacks do not take %s out of the flow", handlers)
	case !is.Enabled && was.Mode != is.Mode:
		say("runs continue without %s (%.1f calls/s in the last minute); procaas runs make-up can call later what they leave out",
			diag.Plural(skipped(e, is.Force), "handler"), e.CallsPerS)
	case was.Mode == guard.ModeHold && is.Enabled:
		say("%s resume, as fast as services and limits allow", heldText(e))
	case !was.Enabled && is.Enabled:
		say("new runs call %s again", handlers)
	case was.Mode == guard.ModeKeep && is.Mode == "":
		say("fallbacks may take %s out of the flow again", handlers)
	}
	switch {
	case is.RateLimit != "" && was.RateLimit != is.RateLimit:
		say("%.1f calls/s in the last minute; calls over %s %s; %s", e.CallsPerS, is.RateLimit, cmp.Or(is.Over, "wait"), sharedText(x.Call))
		parts = append(parts, tooMany(e)...)
	case is.RateLimit == "" && was.RateLimit != "":
		say("%s resume", heldText(e))
	}
	switch {
	case is.Deadline != "" && was.Deadline != is.Deadline:
		parts = append(parts, cutText(e))
	case is.Deadline == "" && was.Deadline != "":
		say("the file alone bounds the time of %s again", handlers)
	}
	if p := is.RolloutPercent; p != nil && (was.RolloutPercent == nil || *was.RolloutPercent != *p) {
		say("%g %% of new runs call it", *p)
	}
	return strings.Join(parts, "; ")
}

// tooMany says how long calls will wait if there are more than a limit allows.
func tooMany(e *steering.ControlEffect) []string {
	limit, err := datum.ParseRate(e.Control.RateLimit)
	if err != nil || e.CallsPerS <= limit.PerSecond() || e.Control.Over == "skip" {
		return nil
	}
	longer := time.Duration(min(e.CallsPerS/limit.PerSecond()-1, 1e6) * float64(time.Minute)).Round(time.Second)
	return []string{fmt.Sprintf(
		"more calls come than may start, so with each minute they wait %s longer; deadlines stand still meanwhile", longer)}
}

// checkText returns the command that shows the effect of a change.
func (x *controlChange) checkText(path string) string {
	_, isTrigger := triggers.Of(path)
	switch {
	case isTrigger:
		return "procaas triggers list"
	case x.effect != nil && len(x.effect.Handlers) == 0, model.IsUndo(path): // other lists have no compensations
		return "procaas switch list"
	case x.after.RateLimit != x.before.RateLimit && x.after.RateLimit != "":
		return "procaas limit " + path
	case x.after.Deadline != x.before.Deadline && x.after.Deadline != "", !x.after.Enabled && x.after.Mode == guard.ModeSkip:
		return "procaas runs list --left-out " + path
	}
	return "procaas top " + path
}

// skipped returns how many handlers a switch skips.
func skipped(e *steering.ControlEffect, force bool) (n int) {
	for _, h := range e.Handlers {
		if force || !h.Critical {
			n++
		}
	}
	return n
}

// heldText says how many runs a control holds or limits.
func heldText(e *steering.ControlEffect) string {
	return diag.Plural(e.Stopped, "run") + " parked here"
}

func runsText(e *steering.ControlEffect) string {
	return fmt.Sprintf("%d running, %d waiting and %d parked runs", e.Running, e.Waiting, e.Parked)
}

// showEffect prints the effect of a control.
func (x *controlChange) showEffect(e *steering.ControlEffect) error {
	if _, isTrigger := triggers.Of(e.Path); isTrigger && !e.Control.Enabled {
		fmt.Fprintf(x.Out, "%s: would be paused%s\n", e.Path, cli.Until(e.Control.Until))
		return nil
	}
	fmt.Fprintf(x.Out, "%s: would be %s\n", e.Path, cmp.Or(stateText(guard.ControlView{Control: e.Control}), "on, without limits"))
	fmt.Fprintf(x.Out,
		"%.1f calls/s in the last minute (this node); runs of the pipeline: %d running, %d waiting, %d parked, %d of them here\n",
		e.CallsPerS, e.Running, e.Waiting, e.Parked, e.Stopped)
	for _, line := range tooMany(e) {
		fmt.Fprintln(x.Out, line)
	}
	if e.Control.Deadline != "" {
		return x.showCut(e)
	}
	return cli.Table(x.Out, "HANDLER\tCRITICAL\tCALLS/S\tREAD BY", e.Handlers, func(h steering.HandlerEffect) cli.Row {
		return cli.Row{h.Path, h.Critical, fmt.Sprintf("%.1f", h.CallsPerS), strings.Join(h.ReadBy, ", ")}
	})
}

// showCut prints what a deadline would have cut.
func (x *controlChange) showCut(e *steering.ControlEffect) error {
	fmt.Fprintln(x.Out, cutText(e))
	return cli.Table(x.Out, "HANDLER\tCRITICAL\tCALLS/S\tLONGER\tOF CALLS\tREAD BY", e.Handlers, func(h steering.HandlerEffect) cli.Row {
		return cli.Row{h.Path, h.Critical, fmt.Sprintf("%.1f", h.CallsPerS), h.Slower, h.Ended, strings.Join(h.ReadBy, ", ")}
	})
}
