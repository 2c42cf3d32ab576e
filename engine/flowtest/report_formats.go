package flowtest

import (
	"fmt"
	"io"
	"strings"

	"procaas/dsl/datum"
	"procaas/dsl/render"
)

// The JSON form is a contract with other programs: never change names.
type (
	jsonReport struct {
		Tests    int           `json:"tests"`
		Passed   int           `json:"passed"`
		Failed   int           `json:"failed"`
		Runs     int           `json:"runs"`
		Seconds  float64       `json:"seconds"`
		Results  []jsonResult  `json:"results"`
		LeftOut  []string      `json:"not_tested,omitempty"`
		Coverage *jsonCoverage `json:"coverage,omitempty"`
	}
	jsonResult struct {
		place
		Name           string        `json:"name"`
		Passed         bool          `json:"passed"`
		Runs           int           `json:"runs"`
		VirtualSeconds float64       `json:"virtual_seconds"`
		Seconds        float64       `json:"seconds"`
		Failures       []jsonFailure `json:"failures"`
	}
	jsonFailure struct {
		Variant     string           `json:"variant"`
		Differences []jsonDifference `json:"differences"`
	}
	jsonDifference struct {
		place
		Path string `json:"path"`
		Want string `json:"want"`
		Have string `json:"have"`
		Note string `json:"note"`
	}
	jsonCoverage struct {
		Percent float64 `json:"percent"`
		Tally
		Kinds   map[string]Tally `json:"kinds"`
		Missing []jsonGoal       `json:"missing"`
	}
	jsonGoal struct {
		place
		Kind string `json:"kind"`
		Text string `json:"text"`
	}
)

func writeJSON(w io.Writer, r *Report, c *Coverage) error {
	out := jsonReport{
		Tests: len(r.Results), Failed: r.Failed(), Passed: len(r.Results) - r.Failed(), Runs: r.Variants(),
		Seconds: r.Took.Seconds(), Results: []jsonResult{}, LeftOut: r.LeftOut,
	}
	for _, one := range r.Results {
		result := jsonResult{
			place: placeOf(one.Span), Name: one.Name, Passed: one.Passed(), Runs: one.Variants,
			VirtualSeconds: one.Virtual.Seconds(), Seconds: one.Took.Seconds(), Failures: []jsonFailure{},
		}
		for _, f := range one.Failures {
			failure := jsonFailure{Variant: f.Variant, Differences: []jsonDifference{}}
			for _, d := range f.Differences {
				failure.Differences = append(failure.Differences, jsonDifference{placeOf(d.Span), d.Path, d.Want, d.Have, d.Note})
			}
			result.Failures = append(result.Failures, failure)
		}
		out.Results = append(out.Results, result)
	}
	if c != nil {
		out.Coverage = coverageJSON(c)
	}
	return datum.WriteJSON(w, out)
}

func coverageJSON(c *Coverage) *jsonCoverage {
	goals := c.Goals()
	total := c.Total()
	out := &jsonCoverage{Percent: total.Percent(), Tally: total, Kinds: map[string]Tally{}, Missing: []jsonGoal{}}
	for _, kind := range goalKinds {
		out.Kinds[kind] = tally(goals, func(g Goal) bool { return g.Kind == kind })
	}
	for _, g := range c.Missing() {
		out.Missing = append(out.Missing, jsonGoal{placeOf(g.Span), g.Kind, g.Text})
	}
	return out
}

func writeJUnit(w io.Writer, r *Report) error {
	out := render.Suites{Time: fmt.Sprintf("%.3f", r.Took.Seconds())}
	for _, one := range r.Results {
		c := render.Case{
			Name: one.Name, Class: strings.TrimSuffix(one.File, ".yaml"), File: one.File, Line: one.Span.Start.Line,
			Time: fmt.Sprintf("%.3f", one.Took.Seconds()),
		}
		if !one.Passed() {
			var p textPage
			p.failures(one.Failures)
			first := one.Failures[0].Differences[0]
			c.Failure = &render.Failure{
				Message: render.Printable(first.Path + ": want " + first.Want + ", have " + first.Have),
				Text:    render.PrintableLines(p.String()),
			}
		}
		out.Add(c)
	}
	return out.Write(w)
}

// writeGitHub writes one workflow command per difference.
func writeGitHub(w io.Writer, r *Report, c *Coverage) error {
	var b strings.Builder
	command := func(severity string, at place, title, message string) {
		fmt.Fprintf(&b, "::%s file=%s,line=%d,col=%d,title=%s::%s\n", severity, render.EscapeProperty(at.File), at.Line, at.Column,
			render.EscapeProperty(title), render.EscapeData(message))
	}
	for _, one := range r.Results {
		for _, f := range one.Failures {
			title := one.Name
			if f.Variant != "" {
				title += " (" + f.Variant + ")"
			}
			for _, d := range f.Differences {
				message := fmt.Sprintf("%s\nwant %s\nhave %s", d.Path, d.Want, d.Have)
				if d.Note != "" {
					message += "\n" + d.Note
				}
				command("error", placeOf(d.Span), title, message)
			}
		}
	}
	if c != nil {
		for _, g := range c.Missing() {
			command("notice", placeOf(g.Span), "not covered by tests", g.Text)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
