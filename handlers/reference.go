package handlers

import (
	"fmt"
	"strings"

	"procaas/dsl/datum"
	"procaas/dsl/spec"
	"procaas/dsl/tree"
)

// Reference describes handler types, or other mappings, in Markdown: what each does, an example,
// and a table of its fields. It comes from the comments, tags and types of their structs.
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

// splitDoc splits a comment into prose and the indented example.
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

// renamed replaces the Go name at the start of a comment by the name that authors know, as in
// "Timeout bounds …" and "A Stage is …".
func renamed(doc, goName, name string) string {
	for _, article := range []string{"", "A ", "An "} {
		if rest, ok := strings.CutPrefix(doc, article+goName+" "); ok {
			return article + "`" + name + "` " + rest
		}
	}
	return doc
}

// ReferenceRow returns the row of a field in the table of [Reference].
func ReferenceRow(f *spec.Field) string {
	var b strings.Builder
	writeField(&b, f)
	return b.String()
}

// writeField writes the row of a field. The field of an inline mapping has no name, because authors
// choose the names.
func writeField(b *strings.Builder, f *spec.Field) {
	name := f.Name
	if name == "" {
		name = "NAME" // any name
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

// cell escapes text for a table cell.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

// bounds describes the tags min and max.
func bounds(f *spec.Field) string {
	switch {
	case f.Min != "" && f.Max != "":
		return fmt.Sprintf(" From %s to %s.", f.Min, f.Max)
	case f.Max != "":
		return fmt.Sprintf(" At most %s.", f.Max)
	// A bound of zero is obvious.
	case f.Min != "" && strings.Trim(f.Min, "0smh") != "":
		return fmt.Sprintf(" At least %s.", f.Min)
	}
	return ""
}

// typeName describes the type of a field.
func typeName(f *spec.Field) string {
	if len(f.Enum) > 0 {
		return "`" + strings.Join(f.Enum, "` `") + "`"
	}
	// A field of any kind may require a certain kind of its expression.
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
	case datum.SecretKind:
		return "secret"
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
		one := ""
		if f.Elem != nil && len(f.Elem.Enum) > 0 {
			one = typeName(f.Elem)
		}
		switch {
		case f.Names && one != "":
			return one + " or list"
		case f.Names:
			return "text or list"
		case one != "":
			return "list of " + one
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
