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

// A Whole is everything that the documents of a set declare, with indexes for the checks. Each check sets only
// its own fields of the tree.
type Whole struct {
	Bundle *tree.Bundle
	Types  tree.Types
	Files  map[string]*contracts.File // by name

	Configs       []string               // names of live settings
	ConfigValues  map[string]*expr.Value // initial values by name
	ConfigSchemas []Entry
	Schemas       map[string]*expr.Value // by name
	Templates     map[string]*tree.Template

	// Partial reports whether a file could not be read. Then a missing name is not an error, since that file
	// may declare it.
	Partial bool

	// Parsed has parsed expressions by text.
	Parsed *syntax.Cache

	unread []diag.Diagnostic    // findings of reading; a part of the tree is missing there
	first  map[string]diag.Span // where a name was declared first, by "kind name"
}

// An Entry is one entry of a mapping.
type Entry struct {
	Key   expr.Key
	Value *expr.Value
}

func newWhole(set *decode.Set, types []tree.Type) *Whole {
	w := &Whole{
		Bundle:       &tree.Bundle{Files: set.Files, Language: set.Language, Index: tree.NewIndex()},
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

// Declare records a name. It reports a duplicate, and returns whether the name is new. Empty names are already
// reported.
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

// DeclaredAt returns the position of the first declaration.
func (w *Whole) DeclaredAt(kind, name string) diag.Span { return w.first[kind+" "+name] }

// Blamed reports whether reading found an error inside a span.
func (w *Whole) Blamed(at diag.Span) bool {
	return slices.ContainsFunc(w.unread, func(d diag.Diagnostic) bool {
		return d.Severity == diag.Error && d.File == at.File && !d.Start.Before(at.Start) && d.Start.Before(at.End)
	})
}

// Checking returns what the check of a section sees, and where it reports.
func (w *Whole) Checking(r *diag.Reporter) *tree.Checking {
	return &tree.Checking{Reporter: r, Bundle: w.Bundle, Files: w.Files, Partial: w.Partial, Blamed: w.Blamed, Declare: w.Declare}
}

// PayloadOf returns what the payload of any of these events may be, or nil if one of them has no schema.
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
