package expr

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"

	"procaas/dsl/datum"
	"procaas/dsl/typing"
)

// A Fact is what a test has shown about a path. In "x != null and x.y", the right side is evaluated only if x
// is not null. Values do not change within an expression, so a fact holds as far as the test reaches.
type Fact struct {
	Key   string      // of the path
	shape datum.Shape // remaining types; 0 for unknown
	has   bool        // the mapping has the key
	Words []any       // possible values; nil for unknown
	Not   []any       // excluded values
}

// Between separates the elements of a key.
const Between = "\x01"

// A track is the path that a part of an expression denotes, with a unique name. The zero track is a computed
// value.
type track struct {
	key   string
	prior []string // keys of all paths on the way, without the first
}

// step adds a member. A member of a computed value is computed too.
func (s track) step(name string) track {
	if s.key == "" {
		return s
	}
	key := s.key + Between + name
	return track{key, append(slices.Clip(s.prior), key)}
}

// trackOf returns the path that a node denotes.
func (b *names) trackOf(n ast.Node) track {
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

// baseTrack returns the path at the start of a chain. #index and #acc change with each element, so no test of
// them lasts.
func (b *names) baseTrack(n ast.Node) track {
	switch x := n.(type) {
	case *ast.PointerNode:
		if x.Name == "" && len(b.items) > 0 {
			return b.items[len(b.items)-1].track()
		}
	case *ast.IdentifierNode:
		name := b.Name(x)
		if l := b.local(name); l != nil {
			return l.at
		}
		if b.scope.has(name) {
			return track{key: name}
		}
		return track{key: StateRoot}.step(name)
	}
	return track{}
}

// elementKey identifies an element of a path: a constant one by its value, a computed one by its text. The
// depth of loops is part of it, since # means something else in an inner loop.
func (b *names) elementKey(prop ast.Node) string {
	if key, ok := b.Literal(prop); ok {
		return key
	}
	return fmt.Sprintf("[%d:%s]", len(b.items), b.Text(prop))
}

// knowing calls build with further facts.
func (b *names) knowing(facts []Fact, build func()) {
	before := b.facts
	b.facts = append(slices.Clip(before), facts...)
	build()
	b.facts = before
}

// narrowed applies the facts about a path to its outline.
func (b *names) narrowed(o *typing.Outline, key string) *typing.Outline {
	if key == "" {
		return o
	}
	for _, facts := range [][]Fact{b.scope.Facts, b.facts} {
		for i := range facts {
			if facts[i].Key == key {
				o = facts[i].apply(o)
			}
		}
	}
	return o
}

// apply narrows an outline. It never leaves it empty: the test itself reports what is impossible.
func (f *Fact) apply(o *typing.Outline) *typing.Outline {
	if f.has && o != nil && o.Optional {
		out := *o
		out.Shape &^= datum.NullShape
		out.Optional, out.Why = false, ""
		o = &out
	}
	if f.shape != 0 && o.Types()&f.shape != 0 && o.Types()&^f.shape != 0 {
		out := typing.Outline{Inferred: true}
		if o != nil {
			out = *o
		} else if f.shape == datum.AnyShape&^datum.NullShape {
			return nil // no news about something unknown
		}
		out.Shape = o.Types() & f.shape
		if out.Shape != o.Types()&^datum.NullShape {
			out.Choices = nil // the test may exclude some
		}
		switch {
		case out.Shape == datum.NullShape:
			out.Why = "the test before says so"
		case out.Shape&datum.NullShape == 0:
			out.Optional, out.Why = false, ""
		}
		o = &out
	}
	if f.Words == nil && f.Not == nil || o == nil {
		return o
	}
	out := *o
	out.Choices = nil
	switch {
	case f.Words != nil:
		out.Words = f.Words
		if o.Words != nil {
			out.Words = slices.DeleteFunc(slices.Clone(o.Words), func(w any) bool { return !typing.ContainsWord(f.Words, w) })
		}
	case o.Words != nil:
		out.Words = slices.DeleteFunc(slices.Clone(o.Words), func(w any) bool { return typing.ContainsWord(f.Not, w) })
	}
	if out.Words != nil && len(out.Words) == 0 {
		return o
	}
	return &out
}

// factsOf lists what holds if a condition has the value truth.
func (b *names) factsOf(n ast.Node, truth bool) []Fact {
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
			facts := []Fact{{Key: at.key, Words: []any{truth}, shape: datum.BoolShape}}
			return append(facts, b.through(at)...)
		}
	}
	return nil
}

// through returns that no path on the way is null, as the last one has a value.
func (b *names) through(at track) []Fact {
	var out []Fact
	for _, key := range at.prior {
		out = append(out, Fact{Key: key, shape: datum.AnyShape &^ datum.NullShape})
	}
	return out
}

// factsOfBinary is factsOf for and and or. If an and is true, both sides are true. If an or is false, both
// sides are false. Otherwise nothing is certain.
func (b *names) factsOfBinary(x *ast.BinaryNode, truth bool) []Fact {
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
		// Comparisons have a result only for values that are not null.
		return append(b.through(b.trackOf(x.Left)), b.through(b.trackOf(x.Right))...)
	}
	return nil
}

// factsOfEquality handles x == null, x == 'a literal' and type(x) == 'string'.
func (b *names) factsOfEquality(l, r ast.Node, equal bool) []Fact {
	at, other := b.trackOf(l), r
	if at.key == "" {
		at, other = b.trackOf(r), l
	}
	if at.key == "" {
		return b.factsOfType(l, r, equal)
	}
	if _, isNull := other.(*ast.NilNode); isNull {
		if equal {
			return []Fact{{Key: at.key, shape: datum.NullShape}}
		}
		return append(b.through(at), Fact{Key: at.key, shape: datum.AnyShape &^ datum.NullShape})
	}
	value, ok := scalarNode(other)
	switch {
	case !ok:
		return nil
	case equal:
		return append(b.through(at), Fact{Key: at.key, Words: []any{value}, shape: datum.AnyShape &^ datum.NullShape})
	}
	return []Fact{{Key: at.key, Not: []any{value}}}
}

// factsOfType handles type(x) == 'string'.
func (b *names) factsOfType(l, r ast.Node, equal bool) []Fact {
	call, ok := l.(*ast.CallNode)
	name, isText := r.(*ast.StringNode)
	if !ok || !isText || b.Name(call) != "type" || len(call.Arguments) != 1 {
		return nil
	}
	at, s := b.trackOf(call.Arguments[0]), typeNames[name.Value]
	if at.key == "" || s == 0 {
		return nil
	}
	if !equal {
		s = datum.AnyShape &^ s
	}
	return []Fact{{Key: at.key, shape: s}}
}

// typeNames are the results of the function type.
var typeNames = map[string]datum.Shape{
	"null": datum.NullShape, "bool": datum.BoolShape, "int": datum.IntShape, "float": datum.FloatShape, "string": datum.StringShape,
	"list": datum.ListShape, "map": datum.MapShape, "secret": datum.SecretShape,
}

// factsOfIn handles 'key' in x and x in ['a', 'b'].
func (b *names) factsOfIn(x *ast.BinaryNode) []Fact {
	if key, ok := b.Literal(x.Left); ok {
		if at := b.trackOf(x.Right); at.key != "" {
			return append(b.through(at), Fact{Key: at.step(key).key, has: true})
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
		return nil // it is never true, and checkIn reports it
	}
	return append(b.through(at), Fact{Key: at.key, Words: words, shape: datum.AnyShape &^ datum.NullShape})
}

// scalarNode returns the value of a literal other than null.
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

// under narrows the members of a mapping by facts about them. A filter's test holds for the elements of its
// result.
func under(o *typing.Outline, at track, facts []Fact) *typing.Outline {
	if o == nil || at.key == "" {
		return o
	}
	for i := range facts {
		rest, ok := strings.CutPrefix(facts[i].Key, at.key+Between)
		switch {
		case facts[i].Key == at.key:
			o = facts[i].apply(o)
		case ok && !strings.Contains(rest, Between) && o.Members[rest] != nil:
			out := *o
			out.Members = make(map[string]*typing.Member, len(o.Members))
			maps.Copy(out.Members, o.Members)
			out.Members[rest] = memberUnder(o.Members[rest], &facts[i])
			o = &out
		}
	}
	return o
}

// memberUnder narrows a member. A member that is not null exists.
func memberUnder(m *typing.Member, f *Fact) *typing.Member {
	value := m.Outline
	if !m.Required {
		value = value.Lacked("")
	}
	value = f.apply(value)
	return &typing.Member{Outline: value, Required: m.Required || value != nil && value.Shape&datum.NullShape == 0}
}

// lasting keeps the facts about roots, on which other expressions of the handler may rely.
func lasting(facts []Fact) []Fact {
	var out []Fact
	for _, f := range facts {
		root, _, _ := strings.Cut(f.Key, Between)
		if isRoot(root) && !strings.Contains(f.Key, "[") {
			out = append(out, f)
		}
	}
	return out
}
