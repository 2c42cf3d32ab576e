package expr

import (
	"maps"
	"slices"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
)

// Parse parses an expression outside a file of pipelines, such as one on a command line. file names it in
// findings. The expression may read the roots of env. Of a root with members, it may read only those. If
// shared-state is null, other names count as its members. The expression is nil if and only if one of the
// findings is an error.
func Parse(file, source string, env datum.Env) (*Expr, []diag.Diagnostic) {
	sc := &Scope{Roots: slices.Sorted(maps.Keys(env))}
	state, known := env[StateRoot].(map[string]any)
	sc.State, sc.Lenient = state, !known
	if sources, ok := env["sources"].(map[string]any); ok {
		sc.Sources = slices.Sorted(maps.Keys(sources))
	}
	if configs, ok := env["configs"].(map[string]any); ok {
		sc.Configs = slices.Sorted(maps.Keys(configs))
	}
	e, r := Bare(file, source), new(diag.Reporter)
	e.Compile(sc, datum.AnyKind, r)
	found := r.Diagnostics()
	if diag.HasErrors(found) {
		return nil, found
	}
	return e, found
}

// Bare returns a plain text as an unparsed expression.
func Bare(file, source string) *Expr {
	at := diag.Pos{Line: 1, Column: 1}
	each := []diag.Pos{at}
	for _, r := range source {
		at.Column++
		if r == '\n' {
			at = diag.Pos{Line: at.Line + 1, Column: 1}
		}
		each = append(each, at)
	}
	return &Expr{Source: source, At: Places(each), Span: diag.Span{File: file, Start: each[0], End: at}}
}
