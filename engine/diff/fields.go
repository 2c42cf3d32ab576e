package diff

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"procaas/dsl/datum"
	"procaas/dsl/expr"
	"procaas/dsl/spec"
	"procaas/dsl/tree"
	"procaas/engine/planner"
)

// This file compares fields by the structs of the language, so that a new field needs no new code.

// handlerChanges compares two handlers, including the fields of their type.
func handlerChanges(a, b *tree.Handler) []FieldChange {
	changes := Fields(a, b)
	if old, now := branchText(a), branchText(b); old != now {
		changes = append(changes, FieldChange{"branch", old, now})
	}
	if a.Type != b.Type {
		return append(changes, FieldChange{"type", a.Type, b.Type})
	}
	return append(changes, Values(b.Type, a.Body, b.Body)...)
}

// branchText returns the branch of a handler, or empty.
func branchText(h *tree.Handler) string {
	if h.Branch == nil {
		return ""
	}
	return strconv.Itoa(h.Branch.Number())
}

// conditionChanges compares what chooses the branch of a stage.
func conditionChanges(a, b *tree.Stage) []FieldChange {
	changes := Values("enabled", a.Enabled, b.Enabled)
	for i := range max(len(a.Choose), len(b.Choose)) {
		when := func(s *tree.Stage) string {
			switch {
			case i >= len(s.Choose):
				return ""
			case s.Choose[i].When == nil:
				return "otherwise"
			}
			return planner.ValueText(s.Choose[i].When)
		}
		if old, now := when(a), when(b); old != now {
			changes = append(changes, FieldChange{fmt.Sprintf("branch %d", i+1), old, now})
		}
	}
	return changes
}

// Fields compares two structs of the language, except their ids and some fields.
func Fields(a, b any, but ...string) []FieldChange {
	return structChanges("", reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem(), append(but, "id"))
}

// pipelineChanges compares two pipelines, with the fields of add-ons, except their ids and what is compared part by part.
func pipelineChanges(l *tree.Language, a, b *tree.Pipeline) []FieldChange {
	var out []FieldChange
	for _, f := range l.File().Field("pipelines").Elem.Spec.Fields {
		if slices.Contains([]string{"id", "shared-state", "stages"}, f.Name) {
			continue
		}
		out = append(out, fieldChange(f.Name, fieldOf(a, f), fieldOf(b, f), f.Default)...)
	}
	return out
}

// fieldOf returns a field of a pipeline.
func fieldOf(p *tree.Pipeline, f *spec.Field) reflect.Value {
	switch added := p.AddedField(f.Name); {
	case f.Index >= 0:
		return reflect.ValueOf(p).Elem().Field(f.Index)
	case added != nil:
		return reflect.ValueOf(added)
	}
	return reflect.Zero(f.Type)
}

// structChanges compares structs field by field. prefix comes before the names.
func structChanges(prefix string, a, b reflect.Value, but []string) []FieldChange {
	var out []FieldChange
	for i := range a.NumField() {
		name := a.Type().Field(i).Tag.Get("yaml")
		if name == "" || name == "-" || slices.Contains(but, name) {
			continue
		}
		preset := a.Type().Field(i).Tag.Get("default")
		if old, now := liveText(a, name), liveText(b, name); old != "" || now != "" {
			old, now = cmp.Or(old, fieldText(a.Field(i), preset)), cmp.Or(now, fieldText(b.Field(i), preset))
			if old != now {
				out = append(out, FieldChange{prefix + name, old, now})
			}
			continue
		}
		out = append(out, fieldChange(prefix+name, a.Field(i), b.Field(i), preset)...)
	}
	return out
}

// liveText returns the expression of a duration that settings decide, or empty.
func liveText(of reflect.Value, name string) string {
	if live := of.FieldByName("Live"); live.IsValid() {
		if times, ok := reflect.TypeAssert[tree.Times](live); ok && times[name] != nil {
			return planner.ValueText(times[name])
		}
	}
	return ""
}

// fieldChange compares two values of a field, and mappings name by name.
func fieldChange(name string, a, b reflect.Value, preset string) []FieldChange {
	if v, ok := reflect.TypeAssert[*expr.Value](a); ok {
		return Values(name, v, b.Interface().(*expr.Value))
	}
	isStruct := a.Kind() == reflect.Pointer && a.Type().Elem().Kind() == reflect.Struct
	if isStruct && !a.IsNil() && !b.IsNil() {
		return structChanges(name+".", a.Elem(), b.Elem(), nil)
	}
	old, now := fieldText(a, preset), fieldText(b, preset)
	if old == now {
		return nil
	}
	return []FieldChange{{name, old, now}}
}

// Values compares two values, and mappings name by name.
func Values(name string, a, b *expr.Value) []FieldChange {
	if len(a.Keys()) == 0 || len(b.Keys()) == 0 {
		if old, now := planner.ValueText(a), planner.ValueText(b); old != now {
			return []FieldChange{{name, old, now}}
		}
		return nil
	}
	var out []FieldChange
	for _, k := range append(slices.Clone(a.Keys()), b.Keys()...) {
		field := name + "." + k.Name
		old, now := entryText(a, k.Name), entryText(b, k.Name)
		if old != now && !slices.ContainsFunc(out, func(c FieldChange) bool { return c.Field == field }) {
			out = append(out, FieldChange{field, old, now})
		}
	}
	return out
}

// entryText formats an entry of a mapping, or returns empty if there is none.
func entryText(v *expr.Value, name string) string {
	if v.Get(name) == nil {
		return ""
	}
	return planner.ValueText(v.Get(name))
}

// fieldText formats a field in one line, or returns empty if it is missing. A nil pointer shows its
// preset, because writing a default changes nothing.
func fieldText(v reflect.Value, preset string) string {
	switch x := v.Interface().(type) {
	case *expr.Value:
		return planner.ValueText(x)
	case time.Duration:
		if x == 0 {
			return ""
		}
		return x.String()
	case datum.Rate:
		return x.Text()
	case spec.Names:
		return strings.Join(x, ", ")
	case datum.Bytes:
		return bytesText(x)
	case map[string]string:
		parts := []string{}
		for _, name := range slices.Sorted(maps.Keys(x)) {
			parts = append(parts, name+": "+x[name])
		}
		if len(parts) == 0 {
			return ""
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return preset
		}
		return fieldText(v.Elem(), "")
	case reflect.Slice:
		parts := make([]string, v.Len())
		for i := range parts {
			parts[i] = fieldText(v.Index(i), "")
		}
		return strings.Join(parts, ", ")
	case reflect.Struct:
		var parts []string
		for i := range v.NumField() {
			if name := v.Type().Field(i).Tag.Get("yaml"); name != "" && name != "-" {
				if text := fieldText(v.Field(i), ""); text != "" {
					parts = append(parts, name+": "+text)
				}
			}
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	return fmt.Sprint(v.Interface())
}

// bytesText formats a size in the largest unit that divides it.
func bytesText(n datum.Bytes) string {
	units := []string{"", "KiB", "MiB", "GiB", "TiB"}
	for n != 0 && n%1024 == 0 && len(units) > 1 {
		n, units = n/1024, units[1:]
	}
	return strconv.FormatInt(int64(n), 10) + units[0]
}
