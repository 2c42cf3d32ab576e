package render

import (
	"fmt"
	"io"
	"strings"
	"unicode"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/rules"
)

// A Format is a way to write diagnostics.
type Format string

// The formats of diagnostics.
const (
	Text   Format = "text"   // for people: source line, caret, hint
	JSON   Format = "json"   // one object with stable names
	GitHub Format = "github" // workflow commands, shown beside the changed lines
	SARIF  Format = "sarif"  // SARIF 2.1.0, for code scanning; see [WriteSARIF]
	JUnit  Format = "junit"  // XML, as CI servers read it; see [WriteJUnit]
)

// Write writes findings about files in a format. color is for Text only. The error is that of w, or
// reports an unknown format.
func Write(w io.Writer, format Format, files []diag.File, ds []diag.Diagnostic, color bool) error {
	switch format {
	case Text:
		return writeText(w, files, ds, color)
	case JSON:
		return writeJSON(w, files, ds)
	case GitHub:
		return writeGitHub(w, ds)
	case SARIF:
		return WriteSARIF(w, files, ds, rules.All())
	case JUnit:
		return WriteJUnit(w, files, ds, diag.Error)
	}
	return fmt.Errorf("unknown format %q, want text, json, github, sarif or junit", format)
}

// countSeverities counts the findings of each severity.
func countSeverities(ds []diag.Diagnostic) (errors, warnings, advice int) {
	for _, d := range ds {
		switch d.Severity {
		case diag.Error:
			errors++
		case diag.Warning:
			warnings++
		default:
			advice++
		}
	}
	return errors, warnings, advice
}

// Other programs read this JSON, so names never change.
type (
	jsonReport struct {
		Files       int              `json:"files"`
		Errors      int              `json:"errors"`
		Warnings    int              `json:"warnings"`
		Advice      int              `json:"advice"`
		Diagnostics []jsonDiagnostic `json:"diagnostics"`
	}
	jsonDiagnostic struct {
		File      string        `json:"file"`
		Line      int           `json:"line"`
		Column    int           `json:"column"`
		EndLine   int           `json:"end_line"`
		EndColumn int           `json:"end_column"`
		Severity  diag.Severity `json:"severity"`
		Code      diag.Code     `json:"code"`
		Message   string        `json:"message"`
		Hint      string        `json:"hint"`
	}
)

func writeJSON(w io.Writer, files []diag.File, ds []diag.Diagnostic) error {
	out := jsonReport{Files: len(files), Diagnostics: make([]jsonDiagnostic, 0, len(ds))}
	out.Errors, out.Warnings, out.Advice = countSeverities(ds)
	for _, d := range ds {
		out.Diagnostics = append(out.Diagnostics, jsonDiagnostic{
			File: d.File, Line: d.Start.Line, Column: d.Start.Column, EndLine: d.End.Line, EndColumn: d.End.Column,
			Severity: d.Severity, Code: d.Code, Message: d.Message, Hint: d.Hint,
		})
	}
	return datum.WriteJSON(w, out)
}

// writeGitHub writes one workflow command per finding. It adds columns only within one line, since the reader
// ignores others.
func writeGitHub(w io.Writer, ds []diag.Diagnostic) error {
	var b strings.Builder
	for _, d := range ds {
		command := string(d.Severity)
		if d.Severity == diag.Advice {
			command = "notice"
		}
		fmt.Fprintf(&b, "::%s file=%s", command, EscapeProperty(d.File))
		if d.Start.Line > 0 {
			fmt.Fprintf(&b, ",line=%d,endLine=%d", d.Start.Line, max(d.Start.Line, d.End.Line))
			if d.Start.Line == d.End.Line {
				fmt.Fprintf(&b, ",col=%d,endColumn=%d", d.Start.Column, d.End.Column)
			}
		}
		message := d.Message
		if d.Hint != "" {
			message += "\nhelp: " + d.Hint
		}
		fmt.Fprintf(&b, ",title=%s::%s\n", EscapeProperty(string(d.Code)), EscapeData(message))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// EscapeData escapes text for a workflow command, so that it can neither end the command nor start another.
func EscapeData(s string) string {
	return strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A").Replace(s)
}

// EscapeProperty is [EscapeData] for a property of the command.
func EscapeProperty(s string) string {
	return strings.NewReplacer(":", "%3A", ",", "%2C").Replace(EscapeData(s))
}

// Printable replaces characters that move the cursor or hide text on a terminal.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\t' || unicode.Is(unicode.Bidi_Control, r) {
			return '\uFFFD'
		}
		return r
	}, s)
}

// PrintableLines is [Printable] for text of several lines.
func PrintableLines(s string) string {
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		lines[i] = Printable(line)
	}
	return strings.Join(lines, "\n")
}
