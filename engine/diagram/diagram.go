package diagram

import (
	"fmt"
	"io"
	"strings"

	"procaas/dsl/datum"
	"procaas/engine/planner"
)

// A Format is a format of a plan.
type Format string

// These are the formats of plans.
const (
	Text    Format = "text"    // for a terminal: every wait with its cause
	JSON    Format = "json"    // one [planner.PlanView]
	Mermaid Format = "mermaid" // a flowchart, as Markdown viewers draw it
	DOT     Format = "dot"     // a graph for Graphviz
)

// Write writes a plan. Text, Mermaid and DOT omit edges that others imply.
func Write(w io.Writer, p *planner.Plan, format Format) error {
	var err error
	switch format {
	case Text:
		_, err = io.WriteString(w, text(p.View()))
	case JSON:
		err = datum.WriteJSON(w, p.View())
	case Mermaid:
		_, err = io.WriteString(w, drawMermaid(p.View()))
	case DOT:
		_, err = io.WriteString(w, drawDOT(p.View()).String()) // its own Write ignores errors
	default:
		err = fmt.Errorf("want the plan as text, json, mermaid or dot, have %q", format)
	}
	return err
}

// text returns a plan for a terminal.
func text(v planner.PlanView) string {
	var b strings.Builder
	fmt.Fprintf(&b, "pipeline %s, ", v.Pipeline)
	if len(v.On) > 0 {
		b.WriteString("on " + strings.Join(v.On, ", "))
	} else {
		b.WriteString("run by calls")
	}
	if v.Flow != "" {
		fmt.Fprintf(&b, ", flow %s", v.Flow)
	}
	fmt.Fprintf(&b, "%s%s", longest(v.Longest, v.Deadline), target(v.Target))
	if v.Retention != "" {
		fmt.Fprintf(&b, ", kept for %s after the end", v.Retention)
	}
	b.WriteByte('\n')
	for _, s := range v.Sources {
		fmt.Fprintf(&b, "  from %s\n", sourceCaption(s, ": "))
	}
	for i, stage := range v.Stages {
		if stage.Final {
			fmt.Fprintf(&b, "\nfinally, however the run ends%s\n", longest(stage.Longest, stage.Deadline))
		} else {
			fmt.Fprintf(&b, "\nstage %d: %s%s%s\n", i+1, stage.ID, longest(stage.Longest, stage.Deadline), target(stage.Target))
		}
		if stage.Enabled != "" {
			fmt.Fprintf(&b, "  if %s\n", stage.Enabled)
		}
		if stage.ForEach != "" {
			b.WriteString("  " + repeated(stage.ForEach, stage.Parallel) + "\n")
		}
		writeStage(&b, stage, 0)
		for _, branch := range stage.Branches {
			fmt.Fprintf(&b, "  %s\n", branchLine(branch))
			writeStage(&b, stage, branch.Number)
		}
	}
	if len(v.Notify) > 0 {
		b.WriteString("\nafter the run\n")
	}
	for _, n := range v.Notify {
		fmt.Fprintf(&b, "  %s  tells %s, if it is %s\n", n.Pipeline, n.Service+" "+n.Path, strings.Join(n.On, ", "))
	}
	return b.String()
}

// longest returns the longest possible time of something, or empty if it takes no time.
func longest(time, deadline string) string {
	switch {
	case deadline != "":
		return fmt.Sprintf(", at most %s, deadline %s", time, deadline)
	case time == "unbounded":
		return ", no time limit"
	case time != "0s":
		return ", at most " + time
	}
	return ""
}

// target says how long something should take.
func target(time string) string {
	if time == "" {
		return ""
	}
	return ", target " + time
}

// writeStage writes the handlers of one branch, or those without a branch.
func writeStage(b *strings.Builder, v planner.StageView, branch int) {
	for _, h := range v.Handlers {
		if h.Branch == branch {
			writeStep(b, h)
		}
	}
}

func branchLine(v planner.BranchView) string {
	switch {
	case v.When == "":
		return fmt.Sprintf("branch %d otherwise", v.Number)
	case v.Number == 1:
		return "branch 1 if " + v.When
	}
	return fmt.Sprintf("branch %d else if %s", v.Number, v.When)
}

func writeStep(b *strings.Builder, v planner.StepView) {
	fmt.Fprintf(b, "  %s  %s%s\n", v.ID, strings.Join(traitsOf(v), ", "), longest(v.Longest, v.Deadline))
	if v.Parallel > 0 {
		b.WriteString("    " + repeated(v.ForEach, v.Parallel) + "\n")
	}
	for _, rule := range v.OnError {
		fmt.Fprintf(b, "    on error %s\n", rule)
	}
	fmt.Fprintf(b, "    if it fails, %s\n", v.Failure)
	if v.Undone != "" {
		fmt.Fprintf(b, "    once it has succeeded, %s\n", v.Undone)
	}
	waits := false
	for _, e := range v.After {
		if e.Implied {
			continue
		}
		waits = true
		fmt.Fprintf(b, "    after %s because %s\n", e.Handler, e.Why)
		fmt.Fprintf(b, "      %s and %s\n", e.From, e.To)
	}
	if !waits {
		b.WriteString("    starts with the stage\n")
	}
}

// repeated describes how the elements of a list are processed.
func repeated(list string, parallel int) string {
	if parallel == 1 {
		return fmt.Sprintf("for each of %s, one after the other", list)
	}
	return fmt.Sprintf("for each of %s, %d at once", list, parallel)
}

// traitsOf lists the main traits of a handler.
func traitsOf(v planner.StepView) []string {
	out := []string{callOf(v)}
	if v.Critical {
		out = append(out, "critical")
	} else {
		out = append(out, "not critical")
	}
	if v.Detached {
		out = append(out, "detached")
	}
	out = append(out, v.Live...)
	if v.Limit != "" {
		out = append(out, "at most "+v.Limit)
	}
	if v.Slow != "" {
		out = append(out, "out of the flow if slower than "+v.Slow)
	}
	if v.Auth != "" {
		out = append(out, "authorized by "+v.Auth)
	}
	if v.Cert != "" {
		out = append(out, "shows the certificate "+v.Cert)
	}
	if v.CA != "" {
		out = append(out, "trusts the issuers in "+v.CA)
	}
	if v.Keeps != "" {
		out = append(out, "also an earlier event, kept for "+v.Keeps)
	}
	if v.Undo != "" {
		out = append(out, "undone by "+v.Undo)
	}
	if v.Owner != "" {
		out = append(out, "owner "+v.Owner)
	}
	return out
}

func callOf(v planner.StepView) string {
	if len(v.Awaits) > 0 {
		return "await " + strings.Join(v.Awaits, ", ")
	}
	if v.Calls != "" {
		return "call " + v.Calls
	}
	if v.Type == "" {
		return "placeholder"
	}
	return v.Type
}

// sourceCaption is the caption of what brings in events.
func sourceCaption(s planner.SourceView, separator string) string {
	return s.Kind + " " + s.ID + separator + s.From
}

// stepCaption is the caption of a handler in pictures.
func stepCaption(v planner.StepView, separator string) string {
	out := v.ID + separator + callOf(v)
	if v.Parallel > 0 {
		out += separator + "for each"
	}
	if v.Branch > 0 {
		out += separator + fmt.Sprintf("branch %d", v.Branch)
	}
	return out
}

// stageCaption is the caption of a stage in pictures.
func stageCaption(v planner.StageView) string {
	out := v.ID
	if v.Enabled != "" {
		out += " if " + v.Enabled
	}
	if v.ForEach != "" {
		out += "\n" + repeated(v.ForEach, v.Parallel)
	}
	for _, b := range v.Branches {
		out += "\n" + branchLine(b)
	}
	return out
}
