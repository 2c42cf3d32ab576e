package flowtest

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"procaas/dsl/diag"
)

// A Format is a format of reports.
type Format string

// These are the formats of reports.
const (
	Text   Format = "text"   // for people
	JSON   Format = "json"   // one object, a contract with other programs
	JUnit  Format = "junit"  // XML for CI servers
	GitHub Format = "github" // workflow commands, shown beside changed lines
)

// Write writes a report, and the coverage unless it is nil. color applies to Text only.
func Write(w io.Writer, format Format, r *Report, c *Coverage, color bool) error {
	switch format {
	case Text:
		p := textPage{color: color}
		p.report(r)
		if c != nil {
			p.coverage(c)
		}
		p.summary(r)
		_, err := p.WriteTo(w)
		return err
	case JSON:
		return writeJSON(w, r, c)
	case JUnit:
		return writeJUnit(w, r)
	case GitHub:
		return writeGitHub(w, r, c)
	}
	return fmt.Errorf("unknown format %q, want text, json, junit or github", format)
}

// A textPage is a report that is being written.
type textPage struct {
	bytes.Buffer
	color bool
}

const (
	red   = "31"
	green = "32"
	faint = "2"
	bold  = "1"
)

func (p *textPage) paint(color, s string) string {
	if !p.color {
		return s
	}
	return "\x1b[" + color + "m" + s + "\x1b[0m"
}

func (p *textPage) report(r *Report) {
	for i := 0; i < len(r.Results); {
		of := r.Results[i:]
		if end := slices.IndexFunc(of, func(other *Result) bool { return other.File != of[0].File }); end >= 0 {
			of = of[:end]
		}
		i += len(of)
		failed := slices.DeleteFunc(slices.Clone(of), (*Result).Passed)
		if len(failed) == 0 {
			fmt.Fprintf(p, "%s %s  %s\n", p.paint(green, "ok  "), of[0].File, p.paint(faint, count(len(of), "test")))
			continue
		}
		for _, one := range failed {
			fmt.Fprintf(p, "%s %s\n", p.paint(red, "FAIL"), p.paint(bold, fmt.Sprintf("%s:%d  %s", one.File, one.Span.Start.Line, one.Name)))
			p.failures(one.Failures)
		}
	}
}

// failures writes the failed variants of a test. Equal failures are written once.
func (p *textPage) failures(all []Failure) {
	for i, f := range all {
		if slices.ContainsFunc(all[:i], f.isLike) {
			continue
		}
		if f.Variant != "" {
			var others []string
			for _, other := range all[i+1:] {
				if f.isLike(other) {
					others = append(others, other.Variant)
				}
			}
			line := f.Variant
			if len(others) > 0 {
				line += fmt.Sprintf(", and alike in %s: %s", count(len(others), "more way"), strings.Join(others[:min(3, len(others))], ", "))
			}
			fmt.Fprintf(p, "  %s\n", p.paint(red, line))
		}
		for _, d := range f.Differences {
			p.difference(d)
		}
	}
}

// isLike reports whether two failures look the same to people.
func (f Failure) isLike(other Failure) bool {
	return slices.EqualFunc(f.Differences, other.Differences, func(a, b Difference) bool {
		return a.Path == b.Path && a.Want == b.Want && a.Have == b.Have
	})
}

func (p *textPage) difference(d Difference) {
	fmt.Fprintf(p, "    %s  %s\n", d.Path, p.paint(faint, d.Span.String()))
	fmt.Fprintf(p, "      want  %s\n", p.paint(green, d.Want))
	fmt.Fprintf(p, "      have  %s\n", p.paint(red, d.Have))
	if d.Note != "" {
		for line := range strings.Lines(d.Note) {
			fmt.Fprintf(p, "      %s\n", strings.TrimRight(line, "\n"))
		}
	}
}

func (p *textPage) summary(r *Report) {
	failed := r.Failed()
	verdict := p.paint(green, fmt.Sprintf("%s passed", count(len(r.Results), "test")))
	if failed > 0 {
		verdict = p.paint(red, fmt.Sprintf("%d of %s failed", failed, count(len(r.Results), "test")))
	}
	ways := ""
	if n := r.Variants(); n > len(r.Results) {
		ways = fmt.Sprintf(", run in %d ways", n)
	}
	for _, what := range r.LeftOut {
		fmt.Fprintf(p, "%s %s\n", p.paint(faint, "not tested:"), what)
	}
	fmt.Fprintf(p, "%s%s, in %s\n", verdict, ways, r.Took.Round(time.Millisecond))
}

// coverage writes a table, and what is missing.
func (p *textPage) coverage(c *Coverage) {
	goals := c.Goals()
	var files []string
	width := len("coverage")
	for _, g := range goals {
		if len(files) == 0 || files[len(files)-1] != g.Span.File {
			files = append(files, g.Span.File)
			width = max(width, len(g.Span.File))
		}
	}
	heads := []string{"handlers", "branches", "errors", "degraded"}
	fmt.Fprintf(p, "\n%s", p.paint(bold, fmt.Sprintf("%-*s", width, "coverage")))
	for _, h := range heads {
		fmt.Fprintf(p, "  %9s", h)
	}
	fmt.Fprintf(p, "  %7s\n", "total")
	for _, file := range append(files, "") {
		in := func(g Goal) bool { return file == "" || g.Span.File == file }
		name := file
		if name == "" {
			name = "all"
		}
		fmt.Fprintf(p, "%-*s", width, name)
		for _, kind := range goalKinds {
			t := tally(goals, func(g Goal) bool { return in(g) && g.Kind == kind })
			text := "-"
			if t.Total > 0 {
				text = fmt.Sprintf("%d/%d", t.Covered, t.Total)
			}
			fmt.Fprintf(p, "  %9s", text)
		}
		t := tally(goals, in)
		color := green
		if t.Covered < t.Total {
			color = red
		}
		fmt.Fprintf(p, "  %s\n", p.paint(color, fmt.Sprintf("%5.1f %%", t.Percent())))
	}
	fmt.Fprintln(p)
	p.missing(c.Missing())
}

// maxMissing bounds the lines about what is not covered.
const maxMissing = 40

// missing writes the goals that were not reached, one line per place.
func (p *textPage) missing(goals []Goal) {
	lines := 0
	for i := 0; i < len(goals); {
		at := goals[i].Span
		var texts []string
		for ; i < len(goals) && goals[i].Span == at; i++ {
			texts = append(texts, goals[i].Text)
		}
		lines++
		if lines <= maxMissing {
			fmt.Fprintf(p, "%s: %s\n", at, strings.Join(texts, "; "))
		}
	}
	if lines > maxMissing {
		fmt.Fprintf(p, "… and in %s; --format json lists all\n", count(lines-maxMissing, "more place"))
	}
	if lines > 0 {
		fmt.Fprintln(p)
	}
}

// Missing lists the goals that were not reached.
func (c *Coverage) Missing() []Goal {
	return slices.DeleteFunc(c.Goals(), func(g Goal) bool { return g.Covered })
}

// place is a span for programs.
type place struct {
	File   string `json:"file"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
}

func placeOf(at diag.Span) place { return place{at.File, at.Start.Line, at.Start.Column} }
