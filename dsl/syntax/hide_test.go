package syntax

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/parser"
)

// FuzzNamesComeBack compares the tree with that of the same text in which each name is another word, so that the
// parser itself says which name each node has. No name and no position may differ.
func FuzzNamesComeBack(f *testing.F) {
	for _, source := range []string{
		"shared-state.order-id", "event.payload.total > 3 and not sources.pay.response.ok", "a if b else c", "x is not None",
		"let a-b = len; a-b + a-b", "filter(xs, #.order-id in ids and let y = #; y.n > n)", "reduce(xs, #acc + #.n, n)",
		"{nil: a, 'x y': b.nil, len: len}", "a?.b-c?.d[e-f](g, h).i", "xs[a:b] + xs[c] ?? d", "ー.ー + a.ー", "f(a)(b) | g(c) | d.h()",
		"'ー' + `ー` + a-ー", "not a in b", "a not in b and c contains d-e", "map(xs, {k: #, v-w: #index + i})", "-a ** b % c",
	} {
		f.Add(source)
	}
	f.Fuzz(func(t *testing.T, source string) {
		if strings.Contains(source, wordPrefix) || !utf8.ValidString(source) {
			return // the word would look like one of ours, and files are UTF-8
		}
		s, flaw := Parse(source)
		if flaw != nil {
			if strings.Contains(flaw.Message+flaw.Hint, hidden) && !strings.Contains(source, hidden) {
				t.Errorf("%s: the flaw has a hidden name: %+v", source, flaw)
			}
			return
		}
		var named []string // what each node is called, in the order of the walk
		ast.Walk(&s.Root, visit(func(n ast.Node) {
			named = append(named, describe(n, func() string { return s.Tokens[s.At(n)].Text }))
		}))
		w := &rewriter{tokens: s.Tokens}
		w.block(0, len(s.Tokens))
		words, of := w.inWords()
		tree, err := parser.ParseWithConfig(words, parserConfig())
		if err != nil {
			t.Fatalf("%s: want it to parse with words as names, have %v in %s", source, err, words)
		}
		var want []string
		ast.Walk(&tree.Node, visit(func(n ast.Node) {
			word := nameOf(n)
			if i, ok := of[word]; ok {
				want = append(want, describe(rename(n, s.Tokens[i].Text), func() string { return s.Tokens[i].Text }))
				return
			}
			want = append(want, describe(n, func() string { return "" }))
		}))
		if !reflect.DeepEqual(named, want) {
			t.Errorf("%s: want the nodes\n%q\nhave\n%q", source, want, named)
		}
	})
}

// wordPrefix begins each word in place of a name.
const wordPrefix = "in_place_of"

// visit calls a function for each node.
type visit func(ast.Node)

func (v visit) Visit(n *ast.Node) { v(*n) }

// inWords returns the draft with a word of its own for each hidden name, and the token of each word.
func (w *rewriter) inWords() (text string, of map[string]int) {
	var b strings.Builder
	of = map[string]int{}
	for i, r := range []rune(w.draft.text.String()) {
		at := w.draft.origin[i]
		if string(r) != hidden || w.tokens[at].Kind != NameToken {
			b.WriteRune(r)
			continue
		}
		word := fmt.Sprintf("%s%d", wordPrefix, at)
		b.WriteString(word)
		of[word] = at
	}
	return b.String(), of
}

// nameOf returns the name of a node, or an empty text if it can have none.
func nameOf(n ast.Node) string {
	switch x := n.(type) {
	case *ast.IdentifierNode:
		return x.Value
	case *ast.VariableDeclaratorNode:
		return x.Name
	case *ast.StringNode:
		return x.Value
	}
	return ""
}

// rename returns a node of the same type with a name.
func rename(n ast.Node, name string) ast.Node {
	switch n.(type) {
	case *ast.IdentifierNode:
		return &ast.IdentifierNode{Value: name}
	case *ast.VariableDeclaratorNode:
		return &ast.VariableDeclaratorNode{Name: name}
	}
	return &ast.StringNode{Value: name}
}

// describe says the type and the name of a node, and the text of its token if it has a name.
func describe(n ast.Node, token func() string) string {
	name := nameOf(n)
	if name == "" || token() != name {
		return fmt.Sprintf("%T %s", n, name)
	}
	return fmt.Sprintf("%T %s at its token", n, name)
}
