package dsl

import (
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"
)

// conjuncts gives the texts of the parts that must all be true for a condition to
// be true. Two conditions with a text in common have that part in common: nothing
// that they read changes between them.
func (e *Expr) conjuncts(known *parses) []string {
	if e == nil || e.all != nil {
		return e.known()
	}
	s, f := known.parse(e.Source)
	if f != nil {
		return nil
	}
	e.all = s.conjuncts(s.root)
	return e.all
}

// known gives what was found before.
func (e *Expr) known() []string {
	if e == nil {
		return nil
	}
	return e.all
}

func (s *syntax) conjuncts(n ast.Node) []string {
	if x, ok := n.(*ast.BinaryNode); ok && (x.Operator == "and" || x.Operator == "&&") {
		return append(s.conjuncts(x.Left), s.conjuncts(x.Right)...)
	}
	return []string{s.words(n)}
}

// words gives the tokens of a node, whatever space the author has put between
// them.
func (s *syntax) words(n ast.Node) string {
	first, last := s.extent(n)
	var out []string
	for _, t := range s.tokens[first : last+1] {
		out = append(out, t.text)
	}
	return strings.Join(out, " ")
}

// demands lists what must be true for a step to run: the conditions of its stage
// and its own.
func (s step) demands(known *parses) []string {
	return slices.Concat(s.stage.Enabled.Expr().conjuncts(known), s.Enabled.Expr().conjuncts(known))
}

// impliedBy tells whether whoever meets the demands of one step meets those of
// another.
func impliedBy(demands, of []string) bool {
	return !slices.ContainsFunc(demands, func(d string) bool { return !slices.Contains(of, d) })
}

// underCondition tells whether a step may be left out by a condition that an
// author has written.
func (s step) underCondition() bool { return !s.Enabled.IsNull() || !s.stage.Enabled.IsNull() }
