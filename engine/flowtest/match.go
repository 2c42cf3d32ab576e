package flowtest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
)

// A Difference is a place where a value is not as expected.
type Difference struct {
	Path string // from the top, such as body.items[2].id
	Span diag.Span
	Want string
	Have string
	Note string // for people, such as the values of an expression's parts
}

// note adds lines to the note.
func (d *Difference) note(lines string) {
	d.Note = strings.TrimPrefix(d.Note+"\n"+lines, "\n")
}

// noteNear notes which name of a mapping was probably meant by one that it does not have.
func (d *Difference) noteNear(name string, have map[string]any) {
	if near := diag.Suggest(name, slices.Sorted(maps.Keys(have))); near != "" {
		d.note("there is " + near)
	}
}

// absent is the missing value.
type absent struct{}

// match compares a value with the expected one: mappings by the expected names, lists element by
// element, and an expression must be true.
func match(path string, want *expr.Value, have any) []Difference {
	if want == nil {
		return nil
	}
	if e := want.Expr(); e != nil {
		return matchExpr(path, e, have)
	}
	if keys := want.Keys(); keys != nil {
		return matchNames(path, want, have)
	}
	if literal, ok := want.Literal(); ok {
		if _, mapping := literal.(map[string]any); mapping { // an empty one
			return matchNames(path, want, have)
		}
		if equal(literal, have) {
			return nil
		}
		if _, list := literal.([]any); !list {
			return differ(path, want, expr.ShowValue(literal), have)
		}
	}
	items, wanted := have.([]any)
	if !wanted {
		return differ(path, want, fmt.Sprintf("a list of %d", len(want.Items())), have)
	}
	var out []Difference
	if len(items) != len(want.Items()) {
		out = differ(path, want, count(len(want.Items()), "element"), nil)
		out[0].Have = count(len(items), "element") + ": " + show(have)
	}
	for i, item := range want.Items() {
		if i < len(items) {
			out = append(out, match(fmt.Sprintf("%s[%d]", path, i), item, items[i])...)
		}
	}
	return out
}

func matchNames(path string, want *expr.Value, have any) []Difference {
	m, ok := have.(map[string]any)
	if !ok {
		return differ(path, want, "a mapping", have)
	}
	var out []Difference
	for i, k := range want.Keys() {
		value, ok := m[k.Name]
		item := want.Items()[i]
		if !ok && !item.IsNull() {
			d := differ(join(path, k.Name), item, showWant(item), absent{})[0]
			d.noteNear(k.Name, m)
			d.Span = k.Span
			out = append(out, d)
			continue
		}
		out = append(out, match(join(path, k.Name), item, value)...)
	}
	return out
}

// matchName compares a name of the shared state or the outputs.
func matchName(path string, k expr.Key, want *expr.Value, have map[string]any) []Difference {
	value, ok := have[k.Name]
	if !ok {
		value = any(absent{})
	}
	out := match(join(path, k.Name), want, value)
	if !ok {
		for i := range out {
			out[i].noteNear(k.Name, have)
		}
	}
	return out
}

// matchExpr evaluates an expression about a value.
func matchExpr(path string, e *expr.Expr, have any) []Difference {
	if _, missing := have.(absent); missing {
		have = nil
	}
	env := datum.Env{"value": have}
	got, err := e.Eval(env)
	if err == nil && got == true {
		return nil
	}
	var note strings.Builder
	if err := expr.WriteTrace(&note, e.Trace(context.Background(), env), false); err != nil {
		note.WriteString(err.Error())
	}
	return []Difference{{
		Path: path, Span: e.Span, Want: strings.TrimSpace(e.Source), Have: show(have),
		Note: strings.TrimRight(note.String(), "\n"),
	}}
}

func differ(path string, want *expr.Value, wanted string, have any) []Difference {
	return []Difference{{Path: path, Span: want.Span, Want: wanted, Have: show(have)}}
}

// equal compares data, and numbers by value.
func equal(a, b any) bool {
	switch a := a.(type) {
	case []any:
		other, ok := b.([]any)
		return ok && slices.EqualFunc(a, other, equal)
	case map[string]any:
		other, ok := b.(map[string]any)
		return ok && maps.EqualFunc(a, other, equal)
	case int:
		if f, ok := b.(float64); ok {
			return float64(a) == f
		}
	case float64:
		if i, ok := b.(int); ok {
			return a == float64(i)
		}
	}
	return a == b
}

func show(v any) string {
	if _, ok := v.(absent); ok {
		return "nothing"
	}
	return expr.ShowValue(v)
}

// showWant formats the expected value, including expressions.
func showWant(v *expr.Value) string {
	if literal, ok := v.Literal(); ok {
		return expr.ShowValue(literal)
	}
	if e := v.Expr(); e != nil {
		return strings.TrimSpace(e.Source)
	}
	return "something"
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
