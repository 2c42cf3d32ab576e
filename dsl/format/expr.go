package format

import (
	"strings"
	"unicode/utf8"

	"procaas/dsl/syntax"
)

// layExpr breaks an expression into lines of at most width runes, if possible: first at its weakest operators,
// then inside brackets. It never changes a word. ok is false if the text is not a valid expression, or already
// has lines.
func layExpr(text string, width int) (lines []string, ok bool) {
	tokens, f := syntax.Scan(text)
	if f != nil || len(tokens) == 0 || strings.ContainsAny(text, "`\n") {
		return nil, false
	}
	b := &breaker{src: []rune(text), tokens: tokens, width: width}
	b.lay(0, len(tokens), "")
	return b.lines, true
}

// A breaker breaks an expression into lines.
type breaker struct {
	src    []rune
	tokens []syntax.Token
	width  int
	lines  []string
}

// weakest lists the operators after which lines may break, the weakest first.
// Lines break before if and else, and after all others.
var weakest = [][]string{
	{";"}, {"if", "else", "?", ":"}, {"or", "||"}, {"and", "&&"}, {"??"}, {",", "+", "-"},
}

// text returns the source of tokens[from:to].
func (b *breaker) text(from, to int) string {
	first, last := 0, len(b.src)
	if from > 0 {
		first = b.tokens[from-1].To
	}
	if to < len(b.tokens) {
		last = b.tokens[to-1].To
	}
	return strings.TrimSpace(string(b.src[first:last]))
}

func (b *breaker) add(indent string, from, to int) {
	b.lines = append(b.lines, indent+b.text(from, to))
}

// lay writes tokens[from:to] on lines of their own.
func (b *breaker) lay(from, to int, indent string) {
	if utf8.RuneCountInString(indent+b.text(from, to)) <= b.width {
		b.add(indent, from, to)
		return
	}
	for _, operators := range weakest {
		if cuts := b.cuts(from, to, operators); len(cuts) > 0 {
			for i, cut := range append(cuts, to) {
				b.lay(from, cut, indent)
				from = cut
				if i == 0 && operators[0] == "if" {
					indent += "  "
				}
			}
			return
		}
	}
	b.inside(from, to, indent)
}

// cuts returns the positions outside brackets where lines break at operators.
func (b *breaker) cuts(from, to int, operators []string) []int {
	var cuts []int
	for i := from; i < to; i++ {
		t := b.tokens[i]
		if t.Pair > i {
			i = t.Pair
			continue
		}
		if !t.Is(operators...) || i == from || i == to-1 {
			continue
		}
		if before := b.tokens[i-1]; t.Is("+", "-") && (before.Kind == syntax.SymbolToken && !before.Is(")", "]", "}") ||
			before.Is("and", "or", "not", "in")) {
			continue // a sign, not an operator
		}
		if t.Is("if", "else", "?", ":") {
			cuts = append(cuts, i)
		} else {
			cuts = append(cuts, i+1)
		}
	}
	return cuts
}

// inside breaks the first large bracket and indents its content.
func (b *breaker) inside(from, to int, indent string) {
	for i := from; i < to; i++ {
		t := b.tokens[i]
		if t.Pair <= i || t.Pair >= to || t.Pair-i < 3 || b.tokens[t.Pair].To-t.From < b.width/4 {
			continue
		}
		b.add(indent, from, i+1)
		b.lay(i+1, t.Pair, indent+"  ")
		b.lay(t.Pair, to, indent)
		return
	}
	b.add(indent, from, to)
}
