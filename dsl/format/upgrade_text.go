package format

import (
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"procaas/dsl/expr"
	"procaas/dsl/source"
	"procaas/dsl/syntax"
)

// The binding strength of the parts of an expression, the weakest first.
const (
	bindsNothing = iota // x if c else y, let, ??
	bindsOr
	bindsAnd
	bindsNot
	bindsCompare
	bindsAll // names, calls, literals
)

// A v1Text writes operators of the first version as expressions, with as few brackets as possible.
type v1Text struct {
	*source.Source
	operands []string // of the outermost #and or #or
}

// lines formats an expression. A long chain has one condition per line.
func (w *v1Text) lines(text string, width int) []string {
	if len(w.operands) < 3 {
		if lines, ok := layExpr(text, width); ok {
			return lines
		}
		return []string{text}
	}
	return w.operands
}

func (w *v1Text) operator(op *source.V1Op, arg *yaml.Node) (text string, binds int) {
	if arg.Kind == yaml.AliasNode {
		arg = arg.Alias
	}
	switch op.Name {
	case "and":
		return w.chain(op, arg, bindsAnd), bindsAnd
	case "or":
		return w.chain(op, arg, bindsOr), bindsOr
	case "not":
		return w.not(arg)
	case "contains":
		return w.contains(arg)
	}
	path := &source.V1Writer{Source: w.Source}
	path.Get(op, arg)
	return string(path.Text), bindsAll
}

func (w *v1Text) chain(op *source.V1Op, arg *yaml.Node, binds int) string {
	operands := make([]string, len(arg.Content))
	for i, c := range arg.Content {
		operands[i] = w.operand(c, binds+1)
		if i < len(arg.Content)-1 {
			operands[i] += " " + op.Name
		}
	}
	w.operands = operands
	return strings.Join(operands, " ")
}

func (w *v1Text) not(arg *yaml.Node) (string, int) {
	if arg.Kind == yaml.SequenceNode && len(arg.Content) == 1 {
		arg = arg.Content[0]
	}
	if arg.Kind == yaml.AliasNode {
		arg = arg.Alias
	}
	if op, inner := w.wholeOf(arg); op != nil && op.Name == "contains" {
		needle, haystack := w.parts(inner)
		return needle + " not in " + haystack, bindsCompare
	}
	return "not " + w.operand(arg, bindsAll), bindsNot
}

func (w *v1Text) contains(arg *yaml.Node) (string, int) {
	needle, haystack := w.parts(arg)
	return needle + " in " + haystack, bindsCompare
}

// parts returns needle and haystack.
func (w *v1Text) parts(arg *yaml.Node) (needle, haystack string) {
	if arg.Kind == yaml.AliasNode {
		arg = arg.Alias
	}
	for i := 0; i+1 < len(arg.Content); i += 2 {
		name, inner := source.V1Key(w.Source, arg.Content[i])
		text := w.entry(inner, arg.Content[i+1], bindsAll)
		if name == "needle" {
			needle = text
		} else {
			haystack = text
		}
	}
	return needle, haystack
}

// entry writes a value whose key may have an operator.
func (w *v1Text) entry(op *source.V1Op, value *yaml.Node, least int) string {
	if op == nil {
		return w.operand(value, least)
	}
	return bracket(least)(w.operator(op, value))
}

// bracket returns a function that puts text with a strength below least into brackets.
func bracket(least int) func(text string, binds int) string {
	return func(text string, binds int) string {
		if binds < least {
			return "(" + text + ")"
		}
		return text
	}
}

func (w *v1Text) wholeOf(n *yaml.Node) (*source.V1Op, *yaml.Node) {
	if n.Kind != yaml.MappingNode {
		return nil, nil
	}
	return w.V1Whole(n)
}

// operand writes a value. least is the required binding strength.
func (w *v1Text) operand(n *yaml.Node, least int) string {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch n.Kind {
	case yaml.SequenceNode:
		items := make([]string, len(n.Content))
		for i, item := range n.Content {
			items[i] = w.operand(item, bindsNothing)
		}
		return "[" + strings.Join(items, ", ") + "]"
	case yaml.MappingNode:
		if op, arg := w.V1Whole(n); op != nil {
			return bracket(least)(w.operator(op, arg))
		}
		var entries []string
		for i := 0; i+1 < len(n.Content); i += 2 {
			name, op := source.V1Key(w.Source, n.Content[i])
			entries = append(entries, source.QuoteExpr(name)+": "+w.entry(op, n.Content[i+1], bindsNothing))
		}
		return "{" + strings.Join(entries, ", ") + "}"
	}
	literal := &source.V1Writer{Source: w.Source}
	literal.ScalarText(n)
	text := string(literal.Text)
	if n.Tag != "!$" {
		return text
	}
	text = strings.Join(strings.Fields(text[1:len(text)-1]), " ")
	if strings.ContainsAny(text, "'\"`") {
		text = strings.ReplaceAll(strings.TrimSpace(string(literal.Text[1:len(literal.Text)-1])), "\n", " ")
	}
	return bracket(least)(text, binding(text))
}

// binding returns the binding strength of an expression.
func binding(text string) int {
	tokens, f := syntax.Scan(text)
	if f != nil {
		return bindsNothing
	}
	binds := bindsAll
	for i := 0; i < len(tokens); i++ {
		t := tokens[i]
		here := bindsAll
		switch {
		case t.Pair > i:
			i = t.Pair
		case t.Is("or", "||"):
			here = bindsOr
		case t.Is("and", "&&"):
			here = bindsAnd
		case t.Is("not", "!"):
			here = bindsNot
		case t.Is("if", "else", "?", ":", ";", "let", "??", "|"):
			here = bindsNothing
		case t.Kind == syntax.SymbolToken && !t.Is(".", "?."), t.Is("in", "is", "contains", "matches", "startsWith", "endsWith"):
			here = bindsCompare
		}
		binds = min(binds, here)
	}
	return binds
}

// sameTrees reports whether two values are equal. It compares what expressions compute, not their text.
func sameTrees(a, b *expr.Value) bool {
	if a.Kind != b.Kind || a.Scalar != b.Scalar || a.Secret != b.Secret || len(a.Elems) != len(b.Elems) {
		return false
	}
	if a.Kind == expr.ValueExpr && !sameTree(a.Computed.Source, b.Computed.Source) {
		return false
	}
	if !slices.EqualFunc(a.Names, b.Names, func(x, y expr.Key) bool { return x.Name == y.Name }) {
		return false
	}
	return slices.EqualFunc(a.Elems, b.Elems, sameTrees)
}

// sameTree reports whether two expressions compute the same in the same order.
func sameTree(a, b string) bool {
	if sameExpr(a, b) {
		return true
	}
	first, flaw1 := syntax.Parse(a)
	second, flaw2 := syntax.Parse(b)
	return flaw1 == nil && flaw2 == nil && first.Tree(first.Root) == second.Tree(second.Root)
}
