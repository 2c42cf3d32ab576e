package dsl

import (
	"maps"
	"slices"

	"procaas/dsl/diag"
)

// ParseExpr reads an expression that stands alone, such as one on a command line;
// file names it in findings. It may read the roots of env, and of a root that is
// given no other names than those that are there; with a null shared-state, names
// are taken for its own. The expression is nil exactly when one of the findings
// is an error.
func ParseExpr(file, source string, env Env) (*Expr, []diag.Diagnostic) {
	sc := &scope{roots: slices.Sorted(maps.Keys(env))}
	state, known := env[stateRoot].(map[string]any)
	sc.state, sc.lenient = state, !known
	if sources, ok := env["sources"].(map[string]any); ok {
		sc.sources = slices.Sorted(maps.Keys(sources))
	}
	if configs, ok := env["configs"].(map[string]any); ok {
		sc.configs = slices.Sorted(maps.Keys(configs))
	}
	e, r := bareExpr(file, source), new(diag.Reporter)
	e.compile(sc, AnyKind, r)
	found := r.Diagnostics()
	if diag.HasErrors(found) {
		return nil, found
	}
	return e, found
}

// bareExpr makes an expression of a plain text, as if it were a file.
func bareExpr(file, source string) *Expr {
	e := &Expr{Source: source, at: []diag.Pos{{Line: 1, Column: 1}}}
	at := e.at[0]
	for _, r := range source {
		if at.Column++; r == '\n' {
			at = diag.Pos{Line: at.Line + 1, Column: 1}
		}
		e.at = append(e.at, at)
	}
	e.Span = diag.Span{File: file, Start: e.at[0], End: at}
	return e
}
