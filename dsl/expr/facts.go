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

// fewFacts is how many facts nearly all conditions show at most.
const fewFacts = 8

// Between separates the elements of a key.
const Between = "\x01"

// A track is the path that a part of an expression denotes: its elements, separated by Between. It is empty for a computed value.
type track string

// step adds a member. A member of a computed value is computed too.
func (s track) step(name string) track {
	if s == "" {
		return s
	}
	return s + Between + track(name)
}

// along adds the links of a chain.
func (b *names) along(at track, links []link) track {
	if at == "" || len(links) == 0 {
		return at
	}
	size := len(at)
	for _, l := range links {
		size += len(Between) + len(b.elementKey(l.prop))
	}
	out := make([]byte, 0, size)
	out = append(out, at...)
	for _, l := range links {
		out = append(out, Between...)
		out = append(out, b.elementKey(l.prop)...)
	}
	return track(out)
}

// trackOf returns the path that a node denotes.
func (b *names) trackOf(n ast.Node) track {
	if !isChain(n) {
		return ""
	}
	var space [fewLinks]link
	base, links := unchain(n, false, &space)
	return b.along(b.baseTrack(base), links)
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
			return track(name)
		}
		return track(StateRoot).step(name)
	}
	return ""
}

// elementKey identifies an element of a path: a constant one by its value, a computed one by its text. The
// depth of loops is part of it, since # means something else in an inner loop.
func (b *names) elementKey(prop ast.Node) string {
	if key, ok := b.Literal(prop); ok {
		return key
	}
	return fmt.Sprintf("[%d:%s]", len(b.items), b.Text(prop))
}

// knowing calls build with further facts: those that hold if n has the value truth.
func (b *names) knowing(n ast.Node, truth bool, build func()) {
	before := b.facts
	b.facts = append(slices.Clip(before), b.factsOf(n, truth)...)
	build()
	b.facts = before
}

// narrowed applies the facts about a path to its outline.
func (b *names) narrowed(o *typing.Outline, at track) *typing.Outline {
	if at == "" {
		return o
	}
	for _, facts := range [][]Fact{b.scope.Facts, b.facts} {
		for i := range facts {
			if facts[i].Key == string(at) {
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
	if o == nil && f.shape == datum.AnyShape&^datum.NullShape {
		return nil // no news about something unknown
	}
	if f.shape != 0 && o.Types()&f.shape != 0 && o.Types()&^f.shape != 0 {
		out := typing.Outline{Inferred: true}
		if o != nil {
			out = *o
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

// factsOf lists what holds if a condition has the value truth, until the next call.
func (b *names) factsOf(n ast.Node, truth bool) []Fact {
	if b.space == nil {
		b.space = make([]Fact, 0, fewFacts)
	}
	b.space = b.addFacts(b.space[:0], n, truth)
	return b.space
}

// addFacts appends to facts what holds if a condition has the value truth.
func (b *names) addFacts(facts []Fact, n ast.Node, truth bool) []Fact {
	switch x := n.(type) {
	case *ast.UnaryNode:
		if x.Operator == "not" || x.Operator == "!" {
			return b.addFacts(facts, x.Node, !truth)
		}
	case *ast.BinaryNode:
		return b.addBinary(facts, x, truth)
	case *ast.ConditionalNode, *ast.CallNode, *ast.BuiltinNode:
	default:
		if at := b.trackOf(n); at != "" {
			facts = append(facts, Fact{Key: string(at), Words: []any{truth}, shape: datum.BoolShape})
			return addThrough(facts, at)
		}
	}
	return facts
}

// addThrough appends that no path on the way is null, as the last one has a value. A root alone is never null.
func addThrough(facts []Fact, at track) []Fact {
	key := string(at)
	end := strings.Index(key, Between)
	for end >= 0 && end < len(key) {
		next := strings.Index(key[end+len(Between):], Between)
		end += len(Between) + next
		if next < 0 {
			end = len(key)
		}
		facts = append(facts, Fact{Key: key[:end], shape: datum.AnyShape &^ datum.NullShape})
	}
	return facts
}

// addBinary is addFacts for operators. If an and is true, both sides are true. If an or is false, both
// sides are false. Otherwise nothing is certain.
func (b *names) addBinary(facts []Fact, x *ast.BinaryNode, truth bool) []Fact {
	switch x.Operator {
	case "and", "&&":
		if truth {
			return b.addFacts(b.addFacts(facts, x.Left, true), x.Right, true)
		}
	case "or", "||":
		if !truth {
			return b.addFacts(b.addFacts(facts, x.Left, false), x.Right, false)
		}
	case "==", "!=":
		return b.addEquality(facts, x.Left, x.Right, (x.Operator == "==") == truth)
	case "in":
		if truth {
			return b.addIn(facts, x)
		}
	case "<", "<=", ">", ">=", "startsWith", "endsWith", "contains", "matches":
		// Comparisons have a result only for values that are not null.
		return addThrough(addThrough(facts, b.trackOf(x.Left)), b.trackOf(x.Right))
	}
	return facts
}

// addEquality handles x == null, x == 'a literal' and type(x) == 'string'.
func (b *names) addEquality(facts []Fact, l, r ast.Node, equal bool) []Fact {
	at, other := b.trackOf(l), r
	if at == "" {
		at, other = b.trackOf(r), l
	}
	if at == "" {
		return b.addType(facts, l, r, equal)
	}
	if _, isNull := other.(*ast.NilNode); isNull {
		if equal {
			return append(facts, Fact{Key: string(at), shape: datum.NullShape})
		}
		return append(addThrough(facts, at), Fact{Key: string(at), shape: datum.AnyShape &^ datum.NullShape})
	}
	value, ok := scalarNode(other)
	switch {
	case !ok:
		return facts
	case equal:
		return append(addThrough(facts, at), Fact{Key: string(at), Words: []any{value}, shape: datum.AnyShape &^ datum.NullShape})
	}
	return append(facts, Fact{Key: string(at), Not: []any{value}})
}

// addType handles type(x) == 'string'.
func (b *names) addType(facts []Fact, l, r ast.Node, equal bool) []Fact {
	call, ok := l.(*ast.CallNode)
	name, isText := r.(*ast.StringNode)
	if !ok || !isText || b.Name(call) != "type" || len(call.Arguments) != 1 {
		return facts
	}
	at, s := b.trackOf(call.Arguments[0]), typeNames[name.Value]
	if at == "" || s == 0 {
		return facts
	}
	if !equal {
		s = datum.AnyShape &^ s
	}
	return append(facts, Fact{Key: string(at), shape: s})
}

// typeNames are the results of the function type.
var typeNames = map[string]datum.Shape{
	"null": datum.NullShape, "bool": datum.BoolShape, "int": datum.IntShape, "float": datum.FloatShape, "string": datum.StringShape,
	"list": datum.ListShape, "map": datum.MapShape, "secret": datum.SecretShape,
}

// addIn handles 'key' in x and x in ['a', 'b'].
func (b *names) addIn(facts []Fact, x *ast.BinaryNode) []Fact {
	if key, ok := b.Literal(x.Left); ok {
		if at := b.trackOf(x.Right); at != "" {
			return append(addThrough(facts, at), Fact{Key: string(at.step(key)), has: true})
		}
		return facts
	}
	at := b.trackOf(x.Left)
	list, ok := x.Right.(*ast.ArrayNode)
	if !ok || at == "" || len(list.Nodes) == 0 {
		return facts // it is never true for an empty list, and checkIn reports it
	}
	words := make([]any, len(list.Nodes))
	for i, n := range list.Nodes {
		if words[i], ok = scalarNode(n); !ok {
			return facts
		}
	}
	return append(addThrough(facts, at), Fact{Key: string(at), Words: words, shape: datum.AnyShape &^ datum.NullShape})
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
	if o == nil || at == "" {
		return o
	}
	for i := range facts {
		rest, ok := strings.CutPrefix(facts[i].Key, string(at)+Between)
		switch {
		case facts[i].Key == string(at):
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

// lasting returns the facts about roots, on which other expressions of the handler may rely. It is a list of its own, and changes facts.
func lasting(facts []Fact) []Fact {
	facts = slices.DeleteFunc(facts, func(f Fact) bool {
		root, _, _ := strings.Cut(f.Key, Between)
		return !isRoot(root) || strings.Contains(f.Key, "[")
	})
	return append([]Fact(nil), facts...) // slices.Clone would keep the memory of an empty list
}
