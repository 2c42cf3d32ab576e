package dsl

import (
	"errors"
	"fmt"
	"regexp"
	pattern "regexp/syntax"
	"strings"

	"github.com/expr-lang/expr/ast"

	"procaas/dsl/rules"
)

// A binary is an operator between two values.
type binary struct {
	// result gives the shape of the result of operands of these shapes; 0 when
	// they cannot have one.
	result func(l, r shape) shape

	// needs names the operands that the operator takes.
	needs string

	apply func(m *meter, l, r any) (any, error)
}

// operators are all binary operators but the lazy ones: and, or, ??.
var operators = map[string]binary{
	"+":  {sumShape, "two numbers, two strings or two lists", add},
	"-":  {numbers, "numbers", subtract},
	"*":  {numbers, "numbers", multiply},
	"/":  {quotient, "numbers", divide},
	"%":  {numbers, "numbers", modulo},
	"**": {powers, "numbers", power},
	"..": {wholes, "whole numbers", sequence},
	"==": {always, "", equals(true)},
	"!=": {always, "", equals(false)},
	"<":  {ordered, "two numbers or two strings", order(func(c int) bool { return c < 0 })},
	"<=": {ordered, "two numbers or two strings", order(func(c int) bool { return c <= 0 })},
	">":  {ordered, "two numbers or two strings", order(func(c int) bool { return c > 0 })},
	">=": {ordered, "two numbers or two strings", order(func(c int) bool { return c >= 0 })},
	"in": {within, "a list, a mapping or a string on its right", contains},

	"contains":   {texts, "strings", textual(strings.Contains)},
	"startsWith": {texts, "strings", textual(strings.HasPrefix)},
	"endsWith":   {texts, "strings", textual(strings.HasSuffix)},
}

// always is the result of ==, which takes anything.
func always(shape, shape) shape { return boolShape }

// numbers gives a whole number of two whole ones, and a fraction when either is one.
func numbers(l, r shape) shape {
	if l&numberShape == 0 || r&numberShape == 0 {
		return 0
	}
	return (l|r)&floatShape | l&r&intShape
}

// powers allows for a negative exponent, which makes a fraction.
func powers(l, r shape) shape {
	if numbers(l, r) == 0 {
		return 0
	}
	return numberShape
}

// quotient is never whole: 6 / 2 is 3.0, as in Python.
func quotient(l, r shape) shape { return powers(l, r) & floatShape }

func wholes(l, r shape) shape {
	if l&r&intShape == 0 {
		return 0
	}
	return listShape
}

// sumShape adds numbers, and joins strings or lists; never one of each.
func sumShape(l, r shape) shape { return numbers(l, r) | l&r&(stringShape|listShape) }

// ordered takes two numbers or two strings: nothing else has an order.
func ordered(l, r shape) shape {
	if numbers(l, r) == 0 && l&r&stringShape == 0 {
		return 0
	}
	return boolShape
}

// within takes any element in a list, and strings in strings and mappings.
func within(l, r shape) shape {
	if r&(listShape|mapShape) != 0 || l&r&stringShape != 0 {
		return boolShape
	}
	return 0
}

// texts takes two strings.
func texts(l, r shape) shape {
	if l&r&stringShape == 0 {
		return 0
	}
	return boolShape
}

// needs says that an operand is not what it must be.
func needs(what string, want shape, have any) error {
	return fmt.Errorf("%s needs %s, have %s", what, want, describe(have))
}

// binary makes an operator between two values. Both sides are computed, the left one first.
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
	// To compare with null is how one tests for it, so there it is no mistake.
	equality := x.Operator == "==" || x.Operator == "!="
	if !equality && x.Operator != "in" {
		l = b.solid(x.Left, l)
	}
	if !equality {
		r = b.solid(x.Right, r)
	}
	result := op.result(l.shape, r.shape)
	if result == 0 {
		return b.fail(x, rules.ExprOperand, mixHint(x.Operator, l.shape, r.shape),
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
		v, err := apply(&f.meter, lv, rv)
		if err != nil {
			return nil, at.wrap(err)
		}
		return v, nil
	}}
}

// checkOperands reports operands that can never have a result together, and
// comparisons that always have the same; it gives what is known of the result.
func (b *builder) checkOperands(x *ast.BinaryNode, op binary, l, r part) *outline {
	switch x.Operator {
	case "==", "!=":
		b.checkEquality(x, l, r)
		return nil
	case "in":
		b.checkIn(x, l, r)
	}
	lo, ro := l.known(), r.known()
	if op.result(lo.types(), ro.types()) == 0 {
		of := lo
		if of == nil || ro != nil && ro.inferred {
			of = ro
		}
		b.doubt(x, of, rules.ExprOperand, mixHint(x.Operator, lo.types(), ro.types()),
			"%s needs %s, have %s and %s", x.Operator, op.needs, lo.types(), ro.types())
	}
	if x.Operator == "+" && lo.types() == listShape && ro.types() == listShape {
		return either(lo, ro)
	}
	return nil
}

// mixHint says how to join a string and a number.
func mixHint(op string, l, r shape) string {
	switch {
	case op == "+" && (l|r)&stringShape != 0 && (l|r)&numberShape != 0:
		return "make a string of the number: string(x)"
	case op == "%" && l == stringShape:
		return "join the parts: 'order ' + string(number)"
	case op == "*" && (l|r)&stringShape != 0:
		return "write repeat(text, times)"
	case op == "+" && (l|r)&mapShape != 0:
		return "write merge(a, b)"
	case (l|r)&nullShape != 0:
		return "give a default: x ?? 0"
	case (l|r)&stringShape != 0 && (l|r)&numberShape != 0:
		return "make a number of the string: int(x) or float(x)"
	}
	return ""
}

// mayEqual tells whether values of two shapes can ever be equal.
func mayEqual(l, r shape) bool {
	return l&r != 0 || l&numberShape != 0 && r&numberShape != 0
}

// logic makes and, or; the right side is computed only when it matters.
func (b *builder) logic(x *ast.BinaryNode) part {
	word := map[string]string{"&&": "and", "||": "or"}[x.Operator]
	if word == "" {
		word = x.Operator
	}
	enough := word == "or"
	l := b.condition(x.Left, word)
	var r func(f *frame) (bool, error)
	b.knowing(b.factsOf(x.Left, !enough), func() { r = b.condition(x.Right, word) })
	return part{shape: boolShape, eval: func(f *frame) (any, error) {
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

// otherwise makes a ?? b. A path on its left is null, not an error, when
// something on the way is null.
func (b *builder) otherwise(x *ast.BinaryNode) part {
	l := b.optional(x.Left)
	if o := l.outline; o != nil && !o.inferred && o.shape&nullShape == 0 {
		b.reporter.Warnf(b.span(x.Right), rules.ExprConstant, "drop ?? and what follows", "%s is never null: the default is never used", b.text(x.Left))
	}
	r := b.build(x.Right)
	s := l.shape&^nullShape | r.shape
	known := either(l.known().present(), r.known())
	if l.known() != nil && l.known().shape == nullShape {
		known = r.known()
	}
	return part{shape: s, outline: known, eval: func(f *frame) (any, error) {
		v, err := l.eval(f)
		if v != nil || err != nil { // ?? is for null only: an error stays one
			return v, err
		}
		return r.eval(f)
	}}
}

// optional makes the left side of ??.
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

// The bounds of a pattern. Matching takes time in proportion to the number of
// its instructions, of which repetitions make many from a short text.
const (
	maxPattern      = 256  // bytes
	maxInstructions = 1000 // of the compiled pattern
)

// matches makes a regular expression match. The pattern must be literal, so
// that it is checked and compiled once.
func (b *builder) matches(x *ast.BinaryNode) part {
	text := b.want(x.Left, b.build(x.Left), stringShape, "matches")
	literal, ok := x.Right.(*ast.StringNode)
	if !ok {
		return b.fail(x.Right, rules.ExprPattern, "write it as a string literal", "the pattern of matches must be fixed")
	}
	size, err := patternSize(literal.Value)
	if err != nil {
		return b.fail(x.Right, rules.ExprPattern, "", "the pattern is not valid: %s", err)
	}
	if size > maxInstructions {
		return b.fail(x.Right, rules.ExprPattern, "make its repetitions smaller", "the pattern is too large")
	}
	re := regexp.MustCompile(literal.Value)
	return part{shape: boolShape, eval: b.guard(x, func(f *frame) (any, error) {
		v, err := text.eval(f)
		if err != nil {
			return nil, err
		}
		s, ok := v.(string)
		if !ok {
			return nil, needs("matches", stringShape, v)
		}
		// Matching takes time in proportion to the text and to the pattern.
		if err := f.step(1 + len(s)*size/16); err != nil {
			return nil, err
		}
		return re.MatchString(s), nil
	})}
}

// patternSize gives the number of instructions of a pattern of an expression.
func patternSize(text string) (int, error) {
	if len(text) > maxPattern {
		return 0, errors.New("it is longer than 256 bytes")
	}
	return instructions(text)
}

// instructions counts those of a pattern once it is compiled.
func instructions(text string) (int, error) {
	tree, err := pattern.Parse(text, pattern.Perl)
	if err != nil {
		return 0, err
	}
	prog, err := pattern.Compile(tree.Simplify())
	if err != nil {
		return 0, err
	}
	return len(prog.Inst), nil
}

// unary makes not, - and +.
func (b *builder) unary(x *ast.UnaryNode) part {
	if x.Operator == "not" || x.Operator == "!" {
		cond := b.condition(x.Node, "not")
		return part{shape: boolShape, eval: func(f *frame) (any, error) {
			truth, err := cond(f)
			if err != nil {
				return nil, err
			}
			return !truth, nil
		}}
	}
	p := b.want(x.Node, b.build(x.Node), numberShape, x.Operator)
	negate := x.Operator == "-"
	made := part{shape: p.shape & numberShape, eval: b.guard(x, func(f *frame) (any, error) {
		v, err := p.eval(f)
		if err != nil {
			return nil, err
		}
		switch v.(type) {
		case int, float64:
		default:
			return nil, needs(x.Operator, numberShape, v)
		}
		if negate {
			return subtract(&f.meter, 0, v)
		}
		return v, nil
	})}
	return folded(made, p.fixed)
}

// slice makes text[from:to] and list[from:to]. As in Python, positions count
// from the end when they are negative, and those outside are moved inside.
func (b *builder) slice(x *ast.SliceNode) part {
	of := b.want(x.Node, b.build(x.Node), listShape|stringShape, "[:]")
	bound := func(n ast.Node) evalFunc {
		if n == nil {
			return nil
		}
		return b.want(n, b.build(n), intShape, "[:]").eval
	}
	from, to := bound(x.From), bound(x.To)
	return part{shape: of.shape & (listShape | stringShape), outline: of.outline.widened(), eval: b.guard(x, func(f *frame) (any, error) {
		v, err := of.eval(f)
		if err != nil {
			return nil, err
		}
		switch v := v.(type) {
		case []any:
			lo, hi, err := bounds(f, from, to, len(v))
			return v[lo:hi], err
		case string:
			if err := f.text(min(len(v), maxText)); err != nil {
				return nil, err
			}
			chars := []rune(v)
			lo, hi, err := bounds(f, from, to, len(chars))
			return string(chars[lo:hi]), err
		}
		return nil, needs("[:]", listShape|stringShape, v)
	})}
}

// bounds computes the positions of a slice of n elements.
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
			err = needs("[:]", intShape, v)
		}
		if i < 0 {
			i += n
		}
		return min(max(i, 0), n)
	}
	lo, hi = position(from, 0), position(to, n)
	return lo, max(lo, hi), err
}
