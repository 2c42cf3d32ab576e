package dsl

import (
	"github.com/expr-lang/expr/ast"

	"procaas/dsl/rules"
)

// This file tells what functions give that take lists and mappings apart, and what
// they need of the parts.

// elementShapes are what the elements must be of the lists that functions take.
var elementShapes = map[string]shape{
	"sum": numberShape, "mean": numberShape, "median": numberShape, "join": stringShape,
	"min": numberShape | stringShape, "max": numberShape | stringShape, "sort": numberShape | stringShape,
	"count": boolShape,
}

// keyShapes are what the bodies of functions must give that order or gather by it.
var keyShapes = map[string]shape{
	"sortBy": numberShape | stringShape, "groupBy": boolShape | numberShape | stringShape,
}

// checkKeys reports a body whose value cannot be a key.
func (b *builder) checkKeys(x *ast.BuiltinNode, body part) {
	s := keyShapes[x.Name]
	if s == 0 || len(x.Arguments) < 2 {
		return
	}
	n := x.Arguments[1].(*ast.PredicateNode).Node
	if body = b.solid(n, body); body.outline != nil && body.outline.shape&s == 0 {
		b.doubt(n, body.outline, rules.ExprOperand, "", "the key of %s needs %s, have %s", x.Name, s, body.outline.shape)
	}
}

// checkElements reports a list whose elements a function cannot take.
func (b *builder) checkElements(n ast.Node, name string, p part) {
	s, o := elementShapes[name], elementOf(p.outline)
	switch {
	case s == 0 || o == nil:
	case o.shape&s == 0:
		b.doubt(n, o, rules.ExprOperand, hintFor(s, o.shape), "%s needs a list of which each element is %s, have %s", name, s, o.shape)
	case o.nullable() && o.why != "":
		b.doubt(n, o, rules.ExprMaybeNull, "drop them first: filter(xs, # != null)", "elements of %s may be null: %s", b.text(n), o.why)
	}
}

// listOutlines tell what functions give that take a list or a mapping apart, and
// put it together again.
var listOutlines = map[string]func(args []*outline) *outline{
	"filter": sameList, "reverse": sameList, "sort": sameList, "uniq": sameList, "take": sameList, "sortBy": sameList,
	"first": maybeElement, "last": maybeElement, "find": maybeElement, "findLast": maybeElement,
	"map":     func(args []*outline) *outline { return listOf(args[len(args)-1]) },
	"keys":    func([]*outline) *outline { return listOf(ofShape(stringShape)) },
	"split":   func([]*outline) *outline { return listOf(ofShape(stringShape)) },
	"flatten": func(args []*outline) *outline { return listOf(elementOf(elementOf(args[0]))) },
	"values":  func(args []*outline) *outline { return listOf(anyMember(args[0])) },
	"groupBy": func(args []*outline) *outline {
		return &outline{shape: mapShape, rest: sameList(args)}
	},
	"min": extremeOf, "max": extremeOf,
	"concat": func(args []*outline) *outline {
		out := args[0]
		for _, a := range args[1:] {
			out = either(out, a)
		}
		return sameList([]*outline{out})
	},
}

func listOf(elem *outline) *outline { return &outline{shape: listShape, elem: elem} }

// elementOf is what an element of a list is.
func elementOf(o *outline) *outline {
	if o == nil {
		return nil
	}
	return o.elem
}

func sameList(args []*outline) *outline { return listOf(elementOf(args[0])) }

func maybeElement(args []*outline) *outline {
	return elementOf(args[0]).absent("there may be no such element")
}

// extremeOf is the least or greatest element of a list; of an empty one there is
// none.
func extremeOf(args []*outline) *outline {
	if len(args) > 1 || args[0].shape != listShape {
		return nil
	}
	return elementOf(args[0]).absent("an empty list has neither a least nor a greatest element")
}

// anyMember is what each member of a mapping is.
func anyMember(o *outline) *outline {
	if o == nil || !o.closed && (o.rest == nil || len(o.members) > 0) {
		return nil
	}
	out := o.rest
	for i, name := range o.memberNames() {
		if i == 0 {
			out = o.members[name].outline
			continue
		}
		out = either(out, o.members[name].outline)
	}
	return out
}

// resultOf is what a call gives.
func resultOf(fn *function, args []*outline) *outline {
	if f := listOutlines[fn.Name]; f != nil && len(args) > 0 && args[0] != nil {
		out := f(args)
		if out != nil && args[0].inferred {
			return out.supposed()
		}
		return out
	}
	return nil
}
