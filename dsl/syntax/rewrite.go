package syntax

import (
	"slices"
	"strings"

	"procaas/dsl/diag"
	"procaas/dsl/library"
	"procaas/dsl/rules"
)

// This file writes the author's tokens out again for the parser of expr-lang, which knows neither
// Python's "x if c else y" nor "is None" and the low precedence of not:
//
//	not a in b                   →  not (a in b)
//	a if b else c                →  ((b)?(a):(c))
//	x is None                    →  x == nil

// comparisons are operators that do not chain.
var comparisons = []string{
	"==", "!=", "<", ">", "<=", ">=", "in", "is", "matches", "contains", "startsWith", "endsWith",
}

// A rewriter writes tokens for the parser of expr-lang.
type rewriter struct {
	tokens []Token
	draft  draft
	flaw   *Flaw // the first one
}

// put writes a text for token i.
func (w *rewriter) put(text string, i int) { w.draft.write(text, i) }

// fail records the first flaw. It is about tokens[lo:hi].
func (w *rewriter) fail(lo, hi int, code diag.Code, message, hint string) {
	if w.flaw == nil {
		w.flaw = &Flaw{w.tokens[lo].From, w.tokens[hi-1].To, code, message, hint}
	}
}

// missing reports that an operand is missing at token i.
func (w *rewriter) missing(i int) {
	if i < len(w.tokens) {
		w.fail(i, i+1, rules.ExprSyntax, "want a value before "+Quoted(w.tokens[i].Text), "")
		return
	}
	w.fail(i-1, i, rules.ExprSyntax, "want a value after "+Quoted(w.tokens[i-1].Text), "")
}

// find returns the first token with one of these texts in [lo, hi), outside brackets. It returns hi if there is
// none.
func (w *rewriter) find(lo, hi int, texts ...string) int {
	for i := lo; i < hi; i++ {
		if w.word(i) && w.tokens[i].Is(texts...) {
			return i
		}
		i = w.skip(i)
	}
	return hi
}

// skip returns the end of the bracket that begins at i, or i.
func (w *rewriter) skip(i int) int {
	if w.tokens[i].Is("(", "[", "{") {
		return w.tokens[i].Pair
	}
	return i
}

// word reports whether token i may be a keyword. Names of members and keys of maps are not.
func (w *rewriter) word(i int) bool {
	if w.tokens[i].Kind != NameToken {
		return true
	}
	return !(i > 0 && w.tokens[i-1].Is(".", "?.")) && !w.key(i)
}

// key reports whether token i is a key of a map: { or , before it, : after it.
func (w *rewriter) key(i int) bool {
	return i > 0 && i+1 < len(w.tokens) && w.tokens[i+1].Is(":") && w.tokens[i-1].Is("{", ",")
}

// block writes the content of a bracket or the whole expression: expressions between commas, colons, question
// marks and semicolons.
func (w *rewriter) block(lo, hi int) {
	for lo < hi {
		end := w.find(lo, hi, ",", ";", ":", "?")
		w.piece(lo, end)
		if end < hi {
			w.put(w.tokens[end].Text, end)
		}
		lo = end + 1
	}
}

// piece writes one expression, which may begin with "let x =".
func (w *rewriter) piece(lo, hi int) {
	if lo < hi && w.tokens[lo].Is("let") && w.word(lo) {
		if lo+2 < hi && w.tokens[lo+1].Kind == NameToken && w.tokens[lo+2].Is("=") {
			w.put("let", lo)
			w.draft.hide(lo + 1)
			w.put("=", lo+2)
			lo += 3
			if lo == hi {
				w.missing(hi)
			}
		} else {
			w.fail(lo, lo+1, rules.ExprSyntax, "want let NAME = VALUE; and an expression after it", "")
			return
		}
	}
	if eq := w.find(lo, hi, "="); eq < hi {
		w.fail(eq, eq+1, rules.ExprAssign, "= assigns, and an expression changes nothing", "write == to compare")
		return
	}
	w.conditional(lo, hi)
}

// conditional writes Python's "x if c else y", which binds weakest.
func (w *rewriter) conditional(lo, hi int) {
	if loop := w.find(lo, hi, "for"); lo < loop && loop < hi && w.foreign(loop, hi) {
		return // before its if and in are read as ours
	}
	cond := w.find(lo, hi, "if")
	if cond == hi {
		if e := w.find(lo, hi, "else", "elif"); e < hi {
			w.fail(e, e+1, rules.ExprSyntax, Quoted(w.tokens[e].Text)+" without if", "write VALUE if CONDITION else OTHER")
			return
		}
		w.or(lo, hi)
		return
	}
	other := w.find(cond+1, hi, "if", "else")
	switch {
	case cond == lo:
		w.fail(cond, cond+1, rules.ExprForeign, "if cannot begin an expression", "write VALUE if CONDITION else OTHER")
		return
	case other == hi:
		w.fail(cond, hi, rules.ExprSyntax, "this if has no else", "write VALUE if CONDITION else OTHER")
		return
	case w.tokens[other].Is("if"):
		w.fail(other, other+1, rules.ExprSyntax, "a condition inside a condition needs parentheses", "")
		return
	case cond+1 == other:
		w.missing(other)
		return
	case other+1 == hi:
		w.missing(hi)
		return
	}
	w.put("((", cond)
	w.or(cond+1, other)
	w.put(")?(", cond)
	w.or(lo, cond)
	w.put("):(", other)
	w.conditional(other+1, hi)
	w.put("))", other)
}

// or writes operands between "or" and "and".
func (w *rewriter) or(lo, hi int) {
	for lo < hi {
		end := w.find(lo, hi, "or", "||", "and", "&&")
		if end == lo {
			w.missing(end)
			return
		}
		if end+1 == hi {
			w.missing(hi)
			return
		}
		w.not(lo, end)
		if end < hi {
			w.put(w.tokens[end].Text, end)
		}
		lo = end + 1
	}
}

// not writes a comparison and the nots before it.
func (w *rewriter) not(lo, hi int) {
	if !w.tokens[lo].Is("not") || !w.word(lo) {
		w.comparison(lo, hi)
		return
	}
	if lo+1 == hi {
		w.missing(hi)
		return
	}
	w.put("not (", lo)
	w.not(lo+1, hi)
	w.put(")", lo)
}

// comparison writes operands with at most one comparison between them.
func (w *rewriter) comparison(lo, hi int) {
	for i, seen := lo, -1; i < hi; i++ {
		if w.word(i) && w.tokens[i].Is(comparisons...) {
			if seen >= 0 {
				w.fail(lo, hi, rules.ExprChain, "comparisons do not chain", "write a < b and b < c")
				return
			}
			seen = i
		}
		i = w.skip(i)
	}
	for i := lo; i < hi && w.flaw == nil; {
		i = w.token(i, hi)
	}
}

// token writes token i with the content of its bracket. It returns the index of the next token.
func (w *rewriter) token(i, hi int) int {
	t := w.tokens[i]
	switch {
	case t.Is("(", "[", "{"):
		w.bracket(i)
		return t.Pair + 1
	case t.Kind == itemToken && !slices.Contains([]string{"#", "#index", "#acc"}, t.Text):
		w.fail(i, i+1, rules.ExprUnknownName, "there is no "+t.Text, "write #, #index, or #acc inside reduce")
	case t.Kind != NameToken:
		w.put(t.Text, i)
	case !w.word(i):
		w.draft.hide(i)
	default:
		return w.name(i, hi)
	}
	return i + 1
}

// name writes a keyword, or hides a name.
func (w *rewriter) name(i, hi int) int {
	t := w.tokens[i]
	switch t.Text {
	case "in", "matches", "contains", "startsWith", "endsWith", "not", "true", "false":
		w.put(t.Text, i)
	case "True", "False":
		w.put(strings.ToLower(t.Text), i)
	case "None", "null", "nil":
		w.put("nil", i)
	case "is":
		return w.is(i, hi)
	default:
		fn := library.Named(t.Text)
		switch {
		case w.foreign(i, hi):
		case fn != nil && fn.Call == nil && i+1 < hi && w.tokens[i+1].Is("("):
			w.loop(i)
		default:
			w.draft.hide(i)
		}
	}
	return i + 1
}

// loop writes the name of a function with a body that may contain #. The parser must know it and its number of
// arguments.
func (w *rewriter) loop(i int) {
	w.put(w.tokens[i].Text, i)
	last := w.tokens[i+1].Pair
	n := 0
	for at := i + 2; at < last; n++ {
		at = w.find(at, last, ",") + 1
	}
	fn := library.Named(w.tokens[i].Text)
	if message := fn.WrongCount(n); message != "" {
		w.fail(i, last+1, rules.ExprArguments, message, "write "+fn.Signature)
	}
}

// foreign reports a keyword of another language. It may also be a name, unless another word follows.
func (w *rewriter) foreign(i, hi int) bool {
	message, hint := "", ""
	switch text := w.tokens[i].Text; text {
	case "for":
		message, hint = "there are no comprehensions", w.comprehension(i)
	case "lambda", "function", "def":
		message, hint = "there are no lambda functions", "write # for the element: filter(xs, # > 1)"
	case "while", "import", "async", "await", "yield", "return", "new", "typeof", "let", "var", "const":
		message = Quoted(text) + " has no meaning in expressions"
	default:
		return false
	}
	if w.tokens[i].Text != "lambda" && (i+1 == hi || w.tokens[i+1].Kind == SymbolToken) {
		return false
	}
	w.fail(i, i+1, rules.ExprForeign, message, hint)
	return true
}

// is writes Python's "is None" and "is not None".
func (w *rewriter) is(i, hi int) int {
	op, next := "==", i+1
	if next < hi && w.tokens[next].Is("not") {
		op, next = "!=", next+1
	}
	if next >= hi || !w.tokens[next].Is("None", "null", "nil", "True", "true", "False", "false") {
		w.fail(i, next, rules.ExprForeign, "is compares with None only", "write "+op)
		return next
	}
	w.put(op, i)
	return next
}

// bracket writes a bracket. A mapping as the predicate of a loop gets parentheses, since expr-lang reads its
// braces as a block.
func (w *rewriter) bracket(i int) {
	t := w.tokens[i]
	if t.Text == "(" && !w.called(i) {
		if i > 0 && w.tokens[i-1].Is("contains", "startsWith", "endsWith", "matches") && (i == 1 || w.tokens[i-2].Kind == SymbolToken) {
			w.fail(i-1, i, rules.ExprForeign, w.tokens[i-1].Text+" is an operator, not a function", "write it between its operands: text "+
				w.tokens[i-1].Text+" part")
			return
		}
		if comma := w.find(i+1, t.Pair, ","); comma < t.Pair {
			w.fail(comma, comma+1, rules.ExprForeign, "there are no tuples", "write a list: [a, b]")
			return
		}
		if t.Pair == i+1 {
			w.missing(t.Pair)
			return
		}
	}
	mapping := t.Text == "{" && w.mapping(i)
	if mapping {
		w.put("(", i)
	}
	w.put(t.Text, i)
	w.block(i+1, t.Pair)
	w.put(w.tokens[t.Pair].Text, t.Pair)
	if mapping {
		w.put(")", t.Pair)
	}
}

// mapping reports whether the brace at i begins a mapping rather than a block.
func (w *rewriter) mapping(i int) bool {
	if w.tokens[i].Pair == i+1 {
		return true
	}
	return w.tokens[w.skip(i+1)+1].Is(":")
}

// called reports whether the parenthesis at i contains arguments of a call.
func (w *rewriter) called(i int) bool {
	if i == 0 {
		return false
	}
	t := w.tokens[i-1]
	return t.Is(")", "]") || t.Kind == NameToken &&
		!(w.word(i-1) && t.Is("and", "or", "not", "in", "is", "if", "else", "matches", "contains", "startsWith", "endsWith"))
}
