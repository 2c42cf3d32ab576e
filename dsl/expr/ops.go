package expr

import (
	"errors"
	"regexp"
	"strings"

	"github.com/expr-lang/expr/ast"

	"procaas/dsl/datum"
	"procaas/dsl/ops"
	"procaas/dsl/rules"
	"procaas/dsl/typing"
)

// A binary is an operator between two values.
type binary struct {
	// result returns the types of the result for operands of these types, or 0 if they are incompatible.
	result func(l, r datum.Shape) datum.Shape

	// needs describes the required operands.
	needs string

	apply func(m *ops.Meter, l, r any) (any, error)
}

// operators are all binary operators except the lazy ones: and, or, ??.
var operators = map[string]binary{
	"+":  {sumShape, "two numbers, two strings or two lists", ops.Add},
	"-":  {numbers, "numbers", ops.Subtract},
	"*":  {numbers, "numbers", ops.Multiply},
	"/":  {quotient, "numbers", ops.Divide},
	"%":  {numbers, "numbers", ops.Modulo},
	"**": {powers, "numbers", ops.Power},
	"..": {wholes, "whole numbers", ops.Sequence},
	"==": {always, "", ops.Equals(true)},
	"!=": {always, "", ops.Equals(false)},
	"<":  {ordered, "two numbers or two strings", ops.Order(func(c int) bool { return c < 0 })},
	"<=": {ordered, "two numbers or two strings", ops.Order(func(c int) bool { return c <= 0 })},
	">":  {ordered, "two numbers or two strings", ops.Order(func(c int) bool { return c > 0 })},
	">=": {ordered, "two numbers or two strings", ops.Order(func(c int) bool { return c >= 0 })},
	"in": {within, "a list, a mapping or a string on its right", ops.Contains},

	"contains":   {texts, "strings", ops.Textual(strings.Contains)},
	"startsWith": {texts, "strings", ops.Textual(strings.HasPrefix)},
	"endsWith":   {texts, "strings", ops.Textual(strings.HasSuffix)},
}

// always is the result of ==, which accepts any operands.
func always(datum.Shape, datum.Shape) datum.Shape { return datum.BoolShape }

// numbers returns an integer for two integers, and a float if either is one.
func numbers(l, r datum.Shape) datum.Shape {
	if l&datum.NumberShape == 0 || r&datum.NumberShape == 0 {
		return 0
	}
	return (l|r)&datum.FloatShape | l&r&datum.IntShape
}

// powers allows for a negative exponent, whose result is a float.
func powers(l, r datum.Shape) datum.Shape {
	if numbers(l, r) == 0 {
		return 0
	}
	return datum.NumberShape
}

// quotient is always a float: 6 / 2 is 3.0, as in Python.
func quotient(l, r datum.Shape) datum.Shape { return powers(l, r) & datum.FloatShape }

func wholes(l, r datum.Shape) datum.Shape {
	if l&r&datum.IntShape == 0 {
		return 0
	}
	return datum.ListShape
}

// sumShape adds numbers, and joins two strings or two lists.
func sumShape(l, r datum.Shape) datum.Shape {
	return numbers(l, r) | l&r&(datum.StringShape|datum.ListShape)
}

// ordered requires two numbers or two strings.
func ordered(l, r datum.Shape) datum.Shape {
	if numbers(l, r) == 0 && l&r&datum.StringShape == 0 {
		return 0
	}
	return datum.BoolShape
}

// within accepts any element in a list, and strings in strings and mappings.
func within(l, r datum.Shape) datum.Shape {
	if r&(datum.ListShape|datum.MapShape) != 0 || l&r&datum.StringShape != 0 {
		return datum.BoolShape
	}
	return 0
}

// texts requires two strings.
func texts(l, r datum.Shape) datum.Shape {
	if l&r&datum.StringShape == 0 {
		return 0
	}
	return datum.BoolShape
}

// binary compiles an operator. It evaluates both sides, the left one first.
func (b *builder) binary(x *ast.BinaryNode) part {
	switch x.Operator {
	case "and", "&&", "or", "||":
		return b.logic(x)
	case "??":
		return b.otherwise(x)
	case "matches":
		return b.matches(x)
	}
	op, ok := operators[x.Operator]
	if !ok {
		return b.fail(x, rules.ExprSyntax, "", "there is no operator %s", x.Operator)
	}
	l, r := b.build(x.Left), b.build(x.Right)
	if l.shape == 0 || r.shape == 0 {
		return broken
	}
	// A comparison with null is a test for null, so it is allowed.
	equality := x.Operator == "==" || x.Operator == "!="
	if !equality && x.Operator != "in" {
		l = b.solid(x.Left, l)
	}
	if !equality {
		r = b.solid(x.Right, r)
	}
	result := op.result(l.shape, r.shape)
	if result == 0 {
		return b.fail(x, rules.ExprOperand, b.mixHint(x, l.shape, r.shape),
			"%s needs %s, have %s and %s", x.Operator, op.needs, l.shape, r.shape)
	}
	known := b.checkOperands(x, op, l, r)
	at, apply := b.place(x), op.apply
	return part{shape: result, outline: known, eval: func(f *frame) (any, error) {
		lv, err := l.eval(f)
		if err != nil {
			return nil, err
		}
		rv, err := r.eval(f)
		if err != nil {
			return nil, err
		}
		v, err := apply(&f.Meter, lv, rv)
		if err != nil {
			return nil, at.wrap(err)
		}
		return v, nil
	}}
}

// checkOperands reports incompatible operands, and comparisons that always have the same result. It returns the
// type of the result.
func (b *checks) checkOperands(x *ast.BinaryNode, op binary, l, r part) *typing.Outline {
	switch x.Operator {
	case "==", "!=":
		b.checkEquality(x, l, r)
		return nil
	case "in":
		b.checkIn(x, l, r)
	}
	lo, ro := l.known(), r.known()
	hint := func(l, r datum.Shape) string { return b.mixHint(x, l, r) }
	b.checkPairs(x, x.Operator+" needs "+op.needs, op.result, l, r, hint)
	if x.Operator == "+" && lo.Types() == datum.ListShape && ro.Types() == datum.ListShape {
		return typing.Either(lo, ro)
	}
	return nil
}

// checkPairs reports a pair of operands that have no result. Each side may have several choices.
func (b *checks) checkPairs(n ast.Node, needs string, result func(l, r datum.Shape) datum.Shape, l, r part, hint func(l, r datum.Shape) string) {
	lefts, rights := l.known().Each(), r.known().Each()
	have := l.have()
	if len(rights) > 1 {
		have = r.have()
	}
	for _, lo := range lefts {
		for _, ro := range rights {
			if result(lo.Types(), ro.Types()) != 0 {
				continue
			}
			of := lo
			if of == nil || result(lo.Types(), datum.AnyShape) != 0 {
				of = ro // the left side fits others
			}
			found := *of
			found.Inferred = result(l.sure(lo), r.sure(ro)) != 0
			b.doubt(n, &found, rules.ExprOperand, hint(lo.Types(), ro.Types()), "%s, %s %s and %s", needs, have, lo.Types(), ro.Types())
			return
		}
	}
}

// sure returns the types of a choice of the part as far as they are certain. Those of a constant and those that a schema
// promises are.
func (p part) sure(choice *typing.Outline) datum.Shape {
	switch {
	case len(p.known().Each()) == 1:
		return p.shape
	case choice == nil || choice.Inferred:
		return datum.AnyShape
	}
	return choice.Shape
}

// logic compiles and and or. The right side is evaluated only if it matters.
func (b *builder) logic(x *ast.BinaryNode) part {
	word := map[string]string{"&&": "and", "||": "or"}[x.Operator]
	if word == "" {
		word = x.Operator
	}
	enough := word == "or"
	l := b.condition(x.Left, word)
	var r func(f *frame) (bool, error)
	b.knowing(x.Left, !enough, func() { r = b.condition(x.Right, word) })
	return part{shape: datum.BoolShape, eval: func(f *frame) (any, error) {
		truth, err := l(f)
		if err != nil {
			return nil, err
		}
		if truth == enough {
			return truth, nil
		}
		truth, err = r(f)
		if err != nil {
			return nil, err
		}
		return truth, nil
	}}
}

// otherwise compiles a ?? b. If something on the path on its left is null, the left side is null, not an error.
func (b *builder) otherwise(x *ast.BinaryNode) part {
	l := b.optional(x.Left)
	if o := l.outline; o != nil && !o.Inferred && o.Shape&datum.NullShape == 0 {
		b.reporter.Warnf(b.span(x.Right), rules.ExprConstant, "drop ?? and what follows", "%s is never null: the default is never used",
			b.Text(x.Left))
	}
	r := b.build(x.Right)
	s := l.shape&^datum.NullShape | r.shape
	known := typing.Choice(l.known().Present(), r.known())
	if l.known() != nil && l.known().Shape == datum.NullShape {
		known = r.known()
	}
	return part{shape: s, outline: known, eval: func(f *frame) (any, error) {
		v, err := l.eval(f)
		if v != nil || err != nil { // ?? replaces null only, not errors
			return v, err
		}
		return r.eval(f)
	}}
}

// optional compiles the left side of ??.
func (b *builder) optional(n ast.Node) part {
	if !isChain(n) {
		return b.build(n)
	}
	b.nodes++
	if b.watch == nil {
		return b.chain(n, true)
	}
	b.watch.enter(b, n)
	return b.watch.leave(b, n, b.chain(n, true))
}

func isChain(n ast.Node) bool {
	switch n.(type) {
	case *ast.IdentifierNode, *ast.PointerNode, *ast.MemberNode, *ast.ChainNode:
		return true
	}
	return false
}

// The limits of a pattern. Matching takes time in proportion to its instructions, and repetitions in a short
// text make many of them.
const (
	maxPattern = 256 // bytes
)

// matches compiles a regular expression match. The pattern must be a literal, so it is checked and compiled
// once.
func (b *builder) matches(x *ast.BinaryNode) part {
	text := b.want(x.Left, b.build(x.Left), datum.StringShape, "matches")
	literal, ok := x.Right.(*ast.StringNode)
	if !ok {
		return b.fail(x.Right, rules.ExprPattern, "write it as a string literal", "the pattern of matches must be fixed")
	}
	size, err := patternSize(literal.Value)
	if err != nil {
		return b.fail(x.Right, rules.ExprPattern, "", "the pattern is not valid: %s", err)
	}
	if size > ops.MaxInstructions {
		return b.fail(x.Right, rules.ExprPattern, "make its repetitions smaller", "the pattern is too large")
	}
	re := regexp.MustCompile(literal.Value)
	return part{shape: datum.BoolShape, eval: b.guard(x, func(f *frame) (any, error) {
		v, err := text.eval(f)
		if err != nil {
			return nil, err
		}
		s, ok := v.(string)
		if !ok {
			return nil, ops.Needs("matches", datum.StringShape, v)
		}
		// Matching takes time in proportion to the text and to the pattern.
		if err := f.Step(1 + len(s)*size/16); err != nil {
			return nil, err
		}
		return re.MatchString(s), nil
	})}
}

// patternSize returns the number of instructions of a pattern of an expression.
func patternSize(text string) (int, error) {
	if len(text) > maxPattern {
		return 0, errors.New("it is longer than 256 bytes")
	}
	return ops.Instructions(text)
}

// unary compiles not, - and +.
func (b *builder) unary(x *ast.UnaryNode) part {
	if x.Operator == "not" || x.Operator == "!" {
		cond := b.condition(x.Node, "not")
		return part{shape: datum.BoolShape, eval: func(f *frame) (any, error) {
			truth, err := cond(f)
			if err != nil {
				return nil, err
			}
			return !truth, nil
		}}
	}
	p := b.want(x.Node, b.build(x.Node), datum.NumberShape, x.Operator)
	negate := x.Operator == "-"
	made := part{shape: p.shape & datum.NumberShape, eval: b.guard(x, func(f *frame) (any, error) {
		v, err := p.eval(f)
		if err != nil {
			return nil, err
		}
		switch v.(type) {
		case int, float64:
		default:
			return nil, ops.Needs(x.Operator, datum.NumberShape, v)
		}
		if negate {
			return ops.Subtract(&f.Meter, 0, v)
		}
		return v, nil
	})}
	return folded(made, p.fixed)
}

// slice compiles text[from:to] and list[from:to]. As in Python, negative indexes count from the end, and
// indexes out of range are moved into it.
func (b *builder) slice(x *ast.SliceNode) part {
	of := b.want(x.Node, b.build(x.Node), datum.ListShape|datum.StringShape, "[:]")
	bound := func(n ast.Node) evalFunc {
		if n == nil {
			return nil
		}
		return b.want(n, b.build(n), datum.IntShape, "[:]").eval
	}
	from, to := bound(x.From), bound(x.To)
	return part{
		shape: of.shape & (datum.ListShape | datum.StringShape), outline: of.outline.Widened(),
		eval: b.guard(x, func(f *frame) (any, error) {
			v, err := of.eval(f)
			if err != nil {
				return nil, err
			}
			switch v := v.(type) {
			case []any:
				lo, hi, err := bounds(f, from, to, len(v))
				return v[lo:hi], err
			case string:
				if err := f.Text(min(len(v), ops.MaxText)); err != nil {
					return nil, err
				}
				chars := []rune(v)
				lo, hi, err := bounds(f, from, to, len(chars))
				return string(chars[lo:hi]), err
			}
			return nil, ops.Needs("[:]", datum.ListShape|datum.StringShape, v)
		}),
	}
}

// bounds computes the indexes of a slice of n elements.
func bounds(f *frame, from, to evalFunc, n int) (lo, hi int, err error) {
	position := func(eval evalFunc, otherwise int) int {
		if eval == nil || err != nil {
			return otherwise
		}
		var v any
		if v, err = eval(f); err != nil {
			return otherwise
		}
		i, ok := v.(int)
		if !ok {
			err = ops.Needs("[:]", datum.IntShape, v)
		}
		if i < 0 {
			i += n
		}
		return min(max(i, 0), n)
	}
	lo, hi = position(from, 0), position(to, n)
	return lo, max(lo, hi), err
}
