package dsl

import (
	"fmt"
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"
)

// A fact is what a test has shown about a path: in "x != null and x.y" the right
// side is computed only when x is not null. Within one expression nothing
// changes, so a fact stays true as far as the test reaches.
type fact struct {
	key   string // of the path
	shape shape  // the types that are left; 0 for no news
	has   bool   // the mapping has the key, so that it is not null for lack of it
	words []any  // the value is one of these; nil for no news
	not   []any  // the value is none of these
}

// between separates the elements of a key.
const between = "\x01"

// A track is a path that a part of an expression stands for, under a name that no
// other path has. The zero track is a computed value.
type track struct {
	key   string
	prior []string // the keys of all paths on the way, without the first
}

// step goes on to a member. What is below a computed value is one, too.
func (s track) step(name string) track {
	if s.key == "" {
		return s
	}
	key := s.key + between + name
	return track{key, append(slices.Clip(s.prior), key)}
}

// trackOf finds the path that a node stands for.
func (b *builder) trackOf(n ast.Node) track {
	if !isChain(n) {
		return track{}
	}
	base, links := unchain(n, false)
	at := b.baseTrack(base)
	for _, l := range links {
		at = at.step(b.elementKey(l.prop))
	}
	return at
}

// baseTrack finds the path that the beginning of a chain stands for. #index and #acc are
// computed anew for each element, so that no test of them lasts.
func (b *builder) baseTrack(n ast.Node) track {
	switch x := n.(type) {
	case *ast.PointerNode:
		if x.Name == "" && len(b.items) > 0 {
			return b.items[len(b.items)-1].track()
		}
	case *ast.IdentifierNode:
		name := b.name(x)
		if l := b.local(name); l != nil {
			return l.at
		}
		if b.scope.has(name) {
			return track{key: name}
		}
		return track{key: stateRoot}.step(name)
	}
	return track{}
}

// elementKey names an element of a path: a fixed one by itself, a computed one by
// its text, for what is computed twice in the same place is the same. How deep in loops it
// stands is a part of it: # means something else one level further in.
func (b *builder) elementKey(prop ast.Node) string {
	if key, ok := b.literal(prop); ok {
		return key
	}
	return fmt.Sprintf("[%d:%s]", len(b.items), b.text(prop))
}

// knowing builds with further facts.
func (b *builder) knowing(facts []fact, build func()) {
	before := b.facts
	b.facts = append(slices.Clip(before), facts...)
	build()
	b.facts = before
}

// narrowed applies what is known of a path to its outline.
func (b *builder) narrowed(o *outline, key string) *outline {
	if key == "" {
		return o
	}
	for _, facts := range [][]fact{b.scope.facts, b.facts} {
		for i := range facts {
			if facts[i].key == key {
				o = facts[i].apply(o)
			}
		}
	}
	return o
}

// apply narrows an outline. It never leaves nothing: what cannot be is reported
// by the test itself.
func (f *fact) apply(o *outline) *outline {
	if f.has && o != nil && o.optional {
		out := *o
		out.shape &^= nullShape
		out.optional, out.why = false, ""
		o = &out
	}
	if f.shape != 0 && o.types()&f.shape != 0 && o.types()&^f.shape != 0 {
		out := outline{inferred: true}
		if o != nil {
			out = *o
		} else if f.shape == anyShape&^nullShape {
			return nil // that is no news of something unknown
		}
		out.shape = o.types() & f.shape
		switch {
		case out.shape == nullShape:
			out.why = "the test before says so"
		case out.shape&nullShape == 0:
			out.optional, out.why = false, ""
		}
		o = &out
	}
	if f.words == nil && f.not == nil || o == nil {
		return o
	}
	out := *o
	switch {
	case f.words != nil:
		if out.words = f.words; o.words != nil {
			out.words = slices.DeleteFunc(slices.Clone(o.words), func(w any) bool { return !containsWord(f.words, w) })
		}
	case o.words != nil:
		out.words = slices.DeleteFunc(slices.Clone(o.words), func(w any) bool { return containsWord(f.not, w) })
	}
	if out.words != nil && len(out.words) == 0 {
		return o
	}
	return &out
}

// factsOf lists what holds when a condition is truth.
func (b *builder) factsOf(n ast.Node, truth bool) []fact {
	switch x := n.(type) {
	case *ast.UnaryNode:
		if x.Operator == "not" || x.Operator == "!" {
			return b.factsOf(x.Node, !truth)
		}
	case *ast.BinaryNode:
		return b.factsOfBinary(x, truth)
	case *ast.ConditionalNode, *ast.CallNode, *ast.BuiltinNode:
	default:
		if at := b.trackOf(n); at.key != "" {
			facts := []fact{{key: at.key, words: []any{truth}, shape: boolShape}}
			return append(facts, b.through(at)...)
		}
	}
	return nil
}

// through says that no path on the way to one is null, as is so when the one has
// a value.
func (b *builder) through(at track) []fact {
	var out []fact
	for _, key := range at.prior {
		out = append(out, fact{key: key, shape: anyShape &^ nullShape})
	}
	return out
}

// factsOfBinary is factsOf for two operands: both sides of an and that is true have held, and
// both of an or that is false have not. Of the other two nothing is sure.
func (b *builder) factsOfBinary(x *ast.BinaryNode, truth bool) []fact {
	switch x.Operator {
	case "and", "&&":
		if truth {
			return append(b.factsOf(x.Left, true), b.factsOf(x.Right, true)...)
		}
	case "or", "||":
		if !truth {
			return append(b.factsOf(x.Left, false), b.factsOf(x.Right, false)...)
		}
	case "==", "!=":
		return b.factsOfEquality(x.Left, x.Right, (x.Operator == "==") == truth)
	case "in":
		if truth {
			return b.factsOfIn(x)
		}
	case "<", "<=", ">", ">=", "startsWith", "endsWith", "contains", "matches":
		// They have a result only for values.
		return append(b.through(b.trackOf(x.Left)), b.through(b.trackOf(x.Right))...)
	}
	return nil
}

// factsOfEquality is about x == null, x == 'a literal' and type(x) == 'string'.
func (b *builder) factsOfEquality(l, r ast.Node, equal bool) []fact {
	at, other := b.trackOf(l), r
	if at.key == "" {
		at, other = b.trackOf(r), l
	}
	if at.key == "" {
		return b.factsOfType(l, r, equal)
	}
	if _, isNull := other.(*ast.NilNode); isNull {
		if equal {
			return []fact{{key: at.key, shape: nullShape}}
		}
		return append(b.through(at), fact{key: at.key, shape: anyShape &^ nullShape})
	}
	value, ok := scalarNode(other)
	switch {
	case !ok:
		return nil
	case equal:
		return append(b.through(at), fact{key: at.key, words: []any{value}, shape: anyShape &^ nullShape})
	}
	return []fact{{key: at.key, not: []any{value}}}
}

// factsOfType is about type(x) == 'string'.
func (b *builder) factsOfType(l, r ast.Node, equal bool) []fact {
	call, ok := l.(*ast.CallNode)
	name, isText := r.(*ast.StringNode)
	if !ok || !isText || b.name(call) != "type" || len(call.Arguments) != 1 {
		return nil
	}
	at, s := b.trackOf(call.Arguments[0]), typeNames[name.Value]
	if at.key == "" || s == 0 {
		return nil
	}
	if !equal {
		s = anyShape &^ s
	}
	return []fact{{key: at.key, shape: s}}
}

// typeNames are what the function type gives.
var typeNames = map[string]shape{
	"null": nullShape, "bool": boolShape, "int": intShape, "float": floatShape, "string": stringShape,
	"list": listShape, "map": mapShape, "secret": secretShape,
}

// factsOfIn is about 'key' in x and x in ['a', 'b'].
func (b *builder) factsOfIn(x *ast.BinaryNode) []fact {
	if key, ok := b.literal(x.Left); ok {
		if at := b.trackOf(x.Right); at.key != "" {
			return append(b.through(at), fact{key: at.step(key).key, has: true})
		}
		return nil
	}
	at := b.trackOf(x.Left)
	list, ok := x.Right.(*ast.ArrayNode)
	if !ok || at.key == "" {
		return nil
	}
	var words []any
	for _, n := range list.Nodes {
		w, ok := scalarNode(n)
		if !ok {
			return nil
		}
		words = append(words, w)
	}
	if len(words) == 0 {
		return nil // it is never true, and checkIn says so
	}
	return append(b.through(at), fact{key: at.key, words: words, shape: anyShape &^ nullShape})
}

// scalarNode gives the value of a literal that is not null.
func scalarNode(n ast.Node) (any, bool) {
	switch x := n.(type) {
	case *ast.StringNode:
		return x.Value, true
	case *ast.IntegerNode:
		return x.Value, true
	case *ast.FloatNode:
		return x.Value, true
	case *ast.BoolNode:
		return x.Value, true
	}
	return nil, false
}

// under narrows the members of a mapping by facts about them: what a filter has
// looked at is so in what it gives.
func under(o *outline, at track, facts []fact) *outline {
	if o == nil || at.key == "" {
		return o
	}
	for i := range facts {
		rest, ok := strings.CutPrefix(facts[i].key, at.key+between)
		switch {
		case facts[i].key == at.key:
			o = facts[i].apply(o)
		case ok && !strings.Contains(rest, between) && o.members[rest] != nil:
			out := *o
			out.members = make(map[string]*member, len(o.members))
			for name, m := range o.members {
				out.members[name] = m
			}
			out.members[rest] = o.members[rest].under(&facts[i])
			o = &out
		}
	}
	return o
}

// under narrows a member. One that is not null is there.
func (m *member) under(f *fact) *member {
	value := m.outline
	if !m.required {
		value = value.lacked("")
	}
	value = f.apply(value)
	return &member{value, m.required || value != nil && value.shape&nullShape == 0}
}
