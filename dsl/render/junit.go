package render

import (
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strings"

	"procaas/dsl/diag"
)

// The elements of a JUnit report that CI servers read.
type (
	// Suites is a report.
	Suites struct {
		XMLName  xml.Name `xml:"testsuites"`
		Name     string   `xml:"name,attr,omitempty"`
		Tests    int      `xml:"tests,attr"`
		Failures int      `xml:"failures,attr"`
		Time     string   `xml:"time,attr,omitempty"`
		Suites   []*Suite `xml:"testsuite"`
	}
	// A Suite has the test cases of one file.
	Suite struct {
		Name     string `xml:"name,attr"`
		Tests    int    `xml:"tests,attr"`
		Failures int    `xml:"failures,attr"`
		Cases    []Case `xml:"testcase"`
	}
	// A Case is one test.
	Case struct {
		Name    string   `xml:"name,attr"`
		Class   string   `xml:"classname,attr"`
		File    string   `xml:"file,attr"`
		Line    int      `xml:"line,attr,omitempty"`
		Time    string   `xml:"time,attr,omitempty"`
		Failure *Failure `xml:"failure"` // nil if the test passes
		Out     string   `xml:"system-out,omitempty"`
	}
	// A Failure is the reason of a failed test.
	Failure struct {
		Type    string `xml:"type,attr,omitempty"`
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

// Add adds a case to the suite of its file.
func (r *Suites) Add(c Case) {
	s := r.suite(c.File)
	s.Cases = append(s.Cases, c)
}

// suite returns the suite of a file. It creates the suite if necessary.
func (r *Suites) suite(name string) *Suite {
	i := slices.IndexFunc(r.Suites, func(s *Suite) bool { return s.Name == name })
	if i < 0 {
		i, r.Suites = len(r.Suites), append(r.Suites, &Suite{Name: name})
	}
	return r.Suites[i]
}

// Write counts the cases and writes the report to w.
func (r *Suites) Write(w io.Writer) error {
	for _, s := range r.Suites {
		for _, c := range s.Cases {
			s.Tests++
			if c.Failure != nil {
				s.Failures++
			}
		}
		r.Tests, r.Failures = r.Tests+s.Tests, r.Failures+s.Failures
	}
	data, err := xml.MarshalIndent(r, "", "  ")
	if err == nil {
		_, err = fmt.Fprintf(w, "%s%s\n", xml.Header, data)
	}
	return err
}

// WriteJUnit writes findings as a JUnit report, with a suite per file and a case per finding. Findings of
// severity least or worse are failures. Others are passing cases with a message. A file without findings is one
// passing case.
func WriteJUnit(w io.Writer, files []diag.File, ds []diag.Diagnostic, least diag.Severity) error {
	out := Suites{Name: "procaas validate"}
	for _, f := range files {
		out.suite(PrintableLines(f.Name))
	}
	for _, d := range ds {
		out.Add(junitFinding(d, d.Severity.AtLeast(least)))
	}
	for _, s := range out.Suites {
		if len(s.Cases) == 0 {
			s.Cases = []Case{{Name: "no findings", Class: s.Name, File: s.Name}}
		}
	}
	return out.Write(w)
}

func junitFinding(d diag.Diagnostic, fails bool) Case {
	name, message := PrintableLines(d.File), PrintableLines(d.Message)
	text := fmt.Sprintf("%s: %s[%s]: %s\n", PrintableLines(d.Span.String()), d.Severity, d.Code, message)
	if d.Hint != "" {
		text += "help: " + PrintableLines(d.Hint) + "\n"
	}
	for _, other := range d.Related {
		text += PrintableLines(other.Span.String()+": "+other.Message) + "\n"
	}
	at := ""
	if d.Start.Line > 0 {
		at = fmt.Sprintf(" at %d:%d", d.Start.Line, d.Start.Column)
	}
	c := Case{Name: string(d.Code) + at, Class: name, File: name, Line: d.Start.Line}
	if fails {
		c.Failure = &Failure{Type: string(d.Severity), Message: strings.ReplaceAll(message, "\n", " "), Text: text}
	} else {
		c.Out = text
	}
	return c
}
