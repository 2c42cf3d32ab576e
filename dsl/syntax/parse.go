package syntax

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/file"

	"procaas/dsl/diag"
	"procaas/dsl/rules"
)

// A Tree is a parsed expression: the tree of expr-lang, with the way from its nodes to the author's text.
type Tree struct {
	Root   ast.Node
	Tokens []Token
	origin origin

	split      sync.Once // makes conditions
	conditions []string
}

// A Cache has parse results by text, since teams repeat conditions and paths. Trees never change after parsing,
// so all processors share them. A nil Cache caches nothing.
type Cache struct{ bySource sync.Map }

// A parsed is a result of Parse.
type parsed struct {
	syntax *Tree
	flaw   *Flaw
}

// Parse is the function [Parse], once per text.
func (p *Cache) Parse(source string) (*Tree, *Flaw) {
	if p == nil {
		return Parse(source)
	}
	if was, ok := p.bySource.Load(source); ok {
		found := was.(parsed)
		return found.syntax, found.flaw
	}
	s, f := Parse(source)
	p.bySource.Store(source, parsed{s, f})
	return s, f
}

// Parse parses an expression.
func Parse(source string) (*Tree, *Flaw) {
	tokens, f := Scan(source)
	if f != nil {
		return nil, f
	}
	if len(tokens) == 0 {
		return nil, &Flaw{0, utf8.RuneCountInString(source), rules.ExprSyntax, "the expression is empty", ""}
	}
	w := &rewriter{tokens: tokens}
	w.block(0, len(tokens))
	if w.flaw != nil {
		return nil, w.flaw
	}
	s := &Tree{Tokens: tokens, origin: w.draft.origin}
	root, err := w.draft.parse(tokens)
	if err != nil {
		return nil, s.explain(err)
	}
	s.Root = root
	return s, nil
}

// explain translates an error of the parser for authors.
func (s *Tree) explain(err error) *Flaw {
	f := &Flaw{0, s.Tokens[len(s.Tokens)-1].To, rules.ExprSyntax, err.Error(), ""}
	var e *file.Error
	if !errors.As(err, &e) {
		return f
	}
	f.Message = strings.ToLower(e.Message[:1]) + e.Message[1:]
	if strings.Contains(e.Message, "exceeds maximum allowed nodes") {
		f.Code, f.Message = rules.ExprTooLarge, "the expression has more than 300 parts"
		f.Hint = "compute parts of it in a set handler before"
		return f
	}
	if strings.Contains(e.Message, "token EOF") || strings.Contains(e.Message, "unexpected end") || e.From >= len(s.origin) {
		last := s.Tokens[len(s.Tokens)-1]
		f.From, f.To = last.From, last.To
		f.Message = "want a value after " + Quoted(last.Text)
		if last.Is(".", "?.") {
			f.Message = "want a name after the dot"
		}
		return f
	}
	t := s.Tokens[s.origin.at(e.From)]
	f.From, f.To = t.From, t.To
	switch {
	case t.Kind == itemToken:
		f.Message = t.Text + " has a meaning only inside of functions such as filter"
		if name := s.callAround(e.From); name != "" {
			f.Message += ", and not in " + name
			f.Hint = diag.DidYouMean(name, loops(), "")
		}
	case strings.Contains(e.Message, "escape"):
		f.Message, f.Hint = "the string has an unknown escape", `write \\ for a backslash, or the string in back quotes`
	case e.Message == "expected name":
		f.Message, f.Hint = "want a name after the dot", "write other keys and positions in brackets: [0], ['a b']"
	case strings.HasPrefix(e.Message, "unexpected token"):
		f.Message = "did not expect " + Quoted(t.Text) + " here"
		if word := strings.ToLower(t.Text); word != t.Text && slices.Contains([]string{"and", "or", "not", "in"}, word) {
			f.Hint = "write " + word
		}
		switch before := s.before(e.From); {
		case t.Kind == StringToken && before.Kind == StringToken:
			f.Hint = "join texts with +: 'a' + 'b'"
		case t.Is(",") && s.isComma(e.From):
			f.Hint = "write a decimal fraction with a point: 1.5"
		case t.Kind == NameToken && likeWords[strings.ToLower(t.Text)] != "":
			f.Hint = likeWords[strings.ToLower(t.Text)]
		case t.Is(","):
			f.Hint = "a mapping is {name: value}, and a list is [a, b]: there are no sets"
		}
	case strings.HasPrefix(e.Message, "Operator ("):
		f.Message, f.Hint = Quoted(t.Text)+" and ?? need parentheses", "write (a ?? b) "+t.Text+" c"
	}
	return f
}

// before returns the token before the parser's position.
func (s *Tree) before(from int) Token {
	if i := s.origin.at(from); i > 0 {
		return s.Tokens[i-1]
	}
	return Token{}
}

// callAround returns the name of the innermost call around the parser's position, or "".
func (s *Tree) callAround(from int) string {
	for i := s.origin.at(from); i > 0; i-- {
		if t := s.Tokens[i]; t.Is("(") && (t.Pair < 0 || t.Pair > s.origin.at(from)) && s.Tokens[i-1].Kind == NameToken {
			return s.Tokens[i-1].Text
		}
	}
	return ""
}

// At returns the index of the token that a node was made from.
func (s *Tree) At(n ast.Node) int { return s.origin.at(n.Location().From) }

// Name returns the name that a node was made from.
func (s *Tree) Name(n ast.Node) string { return s.Tokens[s.At(n)].Text }

// Literal returns the string of a literal node. ok is false for other nodes. It includes names of members and
// keys.
func (s *Tree) Literal(n ast.Node) (string, bool) {
	x, ok := n.(*ast.StringNode)
	if !ok {
		return "", false
	}
	return x.Value, true
}

// Extent returns the first and the last token of a node.
func (s *Tree) Extent(n ast.Node) (first, last int) {
	i := s.At(n)
	switch x := n.(type) {
	case *ast.UnaryNode:
		first, last = s.Outer(x.Node)
		return min(i, first), last // "in" of "a not in b" is in the middle
	case *ast.BinaryNode:
		return s.cover(x.Left, x.Right)
	case *ast.ConditionalNode:
		return s.cover(x.Cond, x.Exp1, x.Exp2)
	case *ast.ChainNode:
		return s.Extent(x.Node)
	case *ast.MemberNode:
		first, _ = s.Outer(x.Node)
		return first, s.close(i)
	case *ast.SliceNode:
		first, _ = s.Outer(x.Node)
		return first, s.close(i)
	case *ast.BuiltinNode:
		return i, s.close(i + 1)
	case *ast.CallNode:
		if m, ok := x.Callee.(*ast.MemberNode); ok {
			first, _ = s.Outer(m.Node)
			return first, s.close(i + 1)
		}
		return i, s.close(i + 1)
	case *ast.PredicateNode:
		return s.Outer(x.Node)
	case *ast.VariableDeclaratorNode:
		_, last = s.Outer(x.Expr)
		return i - 1, last
	case *ast.SequenceNode:
		return s.cover(x.Nodes...)
	case *ast.PairNode:
		return s.cover(x.Key, x.Value)
	}
	return i, s.close(i)
}

// close returns the bracket that closes the one at i, or i if there is none.
func (s *Tree) close(i int) int {
	if i < len(s.Tokens) && s.Tokens[i].Pair > i {
		return s.Tokens[i].Pair
	}
	return min(i, len(s.Tokens)-1)
}

// cover returns the tokens from the first node to the last, in text order.
func (s *Tree) cover(nodes ...ast.Node) (first, last int) {
	first = len(s.Tokens)
	for _, n := range nodes {
		lo, hi := s.Outer(n)
		first, last = min(first, lo), max(last, hi)
	}
	return first, last
}

// Outer is Extent with the parentheses around the node.
func (s *Tree) Outer(n ast.Node) (first, last int) {
	first, last = s.Extent(n)
	for first > 0 && s.Tokens[first-1].Is("(") && s.Tokens[first-1].Pair == last+1 && !s.called(first-1) {
		first, last = first-1, last+1
	}
	return first, last
}

func (s *Tree) called(i int) bool {
	return (&rewriter{tokens: s.Tokens}).called(i)
}

// Text returns the source of a node on one line.
func (s *Tree) Text(n ast.Node) string {
	first, last := s.Extent(n)
	const most = 60
	if first == last && len(s.Tokens[first].Text) <= most {
		return s.Tokens[first].Text
	}
	var b strings.Builder
	for i := first; i <= last; i++ {
		if i > first && s.Tokens[i].From > s.Tokens[i-1].To {
			b.WriteByte(' ')
		}
		b.WriteString(s.Tokens[i].Text)
	}
	if text := b.String(); len(text) <= most {
		return text
	}
	if text := []rune(b.String()); len(text) > most {
		return string(slices.Concat(text[:most], []rune("…")))
	}
	return b.String()
}

// maxPatterns limits how many texts [Tree.Patterns] returns.
const maxPatterns = 16

// Patterns lists the texts that a node may compute, with a [Hole] for each part that is not constant. Conditions and ??
// have several.
func (s *Tree) Patterns(n ast.Node) []string {
	var out []string
	switch x := n.(type) {
	case *ast.StringNode:
		return []string{x.Value}
	case *ast.VariableDeclaratorNode:
		return s.Patterns(x.Expr)
	case *ast.ConditionalNode:
		out = append(s.Patterns(x.Exp1), s.Patterns(x.Exp2)...)
	case *ast.BinaryNode:
		if x.Operator == "??" {
			out = append(s.Patterns(x.Left), s.Patterns(x.Right)...)
		}
		if x.Operator == "+" {
			ends := s.Patterns(x.Right)
			for _, start := range s.Patterns(x.Left) {
				for _, end := range ends {
					out = append(out, start+end)
				}
			}
		}
	}
	if len(out) == 0 || len(out) > maxPatterns {
		return []string{Hole}
	}
	return out
}

// Conditions returns the texts of the operands of and, or the text of any other expression. Nobody may change them.
func (s *Tree) Conditions() []string {
	s.split.Do(func() { s.conditions = slices.Clip(s.conjuncts(s.Root)) })
	return s.conditions
}

func (s *Tree) conjuncts(n ast.Node) []string {
	if x, ok := n.(*ast.BinaryNode); ok && (x.Operator == "and" || x.Operator == "&&") {
		return append(s.conjuncts(x.Left), s.conjuncts(x.Right)...)
	}
	return []string{s.words(n)}
}

// words returns the tokens of a node, independent of the author's spaces.
func (s *Tree) words(n ast.Node) string {
	first, last := s.Extent(n)
	var out []string
	for _, t := range s.Tokens[first : last+1] {
		out = append(out, t.Text)
	}
	return strings.Join(out, " ")
}

// isComma reports whether a comma between two digits is probably a decimal comma. Spaces around it would
// separate elements.
func (s *Tree) isComma(from int) bool {
	i := s.origin.at(from)
	return i > 0 && i+1 < len(s.Tokens) && s.Tokens[i-1].Kind == numberToken && s.Tokens[i+1].Kind == numberToken &&
		s.Tokens[i-1].To == s.Tokens[i].From && s.Tokens[i].To == s.Tokens[i+1].From
}

// Hole replaces a computed part of a path. No written path contains it.
const Hole = "\x00"

// Tree writes a node with brackets around all operators. It drops the author's brackets, except inside
// functions.
func (s *Tree) Tree(n ast.Node) string {
	switch x := n.(type) {
	case *ast.BinaryNode:
		return "(" + s.Tree(x.Left) + " " + x.Operator + " " + s.Tree(x.Right) + ")"
	case *ast.UnaryNode:
		return "(" + x.Operator + " " + s.Tree(x.Node) + ")"
	case *ast.ArrayNode:
		return "[" + s.trees(x.Nodes) + "]"
	case *ast.MapNode:
		return "{" + s.trees(x.Pairs) + "}"
	case *ast.PairNode:
		return s.words(x.Key) + ": " + s.Tree(x.Value)
	}
	return s.words(n)
}

func (s *Tree) trees(nodes []ast.Node) string {
	texts := make([]string, len(nodes))
	for i, n := range nodes {
		texts[i] = s.Tree(n)
	}
	return strings.Join(texts, ", ")
}
