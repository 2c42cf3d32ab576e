package expr

import (
	"errors"
	"strings"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/rules"
	"procaas/dsl/syntax"

	"github.com/expr-lang/expr/ast"
)

// reports make findings about parts of an expression.
type reports struct {
	*syntax.Tree
	expr     *Expr
	reporter *diag.Reporter
	failed   bool
}

// span returns the place of a node in the file.
func (b *reports) span(n ast.Node) diag.Span {
	first, last := b.Extent(n)
	return b.expr.Stretch(b.Tokens[first].From, b.Tokens[last].To)
}

// fail reports an error about a node.
func (b *reports) fail(n ast.Node, code diag.Code, hint, format string, args ...any) part {
	b.failed = true
	b.reporter.Errorf(b.span(n), code, hint, format, args...)
	return broken
}

// failAt reports an error about one token.
func (b *reports) failAt(token int, code diag.Code, hint, format string, args ...any) part {
	b.failed = true
	t := b.Tokens[token]
	b.reporter.Errorf(b.expr.Stretch(t.From, t.To), code, hint, format, args...)
	return broken
}

// guard adds the position of a node to its errors.
func (b *reports) guard(n ast.Node, eval evalFunc) evalFunc {
	at := b.place(n)
	return func(f *frame) (any, error) {
		v, err := eval(f)
		if err != nil {
			return nil, at.wrap(err)
		}
		return v, nil
	}
}

// A place is where an error arises: a part of the text of an expression, counted in runes. Programs have many of them, and errors are
// rare, so it is only then that the place becomes a position in a file.
type place struct {
	expr     *Expr
	from, to int32
}

// place returns the place for errors of a node.
func (b *reports) place(n ast.Node) place {
	first, last := b.Extent(n)
	return place{b.expr, int32(b.Tokens[first].From), int32(b.Tokens[last].To)}
}

// wrap makes err an EvalError, unless it already is one.
func (p place) wrap(err error) error {
	var e *EvalError
	var unknown datum.Unknown
	if errors.As(err, &e) || errors.As(err, &unknown) {
		return err
	}
	return &EvalError{Span: p.expr.Stretch(int(p.from), int(p.to)), Message: err.Error()}
}

// baseText returns the text before a member. A leading dot means #.
func (b *reports) baseText(n ast.Node) string {
	if text := b.Text(n); text != "." {
		return text
	}
	return "#"
}

// notReplaced warns of ${…} in a back-quoted string, which other languages replace.
func (b *reports) notReplaced(x *ast.StringNode) {
	t := b.Tokens[b.At(x)]
	if t.Kind != syntax.StringToken || !strings.HasPrefix(t.Text, "`") {
		return
	}
	if from := strings.Index(t.Text, "${"); from < 0 || !strings.Contains(t.Text[from:], "}") {
		return
	}
	b.reporter.Warnf(b.span(x), rules.ExprForeign, "join the parts with +: 'order ' + string(number)", "nothing replaces ${…} in a string")
}

// notOctal warns of a number that other languages and YAML read as octal.
func (b *reports) notOctal(x *ast.IntegerNode) {
	if text := b.Tokens[b.At(x)].Text; syntax.LeadingZero(text) {
		b.reporter.Warnf(b.span(x), rules.LeadingZero, syntax.LeadingZeroHint(text), "%s is read as the decimal number %d", text, x.Value)
	}
}
