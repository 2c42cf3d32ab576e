package dsl

import (
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"

	"procaas/dsl/rules"
)

// nameHabits are names that other tools have for what is written differently here, in
// lower case. A name that somebody has declared is never looked up in them.
var nameHabits = map[string]string{
	"state": "write shared-state", "vars": "write shared-state", "variables": "write shared-state", "context": "write shared-state",
	"ctx": "write shared-state", "store": "write shared-state",
	"payload": "write event.payload", "body": "write event.payload", "request": "write event.payload", "input": "write event.payload",
	"message": "write event.payload", "msg": "write event.payload", "data": "write event.payload", "trigger": "write event",
	"steps": "write sources.HANDLER.response", "outputs": "write sources.HANDLER.response", "results": "write sources.HANDLER.response",
	"tasks": "write sources.HANDLER.response", "handlers": "write sources.HANDLER.response", "nodes": "write sources.HANDLER.response",
	"env":     "write !secret NAME in the body of a handler, or read a live setting: configs.NAME",
	"secrets": "write !secret NAME in the body of a handler: expressions do not see secrets",
	"secret":  "write !secret NAME in the body of a handler: expressions do not see secrets",
	"yes":     "write true", "no": "write false", "true": "write true", "false": "write false", // TRUE
	"undefined": "write null", "none": "write null", "null": "write null", "nan": "write null", "nothing": "write null",
	"this": "name the root: event, shared-state or sources", "self": "name the root: event, shared-state or sources",
	"$": "name the root: event, shared-state or sources", "it": "write # for the element of a list",
	"loop": "write #index for the place of an element",
}

// habitOf translates a name that nothing has here. Upper case is no obstacle: TRUE, NULL and
// None of other languages are meant as ours are.
func (b *builder) habitOf(name string) string {
	hint := nameHabits[strings.ToLower(name)]
	for _, root := range []string{stateRoot, "event", "sources", "configs"} {
		if strings.Contains(hint, root) && !b.scope.has(root) {
			return "" // in a file of another kind, whose roots are others
		}
	}
	return hint
}

// lengthWords are members that lists and texts have elsewhere.
var lengthWords = []string{"length", "size", "count", "len"}

// likeWords are operators of other languages between two texts.
var likeWords = map[string]string{
	"like": "write text matches '^pattern$', or text contains part", "ilike": "write lower(text) contains part",
	"eq": "write ==", "ne": "write !=", "gt": "write >", "lt": "write <", "ge": "write >=", "le": "write <=",
	"mod": "write %", "div": "write floor(a / b)", "xor": "write !=", "has": "write key in mapping",
	"starts": "write text startsWith part", "ends": "write text endsWith part", "then": "write VALUE if CONDITION else OTHER",
	"between": "write low <= x and x <= high", "unless": "write VALUE if not CONDITION else OTHER",
}

// notReplaced warns of a back-quoted string with ${…} in it, which other languages replace.
func (b *builder) notReplaced(x *ast.StringNode) {
	t := b.tokens[b.at(x)]
	if t.kind != stringToken || !strings.HasPrefix(t.text, "`") {
		return
	}
	if from := strings.Index(t.text, "${"); from < 0 || !strings.Contains(t.text[from:], "}") {
		return
	}
	b.reporter.Warnf(b.span(x), rules.ExprForeign, "join the parts with +: 'order ' + string(number)", "nothing replaces ${…} in a string")
}

// comprehension translates Python's [f(x) for x in xs if g(x)], whose for is token i.
// It gives a general hint where x is more than one name.
func (w *rewriter) comprehension(i int) string {
	const general = "write map(xs, # + 1) or filter(xs, # > 1)"
	lo, hi := i, i
	for lo > 0 && !w.tokens[lo-1].is("[", "(", "{", ",") {
		if lo--; w.tokens[lo].is(")", "]", "}") {
			lo = w.tokens[lo].pair
		}
	}
	for hi < len(w.tokens) && !w.tokens[hi].is("]", ")", "}", ",") {
		hi = w.skip(hi) + 1
	}
	if lo == i || i+3 >= hi || w.tokens[i+1].kind != nameToken || !w.tokens[i+2].is("in") || lo > 0 && w.tokens[lo-1].is("{") {
		return general
	}
	test := w.find(i+3, hi, "if")
	if w.find(i+3, hi, "for") < hi {
		return general
	}
	name := w.tokens[i+1].text
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

// with writes tokens with another text in place of a name.
func (w *rewriter) with(lo, hi int, name, text string) string {
	var b strings.Builder
	for i := lo; i < hi; i++ {
		t := w.tokens[i]
		if i > lo && t.from > w.tokens[i-1].to {
			b.WriteByte(' ')
		}
		if name != "" && t.kind == nameToken && t.text == name && w.word(i) {
			b.WriteString(text)
		} else {
			b.WriteString(t.text)
		}
	}
	return b.String()
}

// glued tells whether a member of the shared state was meant as a subtraction: a
// hyphen between name characters belongs to the name.
func (b *builder) glued(name string) (spaced string, ok bool) {
	for i := range name {
		if name[i] != '-' || !b.scope.declared(name[:i]) {
			continue
		}
		if right := name[i+1:]; b.knows(right) || strings.Trim(right, "0123456789") == "" {
			return stateRoot + "." + name[:i] + " - " + right, true
		}
	}
	return "", false
}

// isComma tells whether a comma stands between two numbers, as that of a decimal
// fraction does in many countries. Blanks around it would make it one between elements.
func (s *syntax) isComma(from int) bool {
	i := s.origin[max(from, 0)]
	return i > 0 && i+1 < len(s.tokens) && s.tokens[i-1].kind == numberToken && s.tokens[i+1].kind == numberToken &&
		s.tokens[i-1].to == s.tokens[i].from && s.tokens[i].to == s.tokens[i+1].from
}

// lengthHint is for a member that asks a list for its length.
func lengthHint(member, list string) string {
	if slices.Contains(lengthWords, member) {
		return "write len(" + list + ")"
	}
	return ""
}

// memberHint says what a root has, and where what was probably meant stands.
func memberHint(of, name string, members []string) string {
	hint := "it has " + strings.Join(members, ", ")
	switch {
	case of == "event":
		return hint + "; what the sender says is in event.payload"
	case strings.HasPrefix(of, "sources.") && slices.Contains([]string{"body", "result", "output", "data", "value", "json"}, name):
		return "write response"
	}
	return hint
}
