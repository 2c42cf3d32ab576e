// Package runview prints runs: their progress, their end, and whether they fit other pipelines.
package runview

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"procaas/dsl/diag"
	"procaas/engine/api/cli"
	"procaas/engine/checkpoint"
	"procaas/engine/model"
	"procaas/engine/records"
)

// Print prints the run to standard output. Progress goes to standard error, so the state can be piped.
func Print(s cli.Streams, v checkpoint.RunView) error {
	fmt.Fprintf(s.Out, "%s %s: %s", v.Pipeline, v.Key, v.Status)
	if why := Standstill(v); why != "" && v.Status == model.Parked && v.Reason == "" {
		fmt.Fprintf(s.Out, ", %s", why)
	}
	if v.Finished != nil && v.Started != nil {
		fmt.Fprintf(s.Out, " in %s", roundDuration(v.Finished.Sub(*v.Started)))
	}
	fmt.Fprintln(s.Out)
	for _, why := range []string{v.Error, v.Reason} {
		if why != "" {
			fmt.Fprintln(s.Out, why)
		}
	}
	if v.Outputs != nil {
		fmt.Fprintln(s.Out, "outputs:")
		if err := s.PrintJSON(v.Outputs); err != nil {
			return err
		}
	}
	fmt.Fprintln(s.Out, "shared-state:")
	return s.PrintJSON(v.SharedState)
}

// A Tree prints the handlers of a run as they end, each once.
type Tree struct {
	W     io.Writer
	Quiet bool // for JSON
	Live  bool // further views follow: a running handler delays those below it
	Color bool
	shown map[string]string // outcome that was printed last, by handler and caller
	stage string            // of the last printed title
}

// Show prints what has ended since the last view, in the order of the definition. It prints handlers of a
// repeated stage when all elements have ended, since their lines change with each element.
func (p *Tree) Show(v checkpoint.RunView) {
	if p.Quiet {
		return
	}
	if p.shown == nil {
		p.shown = map[string]string{}
		fmt.Fprintln(p.W, v.Event.Type)
	}
	repeated := map[string]bool{} // repeated stages, and whether all elements have ended
	for _, h := range v.Handlers {
		if h.RepeatsStage() {
			repeated[h.Path] = h.Finished != nil
		}
	}
	for _, h := range v.Handlers {
		name := h.Within + ">" + h.Path
		done, ok := repeated[h.Stage()]
		unfinished := ok && !done
		if (unfinished || h.Outcome == model.OutcomeRunning) && p.Live && !v.Status.Ended() {
			return // later ones have to wait
		}
		if unfinished || p.shown[name] == h.Outcome {
			continue
		}
		p.shown[name] = h.Outcome
		p.line(h)
	}
}

// line prints one handler below the title of its stage.
func (p *Tree) line(h checkpoint.HandlerView) {
	parts := append(strings.SplitN(h.Path, "/", 3), "", "") // a server of another version may send less
	caller := callerOf(h)
	if stage := caller + ">" + parts[0] + "/" + parts[1]; stage != p.stage {
		p.stage = stage
		title := parts[1]
		if caller != "" {
			title = parts[0] + "/" + parts[1] + ", called by " + caller
		}
		if h.RepeatsStage() {
			title += " " + handlerNote(h)
		}
		fmt.Fprintf(p.W, "├─ %s\n", title)
	}
	if h.RepeatsStage() {
		return
	}
	name := parts[2]
	if _, index, ok := strings.Cut(h.Within, "["); ok && strings.Count(h.Within, "/") == 1 {
		name += "[" + index
	}
	mark, tint := "✓", "32"
	switch h.Outcome {
	case model.OutcomeFailed:
		mark, tint = "✗", "31"
	case model.OutcomeSkipped:
		mark, tint = "–", "33"
	case model.OutcomeWaiting, model.OutcomeRunning:
		mark, tint = "…", "36"
	case model.OutcomeUnknown:
		mark, tint = "?", "31"
	}
	if p.Color {
		mark = "\x1b[" + tint + "m" + mark + "\x1b[0m"
	}
	fmt.Fprintf(p.W, "│  %s %s %s\n", mark, name, handlerNote(h))
}

// callerOf returns the handler that called the pipeline of a handler, or "".
func callerOf(h checkpoint.HandlerView) string {
	within := h.Within[strings.LastIndex(h.Within, ">")+1:]
	if strings.Count(within, "/") < 2 {
		return ""
	}
	return within[strings.LastIndex(within, "/")+1:]
}

// handlerNote describes a handler: duration, attempts, and reason.
func handlerNote(h checkpoint.HandlerView) string {
	var notes []string
	if h.Started != nil && h.Finished != nil {
		notes = append(notes, roundDuration(h.Finished.Sub(*h.Started)).String())
	}
	if h.Items != nil {
		notes = append(notes, h.Items.String())
	} else if h.Attempts > 1 {
		notes = append(notes, fmt.Sprintf("%d attempts", h.Attempts))
	}
	if h.Outcome == model.OutcomeUnknown && h.Attempts > 0 {
		notes = append(notes, "sent, answer unknown")
	} else if h.Outcome != model.OutcomeSucceeded {
		notes = append(notes, h.Outcome+until(h.Due))
	}
	for _, why := range []string{h.Reason, h.Error} {
		if why != "" {
			notes = append(notes, why)
		}
	}
	if h.Due != nil && h.Reason == "" && h.Error == "" {
		notes = append(notes, "as its wait says")
	}
	return strings.Join(notes, ", ")
}

func until(t *time.Time) string {
	if t == nil {
		return ""
	}
	return " until " + cli.Time(*t)
}

// Standstill says what a parked run waits for: which handler, until when and why. A handler with a reason comes
// first. It ignores when the node checks the run again, since a held run is checked a day later and may be
// released at any time.
func Standstill(v checkpoint.RunView) string {
	text := ""
	for _, h := range v.Handlers {
		if h.Outcome != model.OutcomeWaiting {
			continue
		}
		why := cmp.Or(h.Reason, h.Error)
		switch {
		case why != "":
			return h.Path + until(h.Due) + ": " + why
		case text == "" && h.Due != nil:
			text = h.Path + " waits" + until(h.Due)
		}
	}
	if text == "" && v.Due != nil {
		text = "due " + cli.Time(*v.Due)
	}
	return text
}

// roundDuration keeps about three digits.
func roundDuration(d time.Duration) time.Duration {
	switch {
	case d > time.Second:
		return d.Round(10 * time.Millisecond)
	case d > time.Millisecond:
		return d.Round(100 * time.Microsecond)
	default:
		return d.Round(time.Microsecond)
	}
}

// Fits prints which runs fit other pipelines, for diff and migrate.
type Fits struct {
	cli.Streams
	Done        bool // those that fit were moved
	Lists       bool // also list those that fit
	Fit, Pinned int
}

// Add counts a run, and lists it if it does not fit.
func (r *Fits) Add(fit records.RunFit) {
	if fit.Compatible {
		r.Fit++
		if r.Lists && r.Fit <= mostTold {
			fmt.Fprintf(r.Out, "  run %s of %s fits: %s\n", fit.ID, fit.Pipeline, fit.Status)
		}
	} else if r.Pinned++; r.Pinned <= mostTold {
		fmt.Fprintf(r.Out, "! run %s of %s is pinned: %s\n", fit.ID, fit.Pipeline, fit.Why)
	}
}

// mostTold is how many runs of each kind are listed.
const mostTold = 20

// Sum returns the totals.
func (r *Fits) Sum() string {
	text := fmt.Sprintf("%d compatible, %d pinned", r.Fit, r.Pinned)
	if r.Done {
		text = fmt.Sprintf("migrated %s, %d pinned", diag.Plural(r.Fit, "run"), r.Pinned)
	}
	if more := r.Pinned - mostTold; more > 0 {
		text = fmt.Sprintf("! and %d more are pinned\n", more) + text
	}
	if more := r.Fit - mostTold; r.Lists && more > 0 {
		text = fmt.Sprintf("  and %d more fit\n", more) + text
	}
	return text
}
