package authoring

import (
	"fmt"
	"strings"
	"time"

	"procaas/cmd/procaas/internal/runview"
	"procaas/dsl/expr"
	"procaas/engine/api/cli"
	"procaas/engine/checkpoint"
	engineexplain "procaas/engine/explain"
)

// writeExplanation prints why a handler ran in a run, or why not.
func writeExplanation(q *cli.Call, x engineexplain.Explanation) error {
	s := q.Streams
	fmt.Fprintf(s.Out, "%s in run %s (%s): %s\n\n%s\n", x.Path, x.Run, x.Status, x.Outcome, x.Summary)
	v, err := q.Run(q.Ctx, x.Run)
	if err != nil {
		return err
	}
	if v.Event.Origin != "" {
		fmt.Fprintf(s.Out, "its event came from %s\n", v.Event.Origin)
	}
	fmt.Fprint(s.Out, runview.Behind(q, v)+runview.Before(q, v))
	if h := x.Handler; h != nil {
		fmt.Fprintln(s.Out, strings.Join(append([]string{"decided by " + x.DecidedBy}, when(*h)...), ", "))
	}
	for _, t := range x.Tries {
		if t.Error != "" {
			fmt.Fprintf(s.Out, "attempt %d at %s: %s\n", t.Number, cli.Time(t.Began), strings.Join(strings.Fields(t.Error), " "))
		}
	}
	for _, w := range x.WaitedFor {
		fmt.Fprintf(s.Out, "after %s (%s): %s\n", w.Path, w.Outcome, w.Why)
	}
	for _, d := range x.Decisions {
		fmt.Fprintf(s.Out, "\n%s at %s:%d:%d: %s\n", d.What, d.File, d.Line, d.Column, strings.ReplaceAll(d.Result, "_", " "))
		if d.Trace == nil {
			continue
		}
		if err := expr.WriteTrace(s.Out, d.Trace, cli.Colorful(s.Out)); err != nil {
			return err
		}
	}
	list(s, "no longer known", x.Missing)
	list(s, "at present", x.Now)
	return nil
}

// when returns the times of a handler.
func when(h checkpoint.HandlerView) []string {
	var out []string
	if h.Attempts > 0 {
		out = append(out, fmt.Sprintf("attempts: %d", h.Attempts))
	}
	for _, t := range []struct {
		name string
		at   *time.Time
	}{{"started", h.Started}, {"finished", h.Finished}} {
		if t.at != nil {
			out = append(out, t.name+" "+t.at.Local().Format(time.RFC3339Nano))
		}
	}
	return out
}

// list prints lines below a title, if there are any.
func list(s cli.Streams, title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(s.Out, "\n%s:\n", title)
	for _, line := range lines {
		fmt.Fprintln(s.Out, "  "+line)
	}
}
