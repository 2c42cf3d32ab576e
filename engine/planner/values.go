package planner

import (
	"strings"

	"procaas/dsl/datum"
	"procaas/dsl/expr"
)

// ValueText shows a value in one line, with its expressions as they are written;
// empty when it is not given.
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
	// What has neither an expression nor a value nor parts is a secret: only its name shows.
	secret, _ := v.Eval(nil)
	name, _ := secret.(datum.Secret)
	return "!secret " + name.Name
}

// sourceText shows a condition as it is written, in one line; empty when it is not
// given.
func sourceText(v *expr.Value) string { return strings.TrimPrefix(ValueText(v), "!$ ") }

// unique drops repetitions, keeping the order.
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

// DataText shows data as JSON.
func DataText(data any) string {
	text, err := datum.FormatJSON(data)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
