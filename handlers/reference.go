package handlers

import (
	"fmt"
	"strings"

	"procaas/dsl/datum"
	"procaas/dsl/spec"
	"procaas/dsl/tree"
)

// Reference describes handler types, or other mappings, in Markdown: what each does,
// an example, and a table of its fields. All of it comes from the comments, tags and
// types of their structs.
func Reference(types ...tree.Type) string {
	var b strings.Builder
	for i, t := range types {
		if i > 0 {
			b.WriteByte('\n')
		}
		prose, example := splitDoc(t.Spec.Doc)
		fmt.Fprintf(&b, "## %s\n\n%s\n\n", t.Name, renamed(prose, t.Spec.Name, t.Name))
		if example != "" {
			fmt.Fprintf(&b, "```yaml\n%s\n```\n\n", example)
		}
		b.WriteString("| field | type | default | meaning |\n| --- | --- | --- | --- |\n")
		for _, f := range t.Spec.Fields {
			writeField(&b, f)
		}
	}
	return b.String()
}

// Example returns the example in the comment of a type: a handler in YAML.
func Example(t tree.Type) string {
	_, example := splitDoc(t.Spec.Doc)
	return example
}

// splitDoc parts the indented lines, which are the example, from the prose.
func splitDoc(doc string) (prose, example string) {
	var words, code []string
	for line := range strings.SplitSeq(doc, "\n") {
		if text, ok := strings.CutPrefix(line, "\t"); ok {
			code = append(code, text)
		} else {
			words = append(words, line)
		}
	}
	return strings.TrimSpace(strings.Join(words, "\n")), strings.Join(code, "\n")
}

// renamed puts the name that authors know in the place of Go's, with which Go's
// comments begin: "Timeout bounds …", "A Stage is …".
func renamed(doc, goName, name string) string {
	for _, article := range []string{"", "A ", "An "} {
		if rest, ok := strings.CutPrefix(doc, article+goName+" "); ok {
			return article + "`" + name + "` " + rest
		}
	}
	return doc
}

// ReferenceRow is the row of a field in the table of [Reference].
func ReferenceRow(f *spec.Field) string {
	var b strings.Builder
	writeField(&b, f)
	return b.String()
}

// writeField adds the row of a field. The field of an inline mapping has no name of its
// own: authors choose theirs.
func writeField(b *strings.Builder, f *spec.Field) {
	name := f.Name
	if name == "" {
		name = "NAME" // the mapping takes any
		doc := strings.ReplaceAll(f.Doc, "\n", " ")
		fmt.Fprintf(b, "| *%s* | %s | | %s |\n", name, typeName(f.Elem), cell(doc))
		return
	}
	byDefault := ""
	switch {
	case f.Required:
		byDefault = "*required*"
	case f.Default != "":
		byDefault = "`" + f.Default + "`"
	}
	doc := strings.ReplaceAll(renamed(f.Doc, f.GoName, name), "\n", " ")
	fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", name, typeName(f), byDefault, cell(doc+bounds(f)))
}

// cell keeps text from ending its cell of a table.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

// bounds says what the tags min and max do.
func bounds(f *spec.Field) string {
	switch {
	case f.Min != "" && f.Max != "":
		return fmt.Sprintf(" From %s to %s.", f.Min, f.Max)
	case f.Max != "":
		return fmt.Sprintf(" At most %s.", f.Max)
	// That a duration or a number is not negative goes without saying.
	case f.Min != "" && strings.Trim(f.Min, "0smh") != "":
		return fmt.Sprintf(" At least %s.", f.Min)
	}
	return ""
}

// typeName says what a field takes.
func typeName(f *spec.Field) string {
	if len(f.Enum) > 0 {
		return "`" + strings.Join(f.Enum, "` `") + "`"
	}
	// A field of any kind may still want a certain one of its expression.
	kind := f.Kind
	if kind == datum.AnyKind {
		kind = f.ExprKind
	}
	switch kind {
	case datum.BoolKind:
		return "true or false"
	case datum.IntKind:
		return "whole number"
	case datum.FloatKind:
		return "number"
	case datum.StringKind:
		return "text"
	case datum.DurationKind:
		return "duration"
	case datum.TimeKind:
		return "time"
	case datum.BytesKind:
		return "size"
	case datum.RateKind:
		return "rate"
	case datum.JitterKind:
		return "share, full or decorrelated"
	case datum.ListKind:
		if f.Names {
			return "text or list"
		}
		if f.Elem != nil && len(f.Elem.Enum) > 0 {
			return "list of " + typeName(f.Elem)
		}
		return "list"
	case datum.MapKind, datum.ObjectKind:
		if len(f.Words) > 0 {
			return "`" + strings.Join(f.Words, "` `") + "` or mapping"
		}
		if f.Kind == datum.MapKind && f.Elem != nil && len(f.Elem.Enum)+len(f.Elem.Words) > 0 {
			return "mapping to " + typeName(f.Elem)
		}
		return "mapping"
	}
	return "anything"
}
