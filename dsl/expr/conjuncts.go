package expr

import (
	"slices"

	"procaas/dsl/syntax"
)

// Conjuncts returns the texts of the parts that must all be true for a condition to be true. If two conditions
// share a text, they share that part, because nothing that they read changes in between.
func (e *Expr) Conjuncts(known *syntax.Cache) []string {
	if e == nil || e.all != nil {
		return e.known()
	}
	s, f := known.Parse(e.Source)
	if f != nil {
		return nil
	}
	e.all = s.Conditions()
	return e.all
}

// known returns what was found before.
func (e *Expr) known() []string {
	if e == nil {
		return nil
	}
	return e.all
}

// ImpliedBy reports whether a step that meets demands also meets the demands of another one.
func ImpliedBy(demands, of []string) bool {
	return !slices.ContainsFunc(demands, func(d string) bool { return !slices.Contains(of, d) })
}

// Tokens returns the text of an expression without its spaces.
func (e *Expr) Tokens() []string {
	tokens, _ := syntax.Scan(e.Source)
	out := make([]string, len(tokens))
	for i, t := range tokens {
		out[i] = t.Text
	}
	return out
}

// Holds lists the facts that hold when a condition is true. Nobody may change them.
func (e *Expr) Holds() []Fact {
	if e == nil {
		return nil
	}
	return slices.Clip(e.facts)
}

// Fails lists the facts that hold when a condition is false. Nobody may change them.
func (e *Expr) Fails() []Fact {
	if e == nil {
		return nil
	}
	return slices.Clip(e.denied)
}
