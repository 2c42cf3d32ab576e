package dsl

import (
	"cmp"
	"reflect"
	"slices"
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

// Counts tells how often the fork went each way.
func (f *Fork) Counts() [2]int64 { return [2]int64{f.counts[0].Load(), f.counts[1].Load()} }

// Cover makes the expressions of the bundle count the ways that they go. It must
// be called before any of them is evaluated.
func (b *Bundle) Cover() *Cover {
	w := coverWalk{cover: &Cover{}, seen: map[*Expr]bool{}}
	spec := languageSpec()
	for _, f := range b.Flows {
		w.object(reflect.ValueOf(f), spec.Field("flows").Elem.Spec)
	}
	for _, p := range b.Pipelines {
		w.object(reflect.ValueOf(p), spec.Field("pipelines").Elem.Spec)
	}
	slices.SortStableFunc(w.cover.Forks, func(a, b *Fork) int {
		x, y := a.Span, b.Span
		return cmp.Or(cmp.Compare(x.File, y.File), cmp.Compare(x.Start.Line, y.Start.Line), cmp.Compare(x.Start.Column, y.Start.Column))
	})
	return w.cover
}

// A coverWalk finds the expressions of a tree.
type coverWalk struct {
	cover *Cover
	seen  map[*Expr]bool
}

// object visits the fields of a struct of the language, which v points to.
func (w *coverWalk) object(v reflect.Value, s *Spec) {
	if v.IsNil() {
		return
	}
	switch x := v.Interface().(type) {
	case *Handler:
		w.value(x.Body, false)
	case *Compensation:
		w.value(x.Body, false)
	case *Verify:
		w.value(x.Body, false)
	case *Use:
		return // what it gives stands in the handler
	}
	for _, f := range s.Fields {
		w.field(v.Elem().Field(f.index), f)
	}
}

func (w *coverWalk) field(v reflect.Value, f *Field) {
	switch {
	case f.value:
		w.value(v.Interface().(*Value), f.ExprKind == BoolKind)
	case f.Kind == ObjectKind:
		w.object(v, f.Spec)
	case f.Kind == ListKind && f.Elem.Kind == ObjectKind:
		for i := range v.Len() {
			w.object(v.Index(i), f.Elem.Spec)
		}
	}
}

// value covers the expressions of a value. A condition is one that decides as a
// whole.
func (w *coverWalk) value(v *Value, condition bool) {
	v.walkExprs(func(e *Expr) {
		if w.seen[e] || e.program == nil {
			return
		}
		w.seen[e] = true
		e.program = e.watched(&counter{cover: w.cover, decides: map[ast.Node]bool{}, whole: condition && v.Expr() == e})
	})
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
	fork := &Fork{Span: b.span(n), Text: b.text(n), Null: null}
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
