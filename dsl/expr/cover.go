package expr

import (
	"sync/atomic"

	"github.com/expr-lang/expr/ast"

	"procaas/dsl/diag"
)

// A Cover counts the branches that the expressions of a bundle took. It is safe for concurrent evaluation.
type Cover struct {
	Forks []*Fork // in the order of files and positions
}

// A Fork is a part of an expression that decides about other parts: an operand of and and or, the condition of
// if, the left side of ??, or a whole condition. It has two branches: true and false, or a value and null.
type Fork struct {
	Span diag.Span
	Text string // as the author wrote it
	Null bool   // the branches are a value and null

	counts [2]atomic.Int64
}

// Ways returns the names of both branches.
func (f *Fork) Ways() [2]string {
	if f.Null {
		return [2]string{"a value", "null"}
	}
	return [2]string{"true", "false"}
}

// Counts returns how often each branch was taken.
func (f *Fork) Counts() [2]int64 { return [2]int64{f.counts[0].Load(), f.counts[1].Load()} }

// CountWays makes the expression count its branches. whole means that it is a condition, which is a fork as a
// whole.
func (e *Expr) CountWays(c *Cover, whole bool) {
	if e.Program != nil {
		e.Program = e.watched(&counter{cover: c, decides: map[ast.Node]bool{}, whole: whole})
	}
}

// A counter finds the forks of one expression.
type counter struct {
	cover   *Cover
	whole   bool              // the next node is a whole condition
	decides map[ast.Node]bool // forks; true for value and null
}

func (w *counter) enter(_ *builder, n ast.Node) {
	if w.whole {
		w.whole = false
		w.decides[n] = false
	}
	switch x := n.(type) {
	case *ast.BinaryNode:
		switch x.Operator {
		case "and", "&&", "or", "||":
			// The operands determine the result of the operator as a whole.
			delete(w.decides, n)
			w.decides[x.Left], w.decides[x.Right] = false, false
		case "??":
			w.decides[x.Left] = true
		}
	case *ast.UnaryNode:
		if _, ok := w.decides[n]; ok && (x.Operator == "not" || x.Operator == "!") {
			delete(w.decides, n)
			w.decides[x.Node] = false
		}
	case *ast.ConditionalNode:
		w.decides[x.Cond] = false
	}
}

func (w *counter) leave(b *builder, n ast.Node, p part) part {
	null, decides := w.decides[n]
	if !decides || p.fixed {
		return p // a constant has one branch
	}
	fork := &Fork{Span: b.span(n), Text: b.Text(n), Null: null}
	w.cover.Forks = append(w.cover.Forks, fork)
	eval := p.eval
	p.eval = func(f *frame) (any, error) {
		v, err := eval(f)
		switch {
		case err != nil:
		case null && v != nil, !null && v == true:
			fork.counts[0].Add(1)
		case null || v == false:
			fork.counts[1].Add(1)
		}
		return v, err
	}
	return p
}
