package dsl

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/builtin"
	"github.com/expr-lang/expr/conf"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/parser"

	"procaas/dsl/rules"
)

// A syntax is a parsed expression: the tree of expr-lang and the way from its
// nodes back to the author's text.
type syntax struct {
	root   ast.Node
	tokens []token
	origin []int // the token of each rune that the parser saw
}

// parses keeps what texts were parsed to: teams write the same conditions and the
// same paths many times. A tree is only read once it is made, so one serves all of
// its text, on all processors. The nil value keeps nothing.
type parses struct{ bySource sync.Map }

// A parsed is what parse gives.
type parsed struct {
	syntax *syntax
	flaw   *flaw
}

// parse is [parse], once for each text.
func (p *parses) parse(source string) (*syntax, *flaw) {
	if p == nil {
		return parse(source)
	}
	if was, ok := p.bySource.Load(source); ok {
		found := was.(parsed)
		return found.syntax, found.flaw
	}
	s, f := parse(source)
	p.bySource.Store(source, parsed{s, f})
	return s, f
}

// parse reads the text of an expression.
func parse(source string) (*syntax, *flaw) {
	tokens, f := scan(source)
	if f != nil {
		return nil, f
	}
	if len(tokens) == 0 {
		return nil, &flaw{0, utf8.RuneCountInString(source), rules.ExprSyntax, "the expression is empty", ""}
	}
	w := &rewriter{tokens: tokens}
	w.block(0, len(tokens))
	if w.flaw != nil {
		return nil, w.flaw
	}
	s := &syntax{tokens: tokens, origin: w.origin}
	tree, err := parser.ParseWithConfig(w.out.String(), parserConfig())
	if err != nil {
		return nil, s.explain(err)
	}
	s.root = tree.Node
	return s, nil
}

// parserConfig switches all functions of expr-lang off, so that calls come out
// as plain calls. Only the loops remain, which have a syntax of their own. The
// parser only reads it, so one serves all.
var parserConfig = sync.OnceValue(func() *conf.Config {
	disabled := make(map[string]bool, len(builtin.Builtins))
	for _, f := range builtin.Builtins {
		disabled[f.Name] = true
	}
	return &conf.Config{MaxNodes: maxNodes, Disabled: disabled}
})

// explain puts an error of the parser into the author's terms.
func (s *syntax) explain(err error) *flaw {
	f := &flaw{0, s.tokens[len(s.tokens)-1].to, rules.ExprSyntax, err.Error(), ""}
	var e *file.Error
	if !errors.As(err, &e) {
		return f
	}
	f.message = strings.ToLower(e.Message[:1]) + e.Message[1:]
	if strings.Contains(e.Message, "exceeds maximum allowed nodes") {
		f.code, f.message = rules.ExprTooLarge, "the expression has more than 300 parts"
		f.hint = "compute parts of it in a set handler before"
		return f
	}
	if strings.Contains(e.Message, "token EOF") || strings.Contains(e.Message, "unexpected end") || e.From >= len(s.origin) {
		last := s.tokens[len(s.tokens)-1]
		f.from, f.to = last.from, last.to
		f.message = "want a value after " + quoted(last.text)
		if last.is(".", "?.") {
			f.message = "want a name after the dot"
		}
		return f
	}
	t := s.tokens[s.origin[max(e.From, 0)]]
	f.from, f.to = t.from, t.to
	switch {
	case t.kind == itemToken:
		f.message = t.text + " has a meaning only inside of functions such as filter"
	case strings.Contains(e.Message, "escape"):
		f.message, f.hint = "the string has an unknown escape", `write \\ for a backslash, or the string in back quotes`
	case e.Message == "expected name":
		f.message, f.hint = "want a name after the dot", "write other keys and positions in brackets: [0], ['a b']"
	case strings.HasPrefix(e.Message, "unexpected token"):
		f.message = "did not expect " + quoted(t.text) + " here"
		if word := strings.ToLower(t.text); word != t.text && slices.Contains([]string{"and", "or", "not", "in"}, word) {
			f.hint = "write " + word
		}
		switch before := s.before(e.From); {
		case t.kind == stringToken && before.kind == stringToken:
			f.hint = "join texts with +: 'a' + 'b'"
		case t.is(",") && s.isComma(e.From):
			f.hint = "write a decimal fraction with a point: 1.5"
		case t.kind == nameToken && likeWords[strings.ToLower(t.text)] != "":
			f.hint = likeWords[strings.ToLower(t.text)]
		case t.is(","):
			f.hint = "a mapping is {name: value}, and a list is [a, b]: there are no sets"
		}
	case strings.HasPrefix(e.Message, "Operator ("):
		f.message, f.hint = quoted(t.text)+" and ?? need parentheses", "write (a ?? b) "+t.text+" c"
	}
	return f
}

// before gives the token before the one that the parser saw at a place.
func (s *syntax) before(from int) token {
	if i := s.origin[max(from, 0)]; i > 0 {
		return s.tokens[i-1]
	}
	return token{}
}

// at gives the index of the token that a node was made from.
func (s *syntax) at(n ast.Node) int {
	from := n.Location().From
	if from >= len(s.origin) {
		return len(s.tokens) - 1
	}
	return s.origin[from]
}

// name gives the name that stands where the parser saw a hidden one.
func (s *syntax) name(n ast.Node) string { return s.tokens[s.at(n)].text }

// literal gives the string that a node is, and whether it is one. It gives the
// names of members and keys too.
func (s *syntax) literal(n ast.Node) (string, bool) {
	x, ok := n.(*ast.StringNode)
	if !ok {
		return "", false
	}
	if t := s.tokens[s.at(n)]; t.kind == nameToken {
		return t.text, true
	}
	return x.Value, true
}

// extent gives the first and the last token of a node.
func (s *syntax) extent(n ast.Node) (first, last int) {
	i := s.at(n)
	switch x := n.(type) {
	case *ast.UnaryNode:
		first, last = s.outer(x.Node)
		return min(i, first), last // "in" of "a not in b" stands inside
	case *ast.BinaryNode:
		return s.cover(x.Left, x.Right)
	case *ast.ConditionalNode:
		return s.cover(x.Cond, x.Exp1, x.Exp2)
	case *ast.ChainNode:
		return s.extent(x.Node)
	case *ast.MemberNode:
		first, _ = s.outer(x.Node)
		return first, s.close(i)
	case *ast.SliceNode:
		first, _ = s.outer(x.Node)
		return first, s.close(i)
	case *ast.BuiltinNode:
		return i, s.close(i + 1)
	case *ast.CallNode:
		if m, ok := x.Callee.(*ast.MemberNode); ok {
			first, _ = s.outer(m.Node)
			return first, s.close(i + 1)
		}
		return i, s.close(i + 1)
	case *ast.PredicateNode:
		return s.outer(x.Node)
	case *ast.VariableDeclaratorNode:
		_, last = s.outer(x.Expr)
		return i - 1, last
	case *ast.SequenceNode:
		return s.cover(x.Nodes...)
	case *ast.PairNode:
		return s.cover(x.Key, x.Value)
	}
	return i, s.close(i)
}

// close gives the bracket that closes the one at i; i when it opens none.
func (s *syntax) close(i int) int {
	if i < len(s.tokens) && s.tokens[i].pair > i {
		return s.tokens[i].pair
	}
	return min(i, len(s.tokens)-1)
}

// cover gives the tokens from the first node to the last, in text order.
func (s *syntax) cover(nodes ...ast.Node) (first, last int) {
	first = len(s.tokens)
	for _, n := range nodes {
		lo, hi := s.outer(n)
		first, last = min(first, lo), max(last, hi)
	}
	return first, last
}

// outer is extent with the parentheses around the node.
func (s *syntax) outer(n ast.Node) (first, last int) {
	first, last = s.extent(n)
	for first > 0 && s.tokens[first-1].is("(") && s.tokens[first-1].pair == last+1 && !s.called(first-1) {
		first, last = first-1, last+1
	}
	return first, last
}

func (s *syntax) called(i int) bool {
	return (&rewriter{tokens: s.tokens}).called(i)
}

// text gives what the author wrote for a node, on one line.
func (s *syntax) text(n ast.Node) string {
	first, last := s.extent(n)
	var b strings.Builder
	for i := first; i <= last; i++ {
		if i > first && s.tokens[i].from > s.tokens[i-1].to {
			b.WriteByte(' ')
		}
		b.WriteString(s.tokens[i].text)
	}
	const most = 60
	if text := []rune(b.String()); len(text) > most {
		return string(slices.Concat(text[:most], []rune("…")))
	}
	return b.String()
}

// pattern gives the text that a node computes, with a hole for each part that is
// not fixed.
func (s *syntax) pattern(n ast.Node) string {
	if text, ok := n.(*ast.StringNode); ok {
		return text.Value
	}
	if x, ok := n.(*ast.BinaryNode); ok && x.Operator == "+" {
		return s.pattern(x.Left) + s.pattern(x.Right)
	}
	return hole
}
