package contracts

import (
	"errors"
	"fmt"
	"math/big"
	"slices"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/rules"
	"procaas/dsl/typing"
)

// A Contract is a compiled JSON Schema for the payload of an event, a response, a config or a name of the
// shared state. It is immutable and safe for concurrent use. A nil Contract accepts anything.
type Contract struct {
	// Name names the checked data in messages, such as "the payload of new-order-created".
	Name string

	schema  *jsonschema.Schema
	outline *typing.Outline
	at      diag.Span
}

// Outline returns the type of data that fits the contract, or nil if nothing is known.
func (c *Contract) Outline() *typing.Outline {
	if c == nil {
		return nil
	}
	return c.outline
}

// An Error lists why data does not fit a contract.
type Error struct {
	Name   string // of the contract
	Faults []Fault
}

// A Fault is one error in data.
type Fault struct {
	Path    datum.Path // to the part; empty for the whole
	Message string
}

// maxFaults limits how many faults of one value are reported.
const maxFaults = 10

// Error implements error. It returns the first fault and the number of others.
func (e *Error) Error() string {
	text := e.Name + ": " + e.Faults[0].String()
	if n := len(e.Faults) - 1; n > 0 {
		text += fmt.Sprintf(" (and %d more)", n)
	}
	return text
}

// String returns the path, if any, and the message.
func (f Fault) String() string {
	if len(f.Path) == 0 {
		return f.Message
	}
	return f.Path.String() + ": " + f.Message
}

// sort orders the faults by path, removes duplicates, and keeps the first ones.
func (e *Error) sort() {
	slices.SortStableFunc(e.Faults, func(a, b Fault) int { return slices.Compare(a.Path, b.Path) })
	e.Faults = slices.CompactFunc(e.Faults, func(a, b Fault) bool { return a.String() == b.String() })
	e.Faults = e.Faults[:min(len(e.Faults), maxFaults)]
}

// faultsOf converts an error of the library to faults. Of several alternatives, it uses the one that is nearest
// to the data.
func faultsOf(e *jsonschema.ValidationError, data any) []Fault {
	switch e.ErrorKind.(type) {
	case *kind.AnyOf, *kind.OneOf:
		if len(e.Causes) == 0 {
			return []Fault{{Path: datum.Path(e.InstanceLocation), Message: "fits more than one of the alternatives, want exactly one"}}
		}
		var nearest []Fault
		for _, cause := range e.Causes {
			if faults := faultsOf(cause, data); nearest == nil || nearness(faults) > nearness(nearest) {
				nearest = faults
			}
		}
		return nearest
	}
	if len(e.Causes) == 0 {
		path := datum.Path(e.InstanceLocation)
		return faultOf(e.ErrorKind, path, dataAt(data, path))
	}
	var out []Fault
	for _, cause := range e.Causes {
		out = append(out, faultsOf(cause, data)...)
	}
	return out
}

// nearness returns how near data is to an alternative with these faults. Deeper and fewer faults are nearer.
func nearness(faults []Fault) int {
	n := -len(faults)
	for _, f := range faults {
		n = max(n, 100*len(f.Path)-len(faults))
	}
	return n
}

var english = message.NewPrinter(language.English)

// faultOf describes one error in a value.
func faultOf(what jsonschema.ErrorKind, path datum.Path, value any) []Fault {
	have := datum.DescribeData(value)
	one := func(format string, args ...any) []Fault {
		return []Fault{{Path: path, Message: fmt.Sprintf(format, args...)}}
	}
	switch k := what.(type) {
	case *kind.Type:
		return one("want %s, have %s", typeWords(k.Want), have)
	case *kind.Enum:
		return one("want %s, have %s", datum.OneOf(k.Want), have)
	case *kind.Const:
		return one("want %s, have %s", datum.DescribeData(k.Want), have)
	case *kind.Required:
		var out []Fault
		for _, name := range k.Missing {
			out = append(out, Fault{Path: slices.Concat(path, datum.Path{name}), Message: "is missing"})
		}
		return out
	case *kind.AdditionalProperties:
		var out []Fault
		for _, name := range k.Properties {
			out = append(out, Fault{Path: slices.Concat(path, datum.Path{name}), Message: "is not allowed there"})
		}
		return out
	case *kind.Format:
		if k.Want == "regex" {
			return one("the pattern %s cannot be used: %s", datum.DescribeData(k.Got), k.Err)
		}
		return one("want text of the format %s, such as %s, have %s", k.Want, formats[k.Want], have)
	case *kind.Minimum:
		return one("want %s or more, have %s", rational(k.Want), have)
	case *kind.Maximum:
		return one("want %s or less, have %s", rational(k.Want), have)
	case *kind.ExclusiveMinimum:
		return one("want more than %s, have %s", rational(k.Want), have)
	case *kind.ExclusiveMaximum:
		return one("want less than %s, have %s", rational(k.Want), have)
	case *kind.MinLength:
		return one("want at least %s, have %s", diag.Plural(k.Want, "character"), have)
	case *kind.MaxLength:
		return one("want at most %s, have %d", diag.Plural(k.Want, "character"), k.Got)
	case *kind.MinItems:
		return one("want at least %s, have %d", diag.Plural(k.Want, "element"), k.Got)
	case *kind.MaxItems:
		return one("want at most %s, have %d", diag.Plural(k.Want, "element"), k.Got)
	case *kind.Pattern:
		return one("want text that matches %s, have %s", k.Want, have)
	case *kind.UniqueItems:
		return one("want each element once, but %d and %d are the same", k.Duplicates[0], k.Duplicates[1])
	case *kind.FalseSchema:
		return one("nothing may stand there, have %s", have)
	case *kind.OneOf:
		return one("fits more than one of the alternatives, want exactly one")
	}
	return one("%s, have %s", what.LocalizedString(english), have)
}

// rational formats a limit as the author wrote it.
func rational(n *big.Rat) string {
	f, _ := n.Float64()
	return datum.FormatFloat(f)
}

// typeWords names types of JSON Schema in messages.
func typeWords(names []string) string {
	words := map[string]string{
		"null": "null", "boolean": "true or false", "integer": "a whole number", "number": "a number",
		"string": "a string", "array": "a list", "object": "a mapping",
	}
	out := make([]string, len(names))
	for i, name := range names {
		out[i] = words[name]
	}
	return datum.OrList(out)
}

// dataAt returns the part of data at a path, or nil.
func dataAt(data any, path datum.Path) any {
	for _, name := range path {
		switch v := data.(type) {
		case map[string]any:
			data = v[name]
		case []any:
			i, ok := datum.ElementIndex(name)
			if !ok || i >= len(v) {
				return nil
			}
			data = v[i]
		default:
			return nil
		}
	}
	return data
}

// Report reports where a constant value does not fit the contract. data is that value. whole is the position to
// report if the fault is in no part of v.
func (c *Contract) Report(v *expr.Value, data any, whole diag.Span, r *diag.Reporter) {
	misfit, ok := errors.AsType[*Error](c.Check(data))
	if !ok {
		return
	}
	for _, f := range misfit.Faults {
		at, path := whole, f.Path
		// A missing part has no position. Report uses the nearest enclosing part that was written.
		for n := len(path); n >= 0; n-- {
			if part := v.At(path[:n]); part != nil {
				at = part.Head()
				break
			}
		}
		d := diag.Diagnostic{Span: at, Code: rules.Misfit, Message: fmt.Sprintf("%s: %s", c.Name, f)}
		if c.at != (diag.Span{}) {
			d.Related = []diag.Related{{Span: c.at.Head(), Message: "its schema"}}
		}
		r.Report(d)
	}
}
