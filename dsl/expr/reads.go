package expr

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/expr-lang/expr/ast"

	"procaas/dsl/datum"
)

// A trail is the path that a part of an expression denotes. For each element it has whether a null there is
// harmless.
type trail struct {
	path datum.Path
	safe []bool // safe[i]: the step to path[i] allows null before it
}

// extended returns a trail with more elements. grow is how many it will have.
func (t *trail) extended(grow int) *trail {
	n := len(t.path)
	out := &trail{make(datum.Path, n, n+grow), make([]bool, n, n+grow)}
	copy(out.path, t.path)
	copy(out.safe, t.safe)
	return out
}

// step adds an element.
func (t *trail) step(name string, safe bool) {
	t.path, t.safe = append(t.path, name), append(t.safe, safe)
}

// A reader finds the reads of an expression.
type reader struct {
	*builder
	found []datum.Read
	names map[string]*trail // of let; nil for a computed value. The map is nil without let
	items []*trail          // of #; nil for a computed value
	known []datum.Path      // paths that tests have shown not to be null here
}

// readsOf lists what a checked expression reads, in the order of the text.
func readsOf(b *builder) []datum.Read {
	r := &reader{builder: b}
	r.walk(b.Root, false)
	slices.SortStableFunc(r.found, func(a, b datum.Read) int {
		return cmp.Or(
			cmp.Compare(a.Span.Start.Line, b.Span.Start.Line),
			cmp.Compare(a.Span.Start.Column, b.Span.Start.Column),
			slices.Compare(a.Path, b.Path),
		)
	})
	return slices.CompactFunc(r.found, func(a, b datum.Read) bool {
		return a.Span == b.Span && a.Guarded == b.Guarded && a.Path.Equal(b.Path)
	})
}

// walk visits a node. safe means that a null value of it is harmless.
func (r *reader) walk(n ast.Node, safe bool) {
	switch x := n.(type) {
	case *ast.IdentifierNode, *ast.PointerNode, *ast.MemberNode, *ast.ChainNode:
		r.chained(n, safe, false)
	case *ast.UnaryNode:
		r.walk(x.Node, false)
	case *ast.BinaryNode:
		r.binary(x, safe)
	case *ast.ConditionalNode:
		r.walk(x.Cond, false)
		r.knowing(r.facts(x.Cond, true), func() { r.walk(x.Exp1, safe) })
		r.knowing(r.facts(x.Cond, false), func() { r.walk(x.Exp2, safe) })
	case *ast.VariableDeclaratorNode:
		r.let(x, safe)
	case *ast.BuiltinNode:
		r.loop(x)
	case *ast.CallNode:
		for i, a := range x.Arguments {
			r.walk(a, i == 0 && r.Name(x) == "get")
		}
	case *ast.ArrayNode:
		for _, y := range x.Nodes {
			r.walk(y, false)
		}
	case *ast.MapNode:
		for _, y := range x.Pairs {
			pair := y.(*ast.PairNode)
			if _, ok := r.Literal(pair.Key); !ok {
				r.walk(pair.Key, false)
			}
			r.walk(pair.Value, false)
		}
	case *ast.SliceNode:
		r.walk(x.Node, false)
		for _, y := range []ast.Node{x.From, x.To} {
			if y != nil {
				r.walk(y, false)
			}
		}
	}
}

func (r *reader) binary(x *ast.BinaryNode, safe bool) {
	switch x.Operator {
	case "and", "&&":
		r.walk(x.Left, false)
		r.knowing(r.facts(x.Left, true), func() { r.walk(x.Right, false) })
	case "or", "||":
		r.walk(x.Left, false)
		r.knowing(r.facts(x.Left, false), func() { r.walk(x.Right, false) })
	case "??":
		if isChain(x.Left) {
			r.chained(x.Left, true, true)
		} else {
			r.walk(x.Left, true)
		}
		r.walk(x.Right, safe)
	case "==", "!=":
		r.walk(x.Left, true)
		r.walk(x.Right, true)
	case "in":
		r.walk(x.Left, true)
		r.walk(x.Right, false)
	default:
		r.walk(x.Left, false)
		r.walk(x.Right, false)
	}
}

// chained visits a path. all means that every step allows null.
func (r *reader) chained(n ast.Node, safe, all bool) {
	var space [fewLinks]link
	base, links := unchain(n, all, &space)
	for _, l := range links {
		if _, ok := r.element(l.prop); !ok {
			r.walk(l.prop, false)
		}
	}
	t := r.trail(base, links)
	if t == nil {
		switch base.(type) {
		case *ast.IdentifierNode, *ast.PointerNode: // of a computed value, which was visited where it was named
		default:
			r.walk(base, safe || len(links) > 0 && links[0].safe)
		}
		return
	}
	r.found = append(r.found, datum.Read{Path: t.path, Span: r.span(n), Guarded: r.guarded(t, safe)})
}

// element returns the path element of a constant key or index.
func (r *reader) element(prop ast.Node) (string, bool) {
	if key, ok := r.Literal(prop); ok {
		return key, true
	}
	if i, ok := prop.(*ast.IntegerNode); ok {
		return strconv.Itoa(i.Value), true
	}
	return datum.Wildcard, false
}

// trail returns the path of a chain, or nil if it begins with a computed value.
func (r *reader) trail(base ast.Node, links []link) *trail {
	var t *trail
	switch x := base.(type) {
	case *ast.PointerNode:
		if x.Name == "" && len(r.items) > 0 {
			t = r.items[len(r.items)-1]
		}
	case *ast.IdentifierNode:
		name := r.Name(x)
		if known, ok := r.names[name]; ok {
			t = known
			break
		}
		at := &trail{make(datum.Path, 0, 2+len(links)), make([]bool, 0, 2+len(links))}
		if !r.scope.has(name) {
			at.step(StateRoot, true)
		}
		at.step(name, true)
		return r.follow(at, links)
	}
	if t == nil || len(links) == 0 {
		return t
	}
	return r.follow(t.extended(len(links)), links)
}

// follow adds the links of a chain to a trail.
func (r *reader) follow(t *trail, links []link) *trail {
	for _, l := range links {
		name, _ := r.element(l.prop)
		t.step(name, l.safe)
	}
	return t
}

// path returns the path of a node, or nil.
func (r *reader) path(n ast.Node) datum.Path {
	if !isChain(n) {
		return nil
	}
	var space [fewLinks]link
	base, links := unchain(n, false, &space)
	if t := r.trail(base, links); t != nil {
		return t.path
	}
	return nil
}

// Settled returns how many leading elements of a path always have a value. The next one may be missing because
// a handler did not run.
func Settled(p datum.Path) int {
	switch p[0] {
	case "sources":
		return 2
	default:
		return 1
	}
}

// guarded reports whether a null is harmless at the value that may be missing.
func (r *reader) guarded(t *trail, safe bool) bool {
	if slices.ContainsFunc(r.known, func(p datum.Path) bool { return tests(p, t.path) }) {
		return true
	}
	next := Settled(t.path) + 1 // the element after the value that may be missing
	if next < len(t.path) {
		return t.safe[next]
	}
	return safe
}

// tests reports whether p != null is a test of q: one is a prefix of the other, and p is more than a root.
func tests(p, q datum.Path) bool {
	n := min(len(p), len(q))
	return n > Settled(p) && !slices.Contains(p, datum.Wildcard) && slices.Equal(p[:n], q[:n])
}

// knowing calls read with further paths that are not null.
func (r *reader) knowing(paths []datum.Path, read func()) {
	before := r.known
	r.known = append(slices.Clip(before), paths...)
	read()
	r.known = before
}

// facts lists the paths that are not null if n has the value truth.
func (r *reader) facts(n ast.Node, truth bool) []datum.Path {
	switch x := n.(type) {
	case *ast.UnaryNode:
		if x.Operator == "not" || x.Operator == "!" {
			return r.facts(x.Node, !truth)
		}
	case *ast.BinaryNode:
		switch x.Operator {
		case "and", "&&":
			if truth {
				return append(r.facts(x.Left, true), r.facts(x.Right, true)...)
			}
		case "or", "||":
			if !truth {
				return append(r.facts(x.Left, false), r.facts(x.Right, false)...)
			}
		case "==", "!=":
			return r.equality(x, truth)
		}
	default:
		if p := r.path(n); p != nil && truth {
			return []datum.Path{p}
		}
	}
	return nil
}

// equality returns the facts of x != null, and of x == 'a literal'.
func (r *reader) equality(x *ast.BinaryNode, truth bool) []datum.Path {
	path, other := r.path(x.Left), x.Right
	if path == nil {
		path, other = r.path(x.Right), x.Left
	}
	if path == nil {
		return nil
	}
	equal := (x.Operator == "==") == truth
	switch other.(type) {
	case *ast.NilNode:
		if !equal {
			return []datum.Path{path}
		}
	case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		if equal {
			return []datum.Path{path}
		}
	}
	return nil
}

// let visits the body, in which the name denotes the path of its value. It also visits the value, since the
// body may not use the name.
func (r *reader) let(x *ast.VariableDeclaratorNode, safe bool) {
	name := r.builder.Name(x)
	var t *trail
	if isChain(x.Value) {
		var space [fewLinks]link
		base, links := unchain(x.Value, false, &space)
		t = r.trail(base, links)
	}
	// A null in the name is harmless until it is used.
	r.walk(x.Value, t != nil)
	if r.names == nil {
		r.names = map[string]*trail{}
	}
	r.names[name] = t
	r.walk(x.Expr, safe)
	delete(r.names, name)
}

// loop reads a list and the body of the loop for its elements.
func (r *reader) loop(x *ast.BuiltinNode) {
	r.walk(x.Arguments[0], false)
	var t *trail
	if isChain(x.Arguments[0]) {
		var space [fewLinks]link
		base, links := unchain(x.Arguments[0], false, &space)
		t = r.trail(base, links)
		if t != nil {
			t = t.extended(1)
			t.step(datum.Wildcard, false)
		}
	}
	for _, a := range x.Arguments[1:] {
		p, ok := a.(*ast.PredicateNode)
		if !ok {
			r.walk(a, false)
			continue
		}
		r.items = append(r.items, t)
		r.walk(p.Node, false)
		r.items = r.items[:len(r.items)-1]
	}
}
