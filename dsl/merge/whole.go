package merge

import (
	"fmt"
	"slices"

	"procaas/dsl/contracts"
	"procaas/dsl/decode"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/rules"
	"procaas/dsl/syntax"
	"procaas/dsl/tree"
	"procaas/dsl/typing"
)

// A Whole is what the documents of a set say together, and what checks look up in it. They
// fill the fields of the tree that are theirs; the rest of it they only read.
type Whole struct {
	Bundle *tree.Bundle
	Types  tree.Types
	Files  map[string]*contracts.File // by name

	Configs       []string               // names of live settings
	ConfigValues  map[string]*expr.Value // first values by name
	ConfigSchemas []Entry
	Schemas       map[string]*expr.Value // by name
	Templates     map[string]*tree.Template

	// Partial says that a file could not be read: what is missing may be declared there, so
	// nobody is blamed for naming it.
	Partial bool

	// Parsed has expressions that were parsed, by their text.
	Parsed *syntax.Cache

	unread []diag.Diagnostic    // what was found while reading: where it is, a part of the tree is missing
	first  map[string]diag.Span // where a name was declared first, under "kind name"
}

// An Entry is one entry of a mapping.
type Entry struct {
	Key   expr.Key
	Value *expr.Value
}

func newWhole(set *decode.Set, types []tree.Type) *Whole {
	w := &Whole{
		Bundle:       &tree.Bundle{Files: set.Files, Index: tree.NewIndex()},
		Types:        make(tree.Types, len(types)),
		Files:        set.Contracts(),
		ConfigValues: make(map[string]*expr.Value),
		Schemas:      make(map[string]*expr.Value),
		Templates:    make(map[string]*tree.Template),
		Parsed:       new(syntax.Cache),
		unread:       set.Found,
		first:        make(map[string]diag.Span),
	}
	for _, t := range types {
		w.Types[t.Name] = t
	}
	return w
}

// Declare notes a name and reports it when it is taken. It reports whether the
// name is new. An empty name was reported when it was read.
func (w *Whole) Declare(kind, name string, at diag.Span, r *diag.Reporter) bool {
	if name == "" {
		return false
	}
	key := kind + " " + name
	if first, taken := w.first[key]; taken {
		r.Report(diag.Diagnostic{
			Span: at, Code: rules.Duplicate,
			Message: fmt.Sprintf("%s %q is declared twice", kind, name),
			Hint:    "rename one of them",
			Related: []diag.Related{{Span: first, Message: "declared here first"}},
		})
		return false
	}
	w.first[key] = at
	return true
}

// DeclaredAt returns the place where a name was declared first.
func (w *Whole) DeclaredAt(kind, name string) diag.Span { return w.first[kind+" "+name] }

// Blamed reports whether an error was found inside a span while it was read.
func (w *Whole) Blamed(at diag.Span) bool {
	return slices.ContainsFunc(w.unread, func(d diag.Diagnostic) bool {
		return d.Severity == diag.Error && d.File == at.File && !d.Start.Before(at.Start) && d.Start.Before(at.End)
	})
}

// PayloadOf is what the payload of an event may be of one of these types; nil
// when one of them has no schema.
func (w *Whole) PayloadOf(events []string) *typing.Outline {
	var out *typing.Outline
	for i, event := range events {
		contract := w.Bundle.Event(event).Contract()
		if contract == nil {
			return nil
		}
		if i == 0 {
			out = contract.Outline()
			continue
		}
		out = typing.Either(out, contract.Outline())
	}
	return out
}
