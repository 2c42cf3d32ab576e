package expr

import (
	"errors"
	"fmt"

	"github.com/expr-lang/expr/ast"

	"procaas/dsl/datum"
	"procaas/dsl/ops"
	"procaas/dsl/rules"
)

// StateRoot is the root of the shared state, and of bare names.
const StateRoot = "shared-state"

// A link is one step of a chain such as a.b['c'][0].
type link struct {
	node ast.Node // the member expression
	base ast.Node // the expression before the member
	prop ast.Node
	safe bool // ?. or ??: a member of null is null
}

// fewLinks is how many links nearly all chains have at most.
const fewLinks = 4

// unchain splits a chain into its base and its links, in order. null ends the whole chain, wherever expr-lang
// ends an optional chain. The links are in space, if it has enough: callers have it on their stack.
func unchain(n ast.Node, safe bool, space *[fewLinks]link) (base ast.Node, links []link) {
	links = space[:0]
	for {
		switch x := n.(type) {
		case *ast.ChainNode:
			n = x.Node
			continue
		case *ast.MemberNode:
			links = append(links, link{x, x.Node, x.Property, safe || x.Optional})
			n = x.Node
			continue
		}
		break
	}
	for i, j := 0, len(links)-1; i < j; i, j = i+1, j-1 {
		links[i], links[j] = links[j], links[i]
	}
	return n, links
}

// A stride is a compiled link.
type stride struct {
	key   string   // if index is nil
	index evalFunc // a computed key or index
	safe  bool
	base  string // the text of the base, for messages
	at    place  // of the base
	whole place
}

// chain compiles a path. With safe, a null anywhere in it makes it null.
func (b *builder) chain(n ast.Node, safe bool) part {
	var space [fewLinks]link
	base, links := unchain(n, safe, &space)
	b.nodes += len(links)
	from, known := b.base(base, links)
	if from.shape == 0 {
		return from
	}
	about := b.outlineOfChain(base, from, links)
	if len(links) == 0 {
		return from.with(about)
	}
	if from.shape&(datum.ListShape|datum.MapShape|datum.StringShape) == 0 && !from.fixed {
		return b.fail(links[0].node, rules.ExprOperand, "", "%s has no members", from.shape)
	}
	strides := make([]stride, len(links))
	for i, l := range links {
		s := stride{safe: l.safe, base: b.Text(l.base), at: b.place(l.base), whole: b.place(l.node)}
		if s.base == "." {
			s.base = "#"
		}
		if key, ok := b.Literal(l.prop); ok {
			s.key = key
		} else {
			p := b.build(l.prop)
			b.want(l.prop, p, datum.IntShape|datum.StringShape, "an index")
			s.index = p.eval
		}
		strides[i] = s
	}
	return part{shape: known, eval: func(f *frame) (any, error) {
		v, err := from.eval(f)
		if err != nil {
			return nil, err
		}
		for i := range strides {
			s := &strides[i]
			if v == nil && s.safe {
				return nil, nil
			}
			if v, err = s.take(f, v); err != nil {
				return nil, err
			}
		}
		return dataOf(v), nil
	}}.with(about)
}

// dataOf returns the data of a root, and any other value as it is.
func dataOf(v any) any {
	if root, ok := v.(datum.Root); ok {
		return root.Data()
	}
	return v
}

// take returns the member of v.
func (s *stride) take(f *frame, v any) (any, error) {
	if s.index == nil {
		switch m := v.(type) {
		case map[string]any:
			return m[s.key], nil
		case datum.Root:
			return m.Get(s.key), nil
		}
		return nil, s.at.wrap(s.without(v, s.key))
	}
	v = dataOf(v)
	key, err := s.index(f)
	if err != nil {
		return nil, err
	}
	if m, ok := v.(map[string]any); ok {
		if k, ok := key.(string); ok {
			return m[k], nil
		}
		return nil, s.whole.wrap(ops.Needs("the key of a mapping", datum.StringShape, key))
	}
	i, position := key.(int)
	switch v.(type) {
	case []any, string:
		if !position {
			return nil, s.whole.wrap(ops.Needs("a position", datum.IntShape, key))
		}
		got, err := s.element(&f.Meter, v, i)
		if err != nil {
			return nil, s.whole.wrap(err)
		}
		return got, nil
	}
	return nil, s.at.wrap(s.without(v, fmt.Sprint(key)))
}

// without returns the error that v has no such member.
func (s *stride) without(v any, member string) error {
	switch v := v.(type) {
	case datum.Unknown:
		return v
	case nil:
		return fmt.Errorf("%s is null; it has no member %s (allow it with ?. or give a default with ??)", s.base, member)
	case []any:
		return fmt.Errorf("%s is a list; it has no member %s (take an element first: [0])", s.base, member)
	}
	return fmt.Errorf("%s is %s; it has no member %s", s.base, datum.Describe(v), member)
}

// element returns an element of a list or a character of a string. Negative indexes count from the end. If
// there is none, a safe stride returns null.
func (s *stride) element(m *ops.Meter, v any, i int) (any, error) {
	var n int
	at := i
	var chars []rune
	switch v := v.(type) {
	case []any:
		n = len(v)
	case string:
		if err := m.Read(len(v)); err != nil {
			return nil, err
		}
		chars = []rune(v)
		n = len(chars)
	}
	if at < 0 {
		at += n
	}
	if at < 0 || at >= n {
		if s.safe {
			return nil, nil
		}
		return nil, fmt.Errorf("%s has no element %d, its length is %d (allow it with ?.[%d] or give a default with ??)",
			s.base, i, n, i)
	}
	if list, ok := v.([]any); ok {
		return list[at], nil
	}
	return string(chars[at]), nil
}

// base compiles the start of a chain and checks the names after it. It also returns the types of the whole
// chain.
func (b *builder) base(n ast.Node, links []link) (from part, whole datum.Shape) {
	whole = datum.AnyShape
	switch x := n.(type) {
	case *ast.PointerNode:
		from = b.pointer(x)
	case *ast.IdentifierNode:
		from, whole = b.identifier(x, links)
	default:
		from = b.build(n)
	}
	if len(links) == 0 {
		whole = from.shape
	}
	return from, whole
}

// pointer compiles #, #index and #acc.
func (b *builder) pointer(x *ast.PointerNode) part {
	it := b.items[len(b.items)-1]
	slot, s := it.element, datum.Shape(datum.AnyShape)
	switch x.Name {
	case "index":
		slot, s = it.index, datum.IntShape
	case "acc":
		slot, s = it.acc, it.accShape
		if slot < 0 {
			return b.fail(x, rules.ExprUnknownName, "", "#acc is known inside of reduce only")
		}
	}
	made := part{shape: s, eval: func(f *frame) (any, error) { return f.slots[slot], nil }}
	switch x.Name {
	case "":
		made.outline = it.outline
	case "acc":
		made.outline = it.first.Unsure()
	}
	return made
}

// identifier compiles a name of let, of a root, or of the shared state.
func (b *builder) identifier(x *ast.IdentifierNode, links []link) (from part, whole datum.Shape) {
	name := b.Name(x)
	if l := b.local(name); l != nil {
		slot, whole := l.slot, datum.Shape(datum.AnyShape)
		if l.root != "" {
			whole = b.members(l.root, links)
		}
		return part{shape: l.shape, outline: l.outline, eval: func(f *frame) (any, error) { return f.slots[slot], nil }}, whole
	}
	switch {
	case b.scope.has(name) && len(links) == 0:
		return part{shape: mapShapeOf(name), eval: func(f *frame) (any, error) { return dataOf(f.env[name]), nil }},
			b.members(name, links)
	case b.scope.has(name): // the chain takes a member of it
		return part{shape: mapShapeOf(name), eval: func(f *frame) (any, error) { return f.env[name], nil }},
			b.members(name, links)
	case b.scope.bare(name):
		at := b.place(x)
		return part{shape: datum.AnyShape, eval: func(f *frame) (any, error) {
			switch state := f.env[StateRoot].(type) {
			case datum.Root:
				return state.Get(name), nil
			case map[string]any:
				return state[name], nil
			}
			return nil, at.wrap(errors.New("there is no shared-state here"))
		}}, datum.AnyShape
	}
	b.unknown(x, name)
	return broken, datum.AnyShape
}

// mapShapeOf returns the type of a root. Roots of pipelines are mappings, except item.
func mapShapeOf(root string) datum.Shape {
	if root == "item" || !isRoot(root) {
		return datum.AnyShape
	}
	return datum.MapShape
}

// local returns a name of let, or nil.
func (b *names) local(name string) *local {
	for i := len(b.lets) - 1; i >= 0; i-- {
		if b.lets[i].name == name {
			return &b.lets[i]
		}
	}
	return nil
}

// taken returns why let may not use a name, or "".
func (b *names) taken(name string) string {
	switch {
	case b.local(name) != nil:
		return "there is another let of that name"
	case isRoot(name), b.scope.has(name):
		return "it is a root"
	case b.scope.declared(name):
		return "the shared state has it"
	}
	return ""
}
