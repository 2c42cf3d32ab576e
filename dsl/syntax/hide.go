package syntax

import (
	"strings"
	"sync"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/builtin"
	"github.com/expr-lang/expr/conf"
	"github.com/expr-lang/expr/parser"
)

// This file hides names from the parser of expr-lang, and puts them back into its tree.
//
// Our names may have hyphens, which that parser would read as minus, and may be keywords or
// functions of expr-lang, such as "len" or "nil". So the parser reads one letter in place of each
// name:
//
//	shared-state.order-id        →  ー.ー
//
// The tree says at which rune of the text the parser met each node. origin knows for which token
// that rune was written, and so the name of each node. No other file knows that names were hidden:
// neither the trees nor the errors of this package have the letter.
//
// This holds as long as:
//
//   - the parser gives each node of a name the position of the name itself, counted in runes;
//   - it neither folds nor moves nodes (its optimizer does, and does not run);
//   - a name has a meaning for it only as a loop with a body, such as filter, and those are not hidden;
//   - it does not compare names, because all of them look alike to it. The package expr checks names.
//
// FuzzNamesComeBack checks this against the parser of each version of expr-lang.

// hidden replaces every name. The parser takes it for a letter (U+30FC). An author's own name may be
// this letter, too: it comes back like any other.
const hidden = "ー"

// A draft is the text for the parser.
type draft struct {
	text   strings.Builder
	origin origin
}

// An origin has the token for which each rune of a draft was written.
type origin []int

// write adds a text for token i, and a space, so that texts do not run together.
func (d *draft) write(text string, i int) {
	d.text.WriteString(text)
	d.text.WriteByte(' ')
	for range text {
		d.origin = append(d.origin, i)
	}
	d.origin = append(d.origin, i)
}

// hide adds the name of token i.
func (d *draft) hide(i int) { d.write(hidden, i) }

// at returns the token for a position of the parser. What is behind the end was written for the
// last token.
func (o origin) at(from int) int { return o[max(0, min(from, len(o)-1))] }

// parse parses the draft of tokens, and puts their names into the tree.
func (d *draft) parse(tokens []Token) (ast.Node, error) {
	tree, err := parser.ParseWithConfig(d.text.String(), parserConfig())
	if err != nil {
		return nil, err
	}
	ast.Walk(&tree.Node, reveal(func(n ast.Node) *Token { return &tokens[d.origin.at(n.Location().From)] }))
	return tree.Node, nil
}

// reveal puts names into the nodes that it visits, from the token of each node.
type reveal func(n ast.Node) *Token

// Visit implements [ast.Visitor].
func (of reveal) Visit(n *ast.Node) {
	switch x := (*n).(type) {
	case *ast.IdentifierNode:
		x.Value = of(x).Text
	case *ast.VariableDeclaratorNode:
		x.Name = of(x).Text
	case *ast.StringNode: // a member or a key, if it is not a literal
		if t := of(x); t.Kind == NameToken {
			x.Value = t.Text
		}
	}
}

// parserConfig disables all functions of expr-lang, so that calls become plain calls. Only loops remain, which
// have their own syntax. The parser does not change it, so all share one.
var parserConfig = sync.OnceValue(func() *conf.Config {
	disabled := make(map[string]bool, len(builtin.Builtins))
	for _, f := range builtin.Builtins {
		disabled[f.Name] = true
	}
	return &conf.Config{MaxNodes: maxNodes, Disabled: disabled}
})

// loops lists the functions whose arguments are computed for each element.
func loops() (names []string) {
	for _, f := range builtin.Builtins {
		if f.Predicate {
			names = append(names, f.Name)
		}
	}
	return names
}
