package expr

import (
	"fmt"

	"github.com/expr-lang/expr/ast"

	"procaas/dsl/datum"
	"procaas/dsl/ops"
	"procaas/dsl/rules"
	"procaas/dsl/syntax"
	"procaas/dsl/typing"
)

// A part is a compiled node of the tree.
type part struct {
	eval  evalFunc
	shape datum.Shape // possible types of the value
	fixed bool        // the value is constant
	value any

	outline *typing.Outline // what else is known of the value; nil for nothing
}

// constant returns a part with the value v.
func constant(v any) part { return constantOf(v, typing.Of(v)) }

// constantOf is constant for a value whose outline is known.
func constantOf(v any, o *typing.Outline) part {
	return part{
		eval:  func(*frame) (any, error) { return v, nil },
		shape: datum.ShapeOfValue(v), fixed: true, value: v, outline: o,
	}
}

// broken is the result for a node with an error. It fits everywhere, so one mistake leads to one message. It is
// never evaluated, since an expression with an error has no program.
var broken = part{eval: func(*frame) (any, error) { return nil, nil }, shape: datum.AnyShape}

// A builder compiles the tree to closures, and checks names and types. It continues after errors, so that all
// are reported at once.
type builder struct {
	checks

	slots int
	nodes int // built so far; the difference is the cost of a loop's body

	watch watcher // nil unless the parts are traced
}

// A watcher observes the compilation. It may replace each part by one that records its value.
type watcher interface {
	enter(b *builder, n ast.Node)              // before the node and its children are compiled
	leave(b *builder, n ast.Node, p part) part // afterwards
}

// slot reserves a place in the frame for a let or a loop.
func (b *builder) slot() int {
	b.slots++
	return b.slots - 1
}

// build compiles a node and everything below it.
func (b *builder) build(n ast.Node) part {
	if b.watch == nil {
		return b.make(n)
	}
	b.watch.enter(b, n)
	return b.watch.leave(b, n, b.make(n))
}

// make is build without the watcher.
func (b *builder) make(n ast.Node) part {
	b.nodes++
	switch x := n.(type) {
	case *ast.NilNode:
		return constant(nil)
	case *ast.BoolNode:
		return constant(x.Value)
	case *ast.IntegerNode:
		b.notOctal(x)
		return constant(x.Value)
	case *ast.FloatNode:
		return constant(x.Value)
	case *ast.StringNode:
		b.notReplaced(x)
		return constant(x.Value)
	case *ast.IdentifierNode, *ast.PointerNode, *ast.MemberNode, *ast.ChainNode:
		return b.chain(n, false)
	case *ast.UnaryNode:
		return b.unary(x)
	case *ast.BinaryNode:
		return b.binary(x)
	case *ast.ConditionalNode:
		return b.conditional(x)
	case *ast.VariableDeclaratorNode:
		return b.let(x)
	case *ast.ArrayNode:
		return b.list(x)
	case *ast.MapNode:
		return b.mapping(x)
	case *ast.SliceNode:
		return b.slice(x)
	case *ast.BuiltinNode:
		return b.loop(x)
	case *ast.CallNode:
		return b.call(x)
	case *ast.SequenceNode:
		return b.fail(n, rules.ExprSyntax, "", "only let may stand before ;")
	}
	return b.fail(n, rules.ExprSyntax, "", "this has no meaning here")
}

// condition compiles a node that must be true or false. No other value counts as true.
func (b *builder) condition(n ast.Node, what string) func(f *frame) (bool, error) {
	p := b.want(n, b.build(n), datum.BoolShape, what)
	if p.fixed {
		b.reporter.Warnf(b.span(n), rules.ExprConstant, "test something that can change", "this condition is always %v", p.value)
	}
	at := b.place(n)
	return func(f *frame) (bool, error) {
		v, err := p.eval(f)
		if err != nil {
			return false, err
		}
		truth, ok := v.(bool)
		if !ok {
			return false, at.wrap(ops.Needs(what, datum.BoolShape, v))
		}
		return truth, nil
	}
}

// conditional compiles ? :. Each side knows what the condition has shown.
func (b *builder) conditional(x *ast.ConditionalNode) part {
	cond := b.condition(x.Cond, "a condition")
	var yes, no part
	b.knowing(x.Cond, true, func() { yes = b.build(x.Exp1) })
	b.knowing(x.Cond, false, func() { no = b.build(x.Exp2) })
	return part{shape: yes.shape | no.shape, outline: typing.Choice(yes.known(), no.known()), eval: func(f *frame) (any, error) {
		truth, err := cond(f)
		if err != nil {
			return nil, err
		}
		if truth {
			return yes.eval(f)
		}
		return no.eval(f)
	}}
}

// let compiles a name for the rest of the expression. The value is computed once, even if nobody reads it, so
// an error in it is an error of the expression.
func (b *builder) let(x *ast.VariableDeclaratorNode) part {
	name := b.Name(x)
	value := b.build(x.Value)
	if why := b.taken(name); why != "" {
		b.failAt(b.At(x), rules.ExprSyntax, "choose another name", "let cannot name a value %s: %s", name, why)
	}
	slot := b.slot()
	l := local{name: name, slot: slot, shape: value.shape, outline: value.outline}
	// A name for a path shares its facts: a test of one is a test of the other.
	l.at = b.trackOf(x.Value)
	if l.at == "" {
		l.at = track(fmt.Sprintf("let%d", slot))
	}
	if id, ok := x.Value.(*ast.IdentifierNode); ok && b.scope.has(b.Name(id)) {
		l.root = b.Name(id)
	}
	b.lets = append(b.lets, l)
	body := b.build(x.Expr)
	b.lets = b.lets[:len(b.lets)-1]
	return part{shape: body.shape, outline: body.outline, eval: func(f *frame) (any, error) {
		v, err := value.eval(f)
		if err != nil {
			return nil, err
		}
		f.slots[slot] = v
		return body.eval(f)
	}}
}

// list compiles [a, b].
func (b *builder) list(x *ast.ArrayNode) part {
	parts := make([]part, len(x.Nodes))
	fixed := true
	for i, n := range x.Nodes {
		parts[i] = b.build(n)
		fixed = fixed && parts[i].fixed
	}
	made := part{shape: datum.ListShape, eval: b.guard(x, func(f *frame) (any, error) {
		if err := f.List(len(parts)); err != nil {
			return nil, err
		}
		out := make([]any, len(parts))
		for i, p := range parts {
			v, err := p.eval(f)
			if err != nil {
				return nil, err
			}
			out[i] = v
		}
		return out, nil
	})}
	join := typing.Choice
	if v, ok := made.evaluated(fixed); ok {
		made, join = constantOf(v, nil), typing.Either // as typing.Of joins
	}
	made.outline = &typing.Outline{Shape: datum.ListShape, Inferred: made.fixed}
	for i, p := range parts {
		if i == 0 {
			made.outline.Elem = p.known()
			continue
		}
		made.outline.Elem = join(made.outline.Elem, p.known())
	}
	return made
}

// folded evaluates a constant part once. All evaluations share the value. That is safe: functions do not change
// operands, and results are copied.
func folded(p part, fixed bool) part {
	if v, ok := p.evaluated(fixed); ok {
		return constant(v)
	}
	return p
}

// evaluated returns the value of a constant part. There is none if it fails whenever it is evaluated.
func (p part) evaluated(fixed bool) (v any, ok bool) {
	if !fixed {
		return nil, false
	}
	v, err := p.eval(&frame{})
	return v, err == nil
}

// mapping makes {a: b}. With a computed key, nobody knows which members there are.
func (b *builder) mapping(x *ast.MapNode) part {
	type entry struct{ key, value part }
	entries := make([]entry, len(x.Pairs))
	seen := map[string]bool{}
	fixed := true
	known := &typing.Outline{Shape: datum.MapShape, Closed: true, Members: make(map[string]*typing.Member, len(x.Pairs))}
	for i, n := range x.Pairs {
		pair := n.(*ast.PairNode)
		key, ok := b.Literal(pair.Key)
		if !ok {
			entries[i].key = b.want(pair.Key, b.build(pair.Key), datum.StringShape, "a key")
			known.Closed = false
		} else {
			entries[i].key = constant(key)
			if seen[key] {
				b.fail(pair.Key, rules.ExprDuplicateKey, "remove one of them", "the key %s is given twice", syntax.Quoted(key))
			}
			seen[key] = true
		}
		entries[i].value = b.build(pair.Value)
		if ok {
			known.Members[key] = &typing.Member{Outline: entries[i].value.known(), Required: true}
		}
		fixed = fixed && entries[i].key.fixed && entries[i].value.fixed
	}
	made := part{shape: datum.MapShape, outline: known.Supposed(), eval: b.guard(x, func(f *frame) (any, error) {
		if err := f.List(len(entries)); err != nil {
			return nil, err
		}
		out := make(map[string]any, len(entries))
		for _, e := range entries {
			k, err := e.key.eval(f)
			if err != nil {
				return nil, err
			}
			key, ok := k.(string)
			if !ok {
				return nil, ops.Needs("a key", datum.StringShape, k)
			}
			if out[key], err = e.value.eval(f); err != nil {
				return nil, err
			}
		}
		return out, nil
	})}
	return folded(made, fixed)
}
