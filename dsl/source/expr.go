package source

import (
	"strings"

	"gopkg.in/yaml.v3"

	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/rules"
)

// expression reads the text after a !$ tag. It reports where YAML has changed the text silently.
func (s *Source) expression(n *yaml.Node, v *expr.Value) {
	if at, ok := s.plainly(n); ok && !IsBlank(rune(n.Value[0])) && !IsBlank(rune(n.Value[len(n.Value)-1])) {
		if IsQuoted(n) {
			at.Start.Column++
			at.End.Column--
		}
		v.Span = at
		if IsQuoted(n) || !s.cut(at.End, n.Value) {
			v.Kind = expr.ValueExpr
			v.Computed = &expr.Expr{Source: n.Value, Span: at, At: expr.OnLine(at.Start, at.End.Column-at.Start.Column)}
		}
		return
	}
	at := s.Align(n)
	text := []rune(n.Value)
	from, to := 0, len(text)
	for from < to && IsBlank(text[from]) {
		from++
	}
	for to > from && IsBlank(text[to-1]) {
		to--
	}
	if from == to {
		s.Errorf(s.tagSpan(n), rules.EmptyExpr, blockHint, "the expression is empty")
		return
	}
	v.Span = s.at(at[from], endOf(at, from, to))
	if !IsQuoted(n) && s.cut(v.Span.End, string(text)) {
		return
	}
	v.Kind = expr.ValueExpr
	at[to] = v.Span.End
	v.Computed = &expr.Expr{Source: string(text[from:to]), Span: v.Span, At: expr.Places(at[from : to+1 : to+1])}
}

// endOf returns the position after the runes from..to. If white space follows, the next rune may be lines
// below.
func endOf(at []diag.Pos, from, to int) diag.Pos {
	if to == len(at)-1 && to > from {
		return at[to]
	}
	last := at[to-1]
	return diag.Pos{Line: last.Line, Column: last.Column + 1}
}

// cut reports whether YAML ended a plain expression at a comment, or at a comma or bracket of a surrounding
// collection. If so, it also adds a finding.
func (s *Source) cut(end diag.Pos, text string) bool {
	c := &Cursor{Lines: s.Lines, Line: end.Line - 1, Column: end.Column - 1}
	line := c.Line
	for c.Rune() == ' ' || c.Rune() == '\t' {
		c.Next()
	}
	if c.Rune() == '#' && c.Line == line {
		rest := s.at(c.Pos(), diag.Pos{Line: line + 1, Column: len(s.Lines[line]) + 1})
		s.Errorf(rest, rules.ExprTrap, s.trapHint(rest.Start)+", or put the comment on a line of its own",
			"YAML cuts the expression off here: a # after a blank begins a comment")
		return true
	}
	if r := c.Rune(); (r == ',' || r == ']' || r == '}') && !Balanced(text) {
		at := s.at(c.Pos(), diag.Pos{Line: c.Line + 1, Column: c.Column + 2})
		s.Errorf(at, rules.ExprTrap, s.trapHint(at.Start),
			"YAML cuts the expression off at %q: it ends an entry of the surrounding list or mapping", r)
		return true
	}
	return false
}

// Balanced reports whether all brackets and quotes of an expression are closed.
func Balanced(text string) bool {
	var open []rune
	var quote, before rune
	for _, r := range text {
		switch {
		case quote != 0:
			if r == quote && before != '\\' {
				quote = 0
			}
		case r == '\'' || r == '"' || r == '`':
			quote = r
		case strings.ContainsRune("([{", r):
			open = append(open, r)
		case strings.ContainsRune(")]}", r):
			if len(open) == 0 {
				return false
			}
			open = open[:len(open)-1]
		}
		if before == '\\' {
			r = 0 // an escaped backslash escapes nothing
		}
		before = r
	}
	return quote == 0 && len(open) == 0
}
