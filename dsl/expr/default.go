package expr

import (
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/rules"
	"procaas/dsl/syntax"
	"procaas/dsl/typing"
)

// This file rewrites expressions so that a null in them does no harm. Messages quote the new text, so it is compiled first.

// defaults are values that can replace null, by type. The likely ones come first.
var defaults = []struct {
	shape datum.Shape
	text  string
}{{datum.NumberShape, "0"}, {datum.StringShape, "''"}, {datum.BoolShape, "false"}, {datum.MapShape, "{}"}, {datum.ListShape, "[]"}}

// WithDefault returns a text for the expression in which a null at the given part has a default. The default
// has one of the types in shape.
func (e *Expr) WithDefault(at diag.Span, shape datum.Shape) string {
	from := e.At.Index(at.Start)
	to := e.At.Index(diag.Pos{Line: at.End.Line, Column: at.End.Column - 1}) + 1
	if from < 0 || to <= from || to > len([]rune(e.Source)) {
		return "… ?? 0" // the text was derived from another one
	}
	return e.rewritten(&Scope{Roots: e.roots, Lenient: true}, from, to, e.defaulted(from, to, shape))
}

// A remedy is a new text for a part of an expression. trial replaces it when it is compiled.
type remedy struct{ text, trial string }

// defaulted lists texts that add a default of some types to the source[from:to].
func (e *Expr) defaulted(from, to int, shape datum.Shape) []remedy {
	text := []rune(e.Source)
	alone := (from == 0 || strings.ContainsRune("(,", text[from-1])) && (to == len(text) || strings.ContainsRune("),", text[to]))
	var out []remedy
	for _, d := range defaults {
		if d.shape&shape == 0 {
			continue
		}
		r := remedy{string(text[from:to]) + " ?? " + d.text, "(" + d.text + ")"}
		if !alone {
			r.text = "(" + r.text + ")"
		}
		out = append(out, r)
	}
	return out
}

// rewritten replaces source[from:to] by the remedy with the fewest findings. It returns the whole expression in
// a form that is valid in YAML brackets, or only the part if the expression has several lines.
func (e *Expr) rewritten(sc *Scope, from, to int, ways []remedy) string {
	text := []rune(e.Source)
	before, behind := string(text[:from]), string(text[to:])
	best, least := "", -1
	for _, way := range ways {
		n := 0
		for _, trial := range []string{way.trial, way.text} {
			n += findings(before+trial+behind, sc, e.want)
		}
		if least < 0 || n < least {
			best, least = way.text, n
		}
	}
	if strings.ContainsRune(e.Source, '\n') {
		return best
	}
	return "!$ " + syntax.InQuotes(before+best+behind)
}

// findings counts the findings of an expression. It ignores defaults that never apply.
func findings(text string, sc *Scope, want datum.Kind) int {
	_, found := tried(text, sc, want)
	return len(slices.DeleteFunc(found, func(d diag.Diagnostic) bool { return d.Code == rules.ExprConstant }))
}

// tried compiles an expression for a message. It returns the types of its value.
func tried(text string, sc *Scope, want datum.Kind) (datum.Shape, []diag.Diagnostic) {
	r, quiet := new(diag.Reporter), *sc
	quiet.trial = true
	e := &Expr{Source: text}
	e.Compile(&quiet, want, r)
	if e.Result == nil {
		return datum.AnyShape, r.Found
	}
	return e.Result.Shape, r.Found
}

// readWithDefault returns how to read a node that may be null.
func (b *checks) readWithDefault(n ast.Node, o *typing.Outline) string {
	if b.scope.trial {
		return ""
	}
	first, last := b.Extent(n)
	from, to := b.Tokens[first].From, b.Tokens[last].To
	ways := b.expr.defaulted(from, to, o.Shape&^datum.NullShape)
	if _, ok := n.(*ast.ConditionalNode); ok { // ?? binds closer
		text := string([]rune(b.expr.Source)[from:to])
		for i := range ways {
			ways[i].text = strings.Replace(ways[i].text, text, "("+text+")", 1)
		}
	}
	return "write, for example, " + b.expr.rewritten(b.scope, from, to, ways)
}

// readThrough returns how to read a chain. Link i is a member of a value that may be null.
func (b *checks) readThrough(links []link, i int) string {
	if b.scope.trial {
		return ""
	}
	end := func(n ast.Node) int {
		_, last := b.Extent(n)
		return b.Tokens[last].To
	}
	source, whole := []rune(b.expr.Source), links[len(links)-1].node
	first, _ := b.Extent(whole)
	from, to := b.Tokens[first].From, end(whole)
	one, all := string(source[from:end(links[i].base)]), ""
	if one == "." { // a dot, which means #.
		one = "#"
	}
	all = one
	for j, l := range links[i:] {
		member := string(source[end(l.base):end(l.node)])
		optional := member
		switch {
		case strings.HasPrefix(member, "["):
			optional = "?." + member
		case strings.HasPrefix(member, "."):
			optional = "?" + member
		case !strings.HasPrefix(member, "?"): // after the dot that means #.
			member, optional = "."+member, "?."+member
		}
		all += optional
		if j == 0 {
			member = optional
		}
		one += member
	}
	shape, _ := tried(all, b.scope, datum.AnyKind)
	ways := append([]remedy{{one, one}, {all, all}}, b.expr.defaulted(from, to, shape&^datum.NullShape)...)
	return "write, for example, " + b.expr.rewritten(b.scope, from, to, ways)
}
