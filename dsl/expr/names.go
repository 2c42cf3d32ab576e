package expr

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/library"
	"procaas/dsl/rules"
	"procaas/dsl/typing"
)

// Roots are all roots that some place of a pipeline may read. Other files have their own roots, with any value.
var Roots = []string{"event", StateRoot, "sources", "configs", "flow", "run", "item"}

// ErrorRoot is known in the rules of on-error.
const ErrorRoot = "error"

// IndexRoot is the place of the item in the list of a for-each.
const IndexRoot = "index"

// AwaitedRoot is the event that await looks at.
const AwaitedRoot = "awaited"

// localRoots exist at some places only. Elsewhere, a shared state may declare these names.
var localRoots = []string{ErrorRoot, IndexRoot, AwaitedRoot, InputsRoot}

func isRoot(name string) bool { return slices.Contains(Roots, name) }

// rootMembers are the members of roots with fixed members.
var rootMembers = map[string]map[string]datum.Shape{
	"event": {
		"id": datum.StringShape, "type": datum.StringShape, "source": datum.StringShape, "time": datum.StringShape,
		"key": datum.StringShape | datum.NullShape, "payload": datum.AnyShape,
	},
	"flow": {"id": datum.StringShape, "key": datum.StringShape | datum.NullShape, "state": datum.StringShape | datum.NullShape},
	"run":  {"id": datum.StringShape, "pipeline": datum.StringShape, "started": datum.StringShape},
	AwaitedRoot: {
		"id": datum.StringShape, "type": datum.StringShape, "source": datum.StringShape, "time": datum.StringShape,
		"key": datum.StringShape | datum.NullShape, "payload": datum.AnyShape,
	},
	ErrorRoot: {
		"class": datum.StringShape, "status": datum.NumberShape | datum.NullShape, "message": datum.StringShape, "attempts": datum.NumberShape,
		"body": datum.AnyShape,
	},
}

// finalRun are the members of run in handlers of finally, where the end of the run is known.
var finalRun = map[string]datum.Shape{
	"id": datum.StringShape, "pipeline": datum.StringShape, "started": datum.StringShape,
	"status": datum.StringShape, "error": datum.MapShape | datum.NullShape,
}

// runFailure is run.error of a run that gave up.
var runFailure = &typing.Outline{Shape: datum.MapShape, Closed: true, Members: map[string]*typing.Member{
	"handler": {Outline: typing.OfShape(datum.StringShape), Required: true},
	"class":   {Outline: typing.OfShape(datum.StringShape), Required: true},
	"message": {Outline: typing.OfShape(datum.StringShape), Required: true},
}}

// sourceMembers are the members of a handler's outcome.
var sourceMembers = map[string]datum.Shape{"response": datum.AnyShape, "status": datum.AnyShape, "outcome": datum.StringShape}

// has reports whether a root may be read.
func (s *Scope) has(root string) bool { return slices.Contains(s.Roots, root) }

// declared reports whether the shared state has a name.
func (s *Scope) declared(name string) bool {
	_, ok := s.State[name]
	return ok
}

// bare reports whether a name without a prefix is one of the shared state.
func (s *Scope) bare(name string) bool {
	return s.has(StateRoot) && !isRoot(name) && !s.has(name) && (s.declared(name) || s.Lenient && name != "$env")
}

// names resolve the nodes of an expression, with what is known of them.
type names struct {
	reports

	scope *Scope
	lets  []local // innermost last
	items []item  // innermost last
	facts []Fact  // known at the current node
	space []Fact  // of factsOf
}

// A local is a name of let.
type local struct {
	name  string
	slot  int
	shape datum.Shape
	root  string // the root that it denotes, or ""

	outline *typing.Outline
	at      track
}

// An item holds the slots of one loop's #, #index and #acc.
type item struct {
	element, index, acc int // acc is -1 outside reduce
	accShape            datum.Shape

	outline *typing.Outline // of the element
	first   *typing.Outline // initial type of #acc
}

// track returns the track of the loop's element.
func (it item) track() track { return track(fmt.Sprintf("item%d", it.element)) }

// members checks the names after a root. It returns the types of the chain's value.
func (b *names) members(root string, links []link) datum.Shape {
	if len(links) == 0 {
		return mapShapeOf(root)
	}
	name, ok := b.Literal(links[0].prop)
	if !ok {
		return datum.AnyShape // a computed name
	}
	at := links[0].prop
	switch root {
	case StateRoot:
		if spaced, ok := b.glued(name); ok && !b.scope.declared(name) {
			b.fail(at, rules.ExprHyphen, "write "+spaced+" to subtract", "%s is one name, and the shared state does not have it", name)
		} else if !b.scope.Lenient && !b.scope.declared(name) {
			hint := nearest(name, slices.Sorted(maps.Keys(b.scope.State)), "declare it under shared-state")
			if b.scope.Invites && len(links) > 1 {
				hint += map[bool]string{true: " Or", false: ", or"}[strings.HasSuffix(hint, "?")] +
					" name the directory of the team that contributes it as well"
			}
			b.fail(at, rules.ExprUndeclared, hint, "the shared state has no %s", name)
		}
		return datum.AnyShape
	case "configs":
		if b.scope.Configs != nil && !slices.Contains(b.scope.Configs, name) {
			b.fail(at, rules.ExprUnknownConfig, nearest(name, b.scope.Configs, "declare it under configs"),
				"there is no config %s", name)
		}
		return datum.AnyShape
	case "sources":
		return b.source(at, name, links)
	}
	if root == "event" && name == "key" && b.scope.KeyOf != "" {
		b.reporter.Warnf(b.span(links[0].node), rules.ExprUnknownMember, "write flow.key",
			"flow %s computes its key: event.key is what the sender gave, mostly null", b.scope.KeyOf)
	}
	members := rootMembers[root]
	if root == "run" && b.scope.Final {
		members = finalRun
	}
	return b.member(at, root, members, name, len(links) > 1)
}

// source checks sources.HANDLER and the member after it.
func (b *names) source(at ast.Node, name string, links []link) datum.Shape {
	if !slices.Contains(b.scope.Sources, name) && !b.scope.Lenient {
		b.failSource(at, name)
	}
	if len(links) == 1 {
		return datum.MapShape
	}
	member, ok := b.Literal(links[1].prop)
	if !ok {
		return datum.AnyShape
	}
	return b.member(links[1].prop, "sources."+name, sourceMembers, member, len(links) > 2)
}

// failSource reports that the outcome of a handler cannot be read.
func (b *names) failSource(at ast.Node, name string) {
	if b.scope.Late != nil {
		if reason, late := b.scope.Late()[name]; late {
			b.fail(at, rules.ExprLateSource, cmp.Or(b.scope.Hints[name], "read it from a handler that runs after it"),
				"the outcome of %s is not known here: it %s", name, reason)
			return
		}
	}
	b.fail(at, rules.ExprUnknownSource, nearest(name, b.scope.Sources, ""), "there is no handler %s before this one", name)
}

// member checks one of a fixed set of members. If more links follow, the type of the chain is unknown, and the
// member must not be a scalar.
func (b *names) member(at ast.Node, of string, known map[string]datum.Shape, name string, more bool) datum.Shape {
	s, ok := known[name]
	switch {
	case known == nil: // item
		return datum.AnyShape
	case !ok:
		members := slices.Sorted(maps.Keys(known))
		b.fail(at, rules.ExprUnknownMember, nearest(name, members, memberHint(of, name, members)), "%s has no %s", of, name)
		return datum.AnyShape
	case !more:
		return s
	case s&(datum.MapShape|datum.ListShape) == 0:
		b.fail(at, rules.ExprOperand, "", "%s.%s is %s and has no members", of, name, s)
	}
	return datum.AnyShape
}

// nearest returns a hint with the nearest known name, or else hint.
func nearest(name string, known []string, hint string) string {
	return cmp.Or(diag.DidYouMean(name, known, ""), hint)
}

// unknown reports an unknown name.
func (b *names) unknown(x *ast.IdentifierNode, name string) {
	if spaced, ok := b.subtraction(name); ok {
		b.fail(x, rules.ExprHyphen, "write "+spaced+" to subtract", "%s is one name, and nothing has it", name)
		return
	}
	switch {
	case name == "$env":
		b.fail(x, rules.ExprRefused, "name the root that you need", "$env cannot be read")
	case isRoot(name), slices.Contains(localRoots, name):
		b.fail(x, rules.ExprRootHere, "known here: "+strings.Join(b.scope.Roots, ", "), "%s cannot be read here", name)
	case slices.Contains(b.scope.Sources, name):
		b.fail(x, rules.ExprUnknownName, "write sources."+name, "there is no name %s, but a handler", name)
	case slices.Contains(b.scope.Configs, name):
		b.fail(x, rules.ExprUnknownName, "write configs."+name, "there is no name %s, but a config", name)
	case library.Named(name) != nil:
		b.fail(x, rules.ExprUnknownName, "call it: "+library.Named(name).Signature, "there is no name %s, but a function", name)
	case b.habitOf(name) != "":
		b.fail(x, rules.ExprUnknownName, b.habitOf(name), "there is no name %s", name)
	default:
		hint := "known here: " + strings.Join(b.scope.Roots, ", ")
		if b.expr.Source == name {
			hint += "; text stands in quotes: '" + name + "'"
		}
		b.fail(x, rules.ExprUnknownName, nearest(name, b.all(), hint), "there is no name %s", name)
	}
}

// all lists the names with which an expression may begin.
func (b *names) all() []string {
	out := slices.Clone(b.scope.Roots)
	for _, l := range b.lets {
		out = append(out, l.name)
	}
	if b.scope.has(StateRoot) {
		out = slices.AppendSeq(out, maps.Keys(b.scope.State))
	}
	slices.Sort(out)
	return out
}

// subtraction splits a name at a hyphen if both sides are known. It returns the expression that was probably
// meant.
func (b *names) subtraction(name string) (spaced string, ok bool) {
	for i, r := range name {
		if r != '-' {
			continue
		}
		left, right := name[:i], name[i+1:]
		if b.knows(left) && (b.knows(right) || strings.Trim(right, "0123456789") == "") {
			return left + " - " + right, true
		}
	}
	return "", false
}

// knows reports whether a name has a value here.
func (b *names) knows(name string) bool {
	return b.local(name) != nil || b.scope.has(name) || b.scope.declared(name)
}

// InputsRoot replaces the root event in called pipelines.
const InputsRoot = "inputs"

// AllRoots are the roots of a handler's expressions.
var AllRoots = []string{"event", "shared-state", "sources", "configs", "flow", "run"}
