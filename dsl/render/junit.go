package render

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"

	"procaas/dsl/diag"
)

// The elements of a JUnit report that CI servers read.
type (
	junitSuites struct {
		XMLName  xml.Name      `xml:"testsuites"`
		Name     string        `xml:"name,attr"`
		Tests    int           `xml:"tests,attr"`
		Failures int           `xml:"failures,attr"`
		Suites   []*junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Name    string        `xml:"name,attr"`
		Class   string        `xml:"classname,attr"`
		File    string        `xml:"file,attr"`
		Line    int           `xml:"line,attr,omitempty"`
		Failure *junitFailure `xml:"failure"`
		Out     string        `xml:"system-out,omitempty"`
	}
	junitFailure struct {
		Type    string `xml:"type,attr"`
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

// WriteJUnit writes findings about files as a JUnit report: a suite for each
// file and a case for each finding. Findings of the severity least and worse are
// failures, the others are cases that pass and say so. A file without findings
// is one case that passes.
func WriteJUnit(w io.Writer, files []diag.File, ds []diag.Diagnostic, least diag.Severity) error {
	out := junitSuites{Name: "procaas validate"}
	byName := map[string]*junitSuite{}
	suite := func(name string) *junitSuite {
		if byName[name] == nil {
			byName[name] = &junitSuite{Name: printableLines(name)}
			out.Suites = append(out.Suites, byName[name])
		}
		return byName[name]
	}
	for _, f := range files {
		suite(f.Name)
	}
	for _, d := range ds {
		s := suite(d.File)
		c := junitFinding(d, d.Severity.AtLeast(least))
		if c.Failure != nil {
			s.Failures++
		}
		s.Cases = append(s.Cases, c)
	}
	for _, s := range out.Suites {
		if len(s.Cases) == 0 {
			s.Cases = []junitCase{{Name: "no findings", Class: s.Name, File: s.Name}}
		}
		s.Tests = len(s.Cases)
		out.Tests += s.Tests
		out.Failures += s.Failures
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(out); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func junitFinding(d diag.Diagnostic, fails bool) junitCase {
	name, message := printableLines(d.File), printableLines(d.Message)
	text := fmt.Sprintf("%s: %s[%s]: %s\n", printableLines(d.Span.String()), d.Severity, d.Code, message)
	if d.Hint != "" {
		text += "help: " + printableLines(d.Hint) + "\n"
	}
	for _, other := range d.Related {
		text += printableLines(other.Span.String()+": "+other.Message) + "\n"
	}
	at := ""
	if d.Start.Line > 0 {
		at = fmt.Sprintf(" at %d:%d", d.Start.Line, d.Start.Column)
	}
	c := junitCase{Name: string(d.Code) + at, Class: name, File: name, Line: d.Start.Line}
	if fails {
		c.Failure = &junitFailure{Type: string(d.Severity), Message: strings.ReplaceAll(message, "\n", " "), Text: text}
	} else {
		c.Out = text
	}
	return c
}
