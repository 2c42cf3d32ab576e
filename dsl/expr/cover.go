package expr

import (
	"sync/atomic"

	"github.com/expr-lang/expr/ast"

	"procaas/dsl/diag"
)

// A Cover counts which ways the expressions of a bundle have gone. It may be used
// while they are evaluated.
type Cover struct {
	Forks []*Fork // in the order of files and places
}

// A Fork is a part of an expression that decides about others: an operand of
// and and or, the condition of if, the left side of ??; and the whole of an
// expression that gives true or false where a handler or a pipeline asks for it.
// It can go two ways: to true or false, or to a value or null.
type Fork struct {
	Span diag.Span
	Text string // as the author wrote it
	Null bool   // the ways are a value and null

	counts [2]atomic.Int64
}

// Ways names the two ways.
func (f *Fork) Ways() [2]string {
	if f.Null {
		return [2]string{"a value", "null"}
	}
	return [2]string{"true", "false"}
}

// Counts returns how often the fork went each way.
func (f *Fork) Counts() [2]int64 { return [2]int64{f.counts[0].Load(), f.counts[1].Load()} }

// CountWays makes the expression count the ways that it goes. Whole says that it is a
// condition, which decides as a whole.
func (e *Expr) CountWays(c *Cover, whole bool) {
	if e.Program != nil {
		e.Program = e.watched(&counter{cover: c, decides: map[ast.Node]bool{}, whole: whole})
	}
}

// A counter makes the forks of one expression.
type counter struct {
	cover   *Cover
	whole   bool              // the next node is the whole of a condition
	decides map[ast.Node]bool // nodes that do; true for those that are null or not
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
			// What the operator as a whole comes to follows from its operands.
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
		return p // what is fixed has no other way
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
