package planner

import (
	"strings"

	"procaas/dsl/datum"
	"procaas/dsl/expr"
)

// ValueText formats a value in one line, with its expressions as written. It is empty for a missing
// value.
func ValueText(v *expr.Value) string {
	if v == nil {
		return ""
	}
	if e := v.Expr(); e != nil {
		return "!$ " + strings.Join(strings.Fields(e.Source), " ")
	}
	if data, ok := v.Literal(); ok {
		return DataText(data)
	}
	parts := make([]string, len(v.Items()))
	for i, item := range v.Items() {
		parts[i] = ValueText(item)
	}
	switch keys := v.Keys(); {
	case len(keys) > 0:
		for i := range parts {
			parts[i] = keys[i].Name + ": " + parts[i]
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case len(parts) > 0:
		return "[" + strings.Join(parts, ", ") + "]"
	}
	// A value without expression, data and parts is a secret. Only its name is shown.
	secret, _ := v.Eval(nil)
	name, _ := secret.(datum.Secret)
	return "!secret " + name.Name
}

// sourceText formats a condition as written, in one line. It is empty for a missing one.
func sourceText(v *expr.Value) string { return strings.TrimPrefix(ValueText(v), "!$ ") }

// unique drops repeated entries and keeps the order.
func unique(list []string) []string {
	seen := map[string]bool{}
	out := []string{}
	for _, item := range list {
		if !seen[item] {
			seen[item] = true
			out = append(out, item)
		}
	}
	return out
}

// DataText formats data as JSON.
func DataText(data any) string {
	text, err := datum.FormatJSON(data)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
