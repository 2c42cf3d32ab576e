package syntax

import "strings"

// likeWords are operators of other languages on two texts.
var likeWords = map[string]string{
	"like": "write text matches '^pattern$', or text contains part", "ilike": "write lower(text) contains part",
	"eq": "write ==", "ne": "write !=", "gt": "write >", "lt": "write <", "ge": "write >=", "le": "write <=",
	"mod": "write %", "div": "write floor(a / b)", "xor": "write !=", "has": "write key in mapping",
	"starts": "write text startsWith part", "ends": "write text endsWith part", "then": "write VALUE if CONDITION else OTHER",
	"between": "write low <= x and x <= high", "unless": "write VALUE if not CONDITION else OTHER",
}

// comprehension translates Python's [f(x) for x in xs if g(x)]. i is the token "for". If x is more than one
// name, it returns a general hint.
func (w *rewriter) comprehension(i int) string {
	const general = "write map(xs, # + 1) or filter(xs, # > 1)"
	lo, hi := i, i
	for lo > 0 && !w.tokens[lo-1].Is("[", "(", "{", ",") {
		lo--
		if w.tokens[lo].Is(")", "]", "}") {
			lo = w.tokens[lo].Pair
		}
	}
	for hi < len(w.tokens) && !w.tokens[hi].Is("]", ")", "}", ",") {
		hi = w.skip(hi) + 1
	}
	if lo == i || i+3 >= hi || w.tokens[i+1].Kind != NameToken || !w.tokens[i+2].Is("in") || lo > 0 && w.tokens[lo-1].Is("{") {
		return general
	}
	test := w.find(i+3, hi, "if")
	if w.find(i+3, hi, "for") < hi {
		return general
	}
	name := w.tokens[i+1].Text
	list, out := w.with(i+3, test, "", ""), w.with(lo, i, name, "#")
	if test < hi {
		list = "filter(" + list + ", " + w.with(test+1, hi, name, "#") + ")"
	}
	if out != "#" {
		list = "map(" + list + ", " + out + ")"
	}
	if len(list) > 80 {
		return general
	}
	return "write " + list
}

// with returns the text of tokens with a name replaced.
func (w *rewriter) with(lo, hi int, name, text string) string {
	var b strings.Builder
	for i := lo; i < hi; i++ {
		t := w.tokens[i]
		if i > lo && t.From > w.tokens[i-1].To {
			b.WriteByte(' ')
		}
		if name != "" && t.Kind == NameToken && t.Text == name && w.word(i) {
			b.WriteString(text)
		} else {
			b.WriteString(t.Text)
		}
	}
	return b.String()
}
