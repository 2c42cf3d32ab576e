package expr

import (
	"github.com/expr-lang/expr/ast"

	"procaas/dsl/datum"
	"procaas/dsl/library"
	"procaas/dsl/rules"
	"procaas/dsl/typing"
)

// This file has the types of functions on lists and mappings: their results, and what they require of elements.

// elementShapes are the required types of elements, by function.
var elementShapes = map[string]datum.Shape{
	"sum": datum.NumberShape, "mean": datum.NumberShape, "median": datum.NumberShape, "join": datum.StringShape,
	"min": datum.NumberShape | datum.StringShape, "max": datum.NumberShape | datum.StringShape, "sort": datum.NumberShape | datum.StringShape,
	"count": datum.BoolShape,
}

// keyShapes are the required types of keys, by function that sorts or groups.
var keyShapes = map[string]datum.Shape{
	"sortBy": datum.NumberShape | datum.StringShape, "groupBy": datum.BoolShape | datum.NumberShape | datum.StringShape,
}

// checkKeys reports a body whose value cannot be a key.
func (b *checks) checkKeys(x *ast.BuiltinNode, body part) {
	s := keyShapes[x.Name]
	if s == 0 || len(x.Arguments) < 2 {
		return
	}
	n := x.Arguments[1].(*ast.PredicateNode).Node
	body = b.solid(n, body)
	if body.outline != nil && body.outline.Shape&s == 0 {
		b.doubt(n, body.outline, rules.ExprOperand, "", "the key of %s needs %s, have %s", x.Name, s, body.outline.Shape)
	}
}

// checkElements reports a list whose elements a function cannot take.
func (b *checks) checkElements(n ast.Node, name string, p part) {
	s, o := elementShapes[name], elementOf(p.outline)
	switch {
	case s == 0 || o == nil:
	case !b.checkEach(n, o, s, name):
	case o.Nullable() && o.Why != "":
		b.doubt(n, o, rules.ExprMaybeNull, "drop them first: filter(xs, # != null)", "elements of %s may be null: %s", b.Text(n), o.Why)
	}
}

// checkEach reports the first element that a function cannot take. It returns whether there is none.
func (b *checks) checkEach(n ast.Node, o *typing.Outline, s datum.Shape, name string) bool {
	for _, one := range o.Each() {
		if one != nil && one.Shape&s == 0 {
			b.doubt(n, one, rules.ExprOperand, hintFor(s, one.Shape), "%s needs a list of which each element is %s, have %s", name, s, one.Shape)
			return false
		}
	}
	return true
}

// listOutlines return the types of the results of functions on lists and mappings.
var listOutlines = map[string]func(args []*typing.Outline) *typing.Outline{
	"filter": sameList, "reverse": sameList, "sort": sameList, "uniq": sameList, "take": sameList, "sortBy": sameList,
	"first": maybeElement, "last": maybeElement, "find": maybeElement, "findLast": maybeElement,
	"map":     func(args []*typing.Outline) *typing.Outline { return listOf(args[len(args)-1]) },
	"keys":    func([]*typing.Outline) *typing.Outline { return listOf(typing.OfShape(datum.StringShape)) },
	"split":   func([]*typing.Outline) *typing.Outline { return listOf(typing.OfShape(datum.StringShape)) },
	"flatten": func(args []*typing.Outline) *typing.Outline { return listOf(elementOf(elementOf(args[0]))) },
	"values":  func(args []*typing.Outline) *typing.Outline { return listOf(anyMember(args[0])) },
	"groupBy": func(args []*typing.Outline) *typing.Outline {
		return &typing.Outline{Shape: datum.MapShape, Rest: sameList(args)}
	},
	"min": extremeOf, "max": extremeOf,
	"concat": func(args []*typing.Outline) *typing.Outline {
		out := args[0]
		for _, a := range args[1:] {
			out = typing.Either(out, a)
		}
		return sameList([]*typing.Outline{out})
	},
}

func listOf(elem *typing.Outline) *typing.Outline {
	return &typing.Outline{Shape: datum.ListShape, Elem: elem}
}

// elementOf returns the outline of a list's element.
func elementOf(o *typing.Outline) *typing.Outline {
	if o == nil {
		return nil
	}
	return o.Elem
}

// sameList returns the outline of a list of some elements of another one.
func sameList(args []*typing.Outline) *typing.Outline { return listOf(elementOf(args[0]).Joined()) }

func maybeElement(args []*typing.Outline) *typing.Outline {
	return elementOf(args[0]).Joined().Absent("there may be no such element")
}

// extremeOf returns the outline of the least or greatest element. An empty list has none.
func extremeOf(args []*typing.Outline) *typing.Outline {
	if len(args) > 1 {
		out := args[0]
		for _, a := range args[1:] {
			out = typing.Either(out, a)
		}
		return out.Widened()
	}
	if args[0].Shape != datum.ListShape {
		return nil
	}
	return elementOf(args[0]).Joined().Absent("an empty list has neither a least nor a greatest element")
}

// anyMember returns the outline of a mapping's members.
func anyMember(o *typing.Outline) *typing.Outline {
	if o == nil || !o.Closed && (o.Rest == nil || len(o.Members) > 0) {
		return nil
	}
	out := o.Rest
	for i, name := range o.MemberNames() {
		if i == 0 {
			out = o.Members[name].Outline
			continue
		}
		out = typing.Either(out, o.Members[name].Outline)
	}
	return out
}

// resultOf returns the outline of a call's result.
func resultOf(fn *library.Definition, args []*typing.Outline) *typing.Outline {
	if f := listOutlines[fn.Name]; f != nil && len(args) > 0 && args[0] != nil {
		out := f(args)
		if out != nil && args[0].Inferred {
			return out.Supposed()
		}
		return out
	}
	return nil
}
