package dsl

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"

	"procaas/dsl/diag"
	"procaas/dsl/rules"
)

// roots are all roots that any place of a pipeline may read. Files of other kinds
// have roots of their own, which may hold any value.
var roots = []string{"event", stateRoot, "sources", "configs", "flow", "run", "item"}

// errorRoot is known in the rules of on-error.
const errorRoot = "error"

// indexRoot is the place of the item in the list of a for-each.
const indexRoot = "index"

// awaitedRoot is the event that await looks at.
const awaitedRoot = "awaited"

// localRoots are known at some places only. Elsewhere they are names as any other,
// which a shared state may declare.
var localRoots = []string{errorRoot, indexRoot, awaitedRoot, inputsRoot}

func isRoot(name string) bool { return slices.Contains(roots, name) }

// rootMembers are the members of the roots that have fixed ones.
var rootMembers = map[string]map[string]shape{
	"event": {
		"id": stringShape, "type": stringShape, "source": stringShape, "time": stringShape,
		"key": stringShape | nullShape, "payload": anyShape,
	},
	"flow": {"id": stringShape, "key": stringShape | nullShape, "state": stringShape | nullShape},
	"run":  {"id": stringShape, "pipeline": stringShape, "started": stringShape},
	awaitedRoot: {
		"id": stringShape, "type": stringShape, "source": stringShape, "time": stringShape,
		"key": stringShape | nullShape, "payload": anyShape,
	},
	errorRoot: {
		"class": stringShape, "status": numberShape | nullShape, "message": stringShape, "attempts": numberShape,
		"body": anyShape,
	},
}

// sourceMembers are what is known of a handler that has run.
var sourceMembers = map[string]shape{"response": anyShape, "status": anyShape, "outcome": stringShape}

// has tells whether a root may be read.
func (s *scope) has(root string) bool { return slices.Contains(s.roots, root) }

// declared tells whether the shared state has a name.
func (s *scope) declared(name string) bool {
	_, ok := s.state[name]
	return ok
}

// bare tells whether a name without a prefix is one of the shared state.
func (s *scope) bare(name string) bool {
	return s.has(stateRoot) && !isRoot(name) && !s.has(name) && (s.declared(name) || s.lenient && name != "$env")
}

// members checks the names after a root, and gives the shape of the chain.
func (b *builder) members(x *ast.IdentifierNode, root string, links []link) shape {
	if len(links) == 0 {
		return mapShapeOf(root)
	}
	name, ok := b.literal(links[0].prop)
	if !ok {
		return anyShape // a computed name
	}
	at := links[0].prop
	switch root {
	case stateRoot:
		if spaced, ok := b.glued(name); ok && !b.scope.declared(name) {
			b.fail(at, rules.ExprHyphen, "write "+spaced+" to subtract", "%s is one name, and the shared state does not have it", name)
		} else if !b.scope.lenient && !b.scope.declared(name) {
			b.suggest(at, rules.ExprUndeclared, name, slices.Sorted(maps.Keys(b.scope.state)),
				"declare it under shared-state", "the shared state has no %s", name)
		}
		return anyShape
	case "configs":
		if b.scope.configs != nil && !slices.Contains(b.scope.configs, name) {
			b.suggest(at, rules.ExprUnknownConfig, name, b.scope.configs,
				"declare it under configs", "there is no config %s", name)
		}
		return anyShape
	case "sources":
		return b.source(at, name, links)
	}
	return b.member(at, root, rootMembers[root], name, len(links) > 1)
}

// source checks sources.HANDLER and the member after it.
func (b *builder) source(at ast.Node, name string, links []link) shape {
	reason, late := b.scope.late[name]
	switch {
	case slices.Contains(b.scope.sources, name), b.scope.lenient:
	case late:
		b.fail(at, rules.ExprLateSource, cmp.Or(b.scope.hints[name], "read it from a handler that runs after it"),
			"the outcome of %s is not known here: it %s", name, reason)
	default:
		b.suggest(at, rules.ExprUnknownSource, name, b.scope.sources, "", "there is no handler %s before this one", name)
	}
	if len(links) == 1 {
		return mapShape
	}
	member, ok := b.literal(links[1].prop)
	if !ok {
		return anyShape
	}
	return b.member(links[1].prop, "sources."+name, sourceMembers, member, len(links) > 2)
}

// member checks one of a fixed set of members. When more follows, the shape of
// the whole is not known, and a simple value must not be there.
func (b *builder) member(at ast.Node, of string, known map[string]shape, name string, more bool) shape {
	s, ok := known[name]
	switch {
	case known == nil: // item
		return anyShape
	case !ok:
		members := slices.Sorted(maps.Keys(known))
		b.suggest(at, rules.ExprUnknownMember, name, members, memberHint(of, name, members), "%s has no %s", of, name)
		return anyShape
	case !more:
		return s
	case s&(mapShape|listShape) == 0:
		b.fail(at, rules.ExprOperand, "", "%s.%s is %s and has no members", of, name, s)
	}
	return anyShape
}

// suggest reports an unknown name with the nearest known one, or else a hint.
func (b *builder) suggest(at ast.Node, code diag.Code, name string, known []string, hint, format string, args ...any) {
	b.fail(at, code, cmp.Or(diag.DidYouMean(name, known, ""), hint), format, args...)
}

// unknown reports a name that nothing has.
func (b *builder) unknown(x *ast.IdentifierNode, name string) {
	if spaced, ok := b.subtraction(name); ok {
		b.fail(x, rules.ExprHyphen, "write "+spaced+" to subtract", "%s is one name, and nothing has it", name)
		return
	}
	switch {
	case name == "$env":
		b.fail(x, rules.ExprRefused, "name the root that you need", "$env cannot be read")
	case isRoot(name), slices.Contains(localRoots, name):
		b.fail(x, rules.ExprRootHere, "known here: "+strings.Join(b.scope.roots, ", "), "%s cannot be read here", name)
	case slices.Contains(b.scope.sources, name):
		b.fail(x, rules.ExprUnknownName, "write sources."+name, "there is no name %s, but a handler", name)
	case slices.Contains(b.scope.configs, name):
		b.fail(x, rules.ExprUnknownName, "write configs."+name, "there is no name %s, but a config", name)
	case functionNamed(name) != nil:
		b.fail(x, rules.ExprUnknownName, "call it: "+functionNamed(name).Signature, "there is no name %s, but a function", name)
	case b.habitOf(name) != "":
		b.fail(x, rules.ExprUnknownName, b.habitOf(name), "there is no name %s", name)
	default:
		hint := "known here: " + strings.Join(b.scope.roots, ", ")
		if b.expr.Source == name {
			hint += "; text stands in quotes: '" + name + "'"
		}
		b.suggest(x, rules.ExprUnknownName, name, b.names(), hint, "there is no name %s", name)
	}
}

// names lists all names that an expression may begin with here.
func (b *builder) names() []string {
	out := slices.Clone(b.scope.roots)
	for _, l := range b.lets {
		out = append(out, l.name)
	}
	if b.scope.has(stateRoot) {
		out = slices.AppendSeq(out, maps.Keys(b.scope.state))
	}
	slices.Sort(out)
	return out
}

// subtraction splits a name at a hyphen when both sides are known, and gives
// what its author may have meant.
func (b *builder) subtraction(name string) (spaced string, ok bool) {
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

// knows tells whether a name has a value here.
func (b *builder) knows(name string) bool {
	return b.local(name) != nil || b.scope.has(name) || b.scope.declared(name)
}
