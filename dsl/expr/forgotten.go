package expr

import (
	"regexp"
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/rules"
	"procaas/dsl/syntax"
)

// WarnForgotten reports text that looks like an expression without its tag. All its names are known here, and
// it reads a member of a root, or compares or joins known names. It ignores weaker similarities.
func (s *Scope) WarnForgotten(v *Value, r *diag.Reporter) {
	text, ok := v.Scalar.(string)
	if s.warnPlaceholder(v, r) || s.warnTag(v, r) || !ok || !v.Plain || !s.MayMean(text) {
		return
	}
	tree, f := s.Parsed.Parse(text)
	if f != nil || !s.Means(tree, tree.Root) {
		return
	}
	// Invalid expressions are text, or are reported elsewhere.
	e, quiet := &Expr{Source: text, Span: v.Span}, new(diag.Reporter)
	if e.Compile(s, datum.AnyKind, quiet); diag.HasErrors(quiet.Found) {
		return
	}
	r.Warnf(v.Span, rules.Forgotten, "write !$ "+text+", or put it in quotes if it is text", "this is text, not an expression: %s", text)
}

// connectives distinguish expressions from text. They need spaces around them, since "and" is part of many
// words.
var connectives = []string{" and ", " or ", " in ", " == ", " != ", " ?? ", " if "}

// MayMean quickly reports whether a text is worth parsing.
func (s *Scope) MayMean(text string) bool {
	names := func(root string) bool {
		at := strings.Index(text, root)
		return at >= 0 && at+len(root) < len(text) && strings.ContainsRune(".[?", rune(text[at+len(root)]))
	}
	return slices.ContainsFunc(s.Roots, names) ||
		slices.ContainsFunc(connectives, func(word string) bool { return strings.Contains(text, word) })
}

// Means reports whether a tree is more than text: it reads a member of a root, or joins at least one such
// member or two known names.
func (s *Scope) Means(t *syntax.Tree, n ast.Node) bool {
	switch x := n.(type) {
	case *ast.MemberNode, *ast.ChainNode:
		return s.rooted(t, n)
	case *ast.BinaryNode:
		if x.Operator == "-" || x.Operator == "/" || x.Operator == ".." {
			return false // a date such as 2026-11-22, a path, a range
		}
		return s.Means(t, x.Left) || s.Means(t, x.Right) || s.names(t, x.Left) && s.names(t, x.Right)
	case *ast.UnaryNode:
		return s.Means(t, x.Node)
	case *ast.ConditionalNode:
		return s.Means(t, x.Cond) || s.Means(t, x.Exp1) || s.Means(t, x.Exp2)
	case *ast.CallNode:
		return slices.ContainsFunc(x.Arguments, func(a ast.Node) bool { return s.Means(t, a) })
	}
	return false
}

// rooted reports whether a chain begins with a root.
func (s *Scope) rooted(t *syntax.Tree, n ast.Node) bool {
	var space [fewLinks]link
	base, links := unchain(n, false, &space)
	id, ok := base.(*ast.IdentifierNode)
	return ok && len(links) > 0 && s.has(t.Name(id))
}

// names reports whether a node is a declared name of the shared state, or a member of it that is unambiguous.
func (s *Scope) names(t *syntax.Tree, n ast.Node) bool {
	switch x := n.(type) {
	case *ast.IdentifierNode:
		return s.declared(t.Name(x))
	case *ast.MemberNode, *ast.ChainNode:
		var space [fewLinks]link
		base, _ := unchain(n, false, &space)
		id, ok := base.(*ast.IdentifierNode)
		return ok && s.declared(t.Name(id))
	case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NilNode, *ast.ArrayNode:
		return true
	}
	return false
}

// placeholder finds placeholders of other tools: ${…}, {{ … }} and ${{ … }}.
var placeholder = regexp.MustCompile(`\$\{\{([^{}]+)\}\}|\{\{([^{}]+)\}\}|\$\{([^{}]+)\}`)

// warnPlaceholder reports text with a placeholder of another tool that reads a known root.
func (s *Scope) warnPlaceholder(v *Value, r *diag.Reporter) bool {
	text, _ := v.Scalar.(string)
	if len(text) > syntax.MaxSource || !strings.Contains(text, "{") {
		return false
	}
	var parts []string // of the intended expression
	last, found := 0, ""
	add := func(part string) {
		if part != "" {
			parts = append(parts, part)
		}
	}
	for _, m := range placeholder.FindAllStringSubmatchIndex(text, -1) {
		inner := ""
		for i := 2; i < len(m); i += 2 {
			if m[i] >= 0 {
				inner = strings.TrimSpace(text[m[i]:m[i+1]])
			}
		}
		tree, f := (*syntax.Tree)(nil), (*syntax.Flaw)(nil)
		if s.MayMean(inner) {
			tree, f = s.Parsed.Parse(inner)
		}
		if tree == nil || f != nil || !s.Means(tree, tree.Root) {
			return false // a template of another tool
		}
		if found == "" {
			found = text[m[0]:m[1]]
		}
		add(literalText(text[last:m[0]]))
		last = m[1]
		if m[0] == 0 && last == len(text) {
			add(inner)
		} else {
			add("string(" + inner + ")")
		}
	}
	if found == "" {
		return false
	}
	add(literalText(text[last:]))
	expr := strings.Join(parts, " + ")
	switch {
	case strings.ContainsAny(expr, "\"\\\n") || len(expr) > 200:
		expr = "as a block: !$ | and, on the next line, '…' + string(…)"
	case len(parts) > 1 || strings.ContainsAny(expr, "'#,[]{}:") || !syntax.StartsName(rune(expr[0])):
		expr = `!$ "` + expr + `"`
	default:
		expr = "!$ " + expr
	}
	r.Warnf(v.Span, rules.Forgotten, "write "+expr, "this is text: nothing replaces %s", found)
	return true
}

// literalText returns text as a string literal, or "" for empty text.
func literalText(text string) string {
	if text == "" {
		return ""
	}
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(text) + "'"
}

// almostTag finds what authors write instead of !$.
var almostTag = regexp.MustCompile(`^(\$!|\$|=|!)\s*([A-Za-z].*)$`)

// warnTag reports an expression after something similar to the tag.
func (s *Scope) warnTag(v *Value, r *diag.Reporter) bool {
	text, _ := v.Scalar.(string)
	m := almostTag.FindStringSubmatch(text)
	if m == nil || !v.Plain || !s.MayMean(m[2]) {
		return false
	}
	tree, f := s.Parsed.Parse(m[2])
	if f != nil || !s.Means(tree, tree.Root) {
		return false
	}
	r.Warnf(v.Span, rules.Forgotten, "write !$ "+m[2], "this is text: %s is not the tag of an expression", m[1])
	return true
}
