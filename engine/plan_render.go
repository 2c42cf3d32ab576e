package engine

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"procaas/dsl"
)

// A PlanFormat is a way to show a plan.
type PlanFormat string

// The formats of plans.
const (
	PlanText    PlanFormat = "text"    // for a terminal: every wait with its proof
	PlanJSON    PlanFormat = "json"    // one [PlanView]
	PlanMermaid PlanFormat = "mermaid" // a flowchart, as Markdown viewers draw it
	PlanDOT     PlanFormat = "dot"     // a graph for Graphviz
)

// A PlanView is a plan as programs see it.
type PlanView struct {
	Pipeline string      `json:"pipeline"`       // its id
	Flow     string      `json:"flow,omitempty"` // empty when the pipeline is a flow of its own
	On       []string    `json:"on"`             // types of events; empty for one that is only called
	Stages   []StageView `json:"stages"`         // in the order in which they run
}

// A StageView is a stage of a [PlanView].
type StageView struct {
	ID       string       `json:"id"`
	Enabled  string       `json:"enabled,omitempty"`  // the condition, as it is written
	ForEach  string       `json:"for_each,omitempty"` // the list whose elements repeat the stage, as it is written
	Parallel int          `json:"parallel,omitempty"` // elements of it that are worked on at once
	State    []string     `json:"state,omitempty"`    // names of the shared state of one element
	Writes   []string     `json:"writes,omitempty"`   // paths that are set when all elements are done
	Branches []BranchView `json:"branches,omitempty"`
	Handlers []StepView   `json:"handlers"` // those of the branches included
}

// A BranchView is a way that a stage may go.
type BranchView struct {
	Number int    `json:"number"` // from 1
	When   string `json:"when"`   // as it is written; empty for the branch that is taken when no other one is
}

// A StepView is a handler of a [PlanView].
type StepView struct {
	ID       string     `json:"id"`
	Path     string     `json:"path"`
	Branch   int        `json:"branch,omitempty"` // that it belongs to; 0 for none
	Type     string     `json:"type"`
	Awaits   []string   `json:"awaits,omitempty"`     // types of events, of which one is waited for
	Undo     string     `json:"compensate,omitempty"` // the type of the call that undoes it
	Calls    string     `json:"calls,omitempty"`      // the pipeline that it calls
	ForEach  string     `json:"for_each,omitempty"`   // the list, as it is written
	Parallel int        `json:"parallel,omitempty"`   // items of it that are worked on at once
	Critical bool       `json:"critical"`
	Owner    string     `json:"owner,omitempty"`
	At       string     `json:"at"`                 // file:line:column
	Reads    []string   `json:"reads"`              // paths, each once
	Writes   []string   `json:"writes"`             // paths, each once
	Touches  []string   `json:"touches"`            // each once
	OnError  []string   `json:"on_error,omitempty"` // the rules in order, such as "404: continue"
	After    []EdgeView `json:"after"`              // empty: it starts at once
}

// An EdgeView is what a handler of a [PlanView] waits for.
type EdgeView struct {
	Handler string `json:"handler"` // the id of the earlier handler
	Why     string `json:"why"`
	From    string `json:"from"`    // the place in the earlier handler, file:line:column
	To      string `json:"to"`      // the place in the later one
	Implied bool   `json:"implied"` // other edges of the stage lead there too
}

// WritePlan shows a plan. Text, Mermaid and DOT leave out edges that others
// imply.
func WritePlan(w io.Writer, p *Plan, format PlanFormat) error {
	var err error
	switch format {
	case PlanText:
		_, err = io.WriteString(w, planText(p.View()))
	case PlanJSON:
		enc := json.NewEncoder(w)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		err = enc.Encode(p.View())
	case PlanMermaid:
		_, err = io.WriteString(w, planMermaid(p.View()))
	case PlanDOT:
		_, err = io.WriteString(w, planDOT(p.View()).String()) // its own Write loses errors
	default:
		err = fmt.Errorf("want the plan as text, json, mermaid or dot, have %q", format)
	}
	return err
}

// View makes the plan readable.
func (p *Plan) View() PlanView {
	v := PlanView{Pipeline: p.Pipeline.ID, Flow: p.Pipeline.Flow, On: p.Pipeline.On, Stages: []StageView{}}
	switch {
	case p.Pipeline.IsCalled():
		v.On = []string{}
	case len(v.On) == 0:
		v.On = []string{p.Pipeline.ID}
	}
	for _, stage := range p.Stages {
		sv := StageView{ID: stage.ID, Enabled: sourceText(stage.of.Enabled), Handlers: []StepView{}}
		for _, b := range stage.of.Choose {
			sv.Branches = append(sv.Branches, BranchView{Number: b.Number(), When: sourceText(b.When)})
		}
		if s := stage.Loop(); s != nil {
			sv.ForEach, sv.Parallel = sourceText(s.Handler.ForEach.Items), s.parallel
			for _, k := range stage.of.SharedState.Keys() {
				sv.State = append(sv.State, k.Name)
			}
			for _, w := range s.Writes {
				sv.Writes = append(sv.Writes, w.Path.String())
			}
		}
		for _, s := range stage.Handlers() {
			sv.Handlers = append(sv.Handlers, s.view())
		}
		v.Stages = append(v.Stages, sv)
	}
	return v
}

func (s *Step) view() StepView {
	h := s.Handler
	v := StepView{
		ID: h.ID, Path: s.Path, Type: h.Type, Critical: h.IsCritical(), Owner: h.Owner, At: h.Span.String(),
		Reads: []string{}, Writes: []string{}, Touches: unique(s.Touches), After: []EdgeView{},
	}
	for _, r := range s.Reads {
		v.Reads = append(v.Reads, r.Path.String())
	}
	for _, w := range s.Writes {
		v.Writes = append(v.Writes, w.Path.String())
	}
	v.Reads, v.Writes = unique(v.Reads), unique(v.Writes)
	if h.Await != nil {
		v.Awaits = h.Await.Event
	}
	if h.Compensate != nil {
		v.Undo = h.Compensate.Type
	}
	if h.Call != nil {
		v.Calls = h.Call.Pipeline
	}
	if h.ForEach != nil {
		v.ForEach, v.Parallel = sourceText(h.ForEach.Items), s.parallel
	}
	if h.Branch != nil {
		v.Branch = h.Branch.Number()
	}
	for _, rule := range h.OnError {
		v.OnError = append(v.OnError, ruleText(rule))
	}
	for _, e := range s.After {
		v.After = append(v.After, EdgeView{
			Handler: e.From.Handler.ID, Why: e.Why, From: e.FromSpan.String(), To: e.ToSpan.String(), Implied: s.implied(e),
		})
	}
	return v
}

// ruleText shows a rule of on-error in short.
func ruleText(rule *dsl.OnError) string {
	on := "any"
	if len(rule.On) > 0 {
		on = strings.Join(rule.On, " ")
	}
	if when := sourceText(rule.When); when != "" {
		on += " if " + when
	}
	return on + ": " + rule.Then
}

// sourceText shows a condition as it is written, in one line; empty when it is not
// given.
func sourceText(v *dsl.Value) string { return strings.TrimPrefix(valueText(v), "!$ ") }

// unique drops repetitions, keeping the order.
func unique(list []string) []string {
	seen := map[string]bool{}
	out := []string{}
	for _, item := range list {
		if !seen[item] {
			seen[item] = true
			out = append(out, item)
		}
	}
	return out
}

// implied tells whether another edge of s leads to a handler that waits for the
// same one, so that a picture needs no line for e. Edges are transitive only
// through the handlers between them, so a direct predecessor suffices to look
// further.
func (s *Step) implied(e Edge) bool {
	for _, other := range s.After {
		if other.From != e.From && other.From.waitsFor(e.From) {
			return true
		}
	}
	return false
}

// waitsFor tells whether s comes after earlier by any chain of edges.
func (s *Step) waitsFor(earlier *Step) bool {
	for _, e := range s.After {
		if e.From == earlier || e.From.Index > earlier.Index && e.From.waitsFor(earlier) {
			return true
		}
	}
	return false
}

// planText shows a plan to a terminal.
func planText(v PlanView) string {
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
	b.WriteString("\n")
	for i, stage := range v.Stages {
		fmt.Fprintf(&b, "\nstage %d: %s\n", i+1, stage.ID)
		if stage.Enabled != "" {
			fmt.Fprintf(&b, "  if %s\n", stage.Enabled)
		}
		if stage.ForEach != "" {
			b.WriteString("  " + repeated(stage.ForEach, stage.Parallel) + "\n")
		}
		stage.text(&b, 0)
		for _, branch := range stage.Branches {
			fmt.Fprintf(&b, "  %s\n", branch.text())
			stage.text(&b, branch.Number)
		}
	}
	return b.String()
}

// text shows the handlers of one branch, or those of none.
func (v StageView) text(b *strings.Builder, branch int) {
	for _, h := range v.Handlers {
		if h.Branch == branch {
			h.text(b)
		}
	}
}

func (v BranchView) text() string {
	switch {
	case v.When == "":
		return fmt.Sprintf("branch %d otherwise", v.Number)
	case v.Number == 1:
		return "branch 1 if " + v.When
	}
	return fmt.Sprintf("branch %d else if %s", v.Number, v.When)
}

func (v StepView) text(b *strings.Builder) {
	fmt.Fprintf(b, "  %s  %s\n", v.ID, strings.Join(v.traits(), ", "))
	if v.Parallel > 0 {
		b.WriteString("    " + repeated(v.ForEach, v.Parallel) + "\n")
	}
	for _, rule := range v.OnError {
		fmt.Fprintf(b, "    on error %s\n", rule)
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
		b.WriteString("    starts at once\n")
	}
}

// repeated says how the elements of a list are worked on.
func repeated(list string, parallel int) string {
	if parallel == 1 {
		return fmt.Sprintf("for each of %s, one after the other", list)
	}
	return fmt.Sprintf("for each of %s, %d at once", list, parallel)
}

// traits are what to know of a handler at a glance.
func (v StepView) traits() []string {
	out := []string{v.kind()}
	if v.Critical {
		out = append(out, "critical")
	} else {
		out = append(out, "not critical")
	}
	if v.Undo != "" {
		out = append(out, "undone by "+v.Undo)
	}
	if v.Owner != "" {
		out = append(out, "owner "+v.Owner)
	}
	return out
}

func (v StepView) kind() string {
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

// caption is what pictures say of a handler.
func (v StepView) caption(separator string) string {
	out := v.ID + separator + v.kind()
	if v.Parallel > 0 {
		out += separator + "for each"
	}
	if v.Branch > 0 {
		out += separator + fmt.Sprintf("branch %d", v.Branch)
	}
	return out
}

// caption is what pictures say of a stage.
func (v StageView) caption() string {
	out := v.ID
	if v.Enabled != "" {
		out += " if " + v.Enabled
	}
	if v.ForEach != "" {
		out += "\n" + repeated(v.ForEach, v.Parallel)
	}
	for _, b := range v.Branches {
		out += "\n" + b.text()
	}
	return out
}
