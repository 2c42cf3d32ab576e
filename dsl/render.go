package dsl

import "io"

// A Format is a way to write diagnostics.
type Format string

// The formats of diagnostics.
const (
	Text   Format = "text"   // for people: source line, caret, hint
	JSON   Format = "json"   // one object, see the contract in the README
	GitHub Format = "github" // workflow commands, shown beside the changed lines
)

// WriteDiagnostics writes findings about files in a format. Color is for Text
// only.
func WriteDiagnostics(w io.Writer, format Format, files []File, ds []Diagnostic, color bool) error {
	panic("dsl: WriteDiagnostics is not written yet")
}

// A Rule documents a diagnostic code.
type Rule struct {
	Code   Code
	Title  string // a few words
	Why    string // what goes wrong without the rule
	Before string // an example that breaks it
	After  string // the example, mended
}

// Rules lists all rules in the order of their codes.
func Rules() []Rule { panic("dsl: Rules is not written yet") }

// Explain finds the rule of a code.
func Explain(code Code) (Rule, bool) { panic("dsl: Explain is not written yet") }

// JSONSchema gives the JSON Schema (draft 2020-12) of pipeline files with these
// handler types.
func JSONSchema(types []Type) ([]byte, error) { panic("dsl: JSONSchema is not written yet") }
