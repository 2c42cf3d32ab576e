package handlers

import (
	"slices"
	"strings"

	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/rules"
	"procaas/dsl/tree"
)

// checkNoSecrets refuses secrets in a body whose values are stored or shown: in the inbox, in the
// shared state, or in an error.
func checkNoSecrets(b *tree.Body) {
	b.Value.Secrets(func(v *expr.Value) {
		b.Errorf(v.Span, rules.Body, "send it with a request", "%s keeps what it is given, so it takes no secret", b.Handler.Type)
	})
}

// checkOneOf requires exactly one of the fields.
func checkOneOf(b *tree.Body, names ...string) {
	var given []string
	for _, name := range names {
		if b.Field(name) != nil {
			given = append(given, name)
		}
	}
	switch len(given) {
	case 0:
		if !mistyped(b, names...) {
			b.Errorf(b.Span, rules.Body, "add one of them", "one of %s is needed", strings.Join(names, ", "))
		}
	case 1:
	default:
		b.Errorf(b.Field(given[1]).Span, rules.Body, "keep one of them", "%s exclude each other", strings.Join(given, " and "))
	}
}

// mistyped reports whether a field of a body is one of some names, mistyped. It is reported as unknown, with the right name.
// No right name of another field may be that near.
func mistyped(b *tree.Body, names ...string) bool {
	return slices.ContainsFunc(b.Value.Names, func(k expr.Key) bool { return diag.Suggest(k.Name, names) != "" })
}
